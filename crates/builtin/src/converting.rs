//! Conversion of built-in objects between their served versions.
//!
//! Each kind with several versions has a hub: the version through which all conversions lead. A [`Conversion`] joins the two steps.
//! Most pairs need neither, since their fields are the same; a caller may then replace the `apiVersion` in stored bytes without
//! decoding them. [`Retired`] has the versions that are only read.
//!
//! Invariant: this module knows no bytes, defaults or requests. An object must have passed its schema; the text of annotations,
//! which no schema checks, is checked here. Fields that no version knows survive every conversion.

pub(crate) mod conversion;
pub(crate) mod families;
pub(crate) mod retired;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

pub(crate) use conversion::Conversion;
pub(crate) use retired::Retired;
