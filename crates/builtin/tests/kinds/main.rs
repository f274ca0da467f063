//! The built-in kinds as data: what is declared, how kinds are shown, how their versions convert.
//!
//! Rules that hold for every kind stand here; those of one concern stand beside it in the group folders.

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
