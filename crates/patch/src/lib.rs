//! The patches that a client may send: JSON patch (RFC 6902), JSON merge patch (RFC 7396) and strategic merge patch.
//! The crate also computes field ownership for server-side apply.
//!
//! All patches are pure functions from a value and a patch to a value. A failed patch changes nothing, and no result
//! exceeds the limits of the server's JSON reader. The crate must not know the meaning of the result for the API.

pub mod equal;
mod error;
pub mod fields;
pub mod go_text;
pub mod json_patch;
pub mod merge_patch;
mod pointer;
pub mod strategic;

pub use error::PatchError;
