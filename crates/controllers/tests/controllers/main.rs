//! Tests of controllers on a registry without HTTP: lost history, unreachable content, and several servers on one
//! store.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod leadership;
mod lost_history;
mod namespaces;
mod servers;
mod setup;
