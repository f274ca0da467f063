//! Warnings about the kinds of the core group.
//!
//! There is a file for each family of kinds, as the rules have it.

pub(super) mod config;
pub(super) mod pod;
pub(super) mod services;
pub(super) mod volumes;
