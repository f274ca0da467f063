//! Tests of the built-in kinds as a whole: declarations, tables, and versions.
//!
//! Tests that apply to every kind are here. Tests of one concern are in the group folders.

#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "helpers of tests are tests too, and take what json! makes"
)]

mod catalogue;
mod columns;
mod complete;
mod names;
mod selectable_fields;
mod services;
mod validation;
mod versions;
