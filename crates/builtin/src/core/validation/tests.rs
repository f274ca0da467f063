//! Tests of the kinds of the core group.
//!
//! There is one file for each family of kinds, as for the rules.

mod config;
mod limits;
mod namespaces;
mod nodes;
mod pod;
mod services;
mod volumes;
