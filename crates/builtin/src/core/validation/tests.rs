//! Tests of the kinds of the core group.
//!
//! The tests have one file for each family of kinds, like the rules.

mod config;
mod limits;
mod namespaces;
mod nodes;
mod pod;
mod services;
mod volumes;
