//! Tests of typical operators, each in a process of its own with its own webhooks for its own objects.
//!
//! The tests check the objects that the operator writes, independent of its framework.

mod python;
mod rust;
