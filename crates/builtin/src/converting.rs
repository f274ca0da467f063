//! Conversion of built-in objects between their served versions.
//!
//! Each kind with several versions has a hub version. Every conversion goes through the hub, so a [`Conversion`] has up
//! to two steps. Most pairs of versions have the same fields and need no steps. The caller may then replace only the
//! `apiVersion` in the stored bytes, without decoding them. [`RetiredVersions`] has the versions that are no longer served.
//!
//! Invariant: this module does not depend on bytes, defaults or requests. An object must fit its schema. The text of
//! annotations is checked here, since no schema covers it. Unknown fields survive every conversion.

pub(crate) mod conversion;
pub(crate) mod families;
pub(crate) mod retired;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

pub(crate) use conversion::Conversion;
pub(crate) use retired::RetiredVersions;
