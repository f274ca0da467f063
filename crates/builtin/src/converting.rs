//! Conversion of built-in objects between the versions they are served in.
//!
//! A kind that is served in several versions has one form to which every other form leads and from which it comes: the
//! hub. A [`Conversion`] puts the two steps together; most pairs need neither, since their fields are the same, and
//! say so, so that a caller may swap the `apiVersion` in stored bytes instead of decoding them.
//! [`Retired`] has the versions that are no longer served and are still read.
//! Nothing here knows bytes, defaults or requests. An object is expected to have passed its schema; what a schema can't
//! see, the text of annotations, is checked here. Fields that no version knows survive every conversion.

pub(crate) mod conversion;
pub(crate) mod families;
pub(crate) mod retired;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

pub(crate) use conversion::Conversion;
pub(crate) use retired::Retired;
