//! The kinds of the core group.
//!
//! There is a file for each family of kinds, as the rules have it.

mod config;
mod limits;
mod namespaces;
mod nodes;
mod pod;
mod services;
mod volumes;
