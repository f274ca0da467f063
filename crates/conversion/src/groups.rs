//! The steps between versions whose fields differ, one file for each API group, as in the other crates that know the built-in kinds.
//!
//! A group whose versions have the same fields has no file. Which steps make up a way is said in `families`, and in `retired` for
//! versions that are only read.

pub(crate) mod apiextensions;
pub(crate) mod autoscaling;
pub(crate) mod events;
pub(crate) mod resource;
