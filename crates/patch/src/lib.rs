//! The patches a client may send: JSON patch (RFC 6902), JSON merge patch (RFC 7396) and strategic merge patch.
//!
//! Besides, the arithmetic of field ownership that server-side apply is made of.
//!
//! Pure functions from a value and a patch to a value. A patch that cannot be applied leaves no trace, and none can make
//! a value the server could not read back. What the result means to the API is judged elsewhere.

pub mod equal;
mod error;
pub mod fields;
pub mod go_text;
pub mod json_patch;
pub mod merge_patch;
mod pointer;
pub mod strategic;

pub use error::PatchError;
