//! Controllers on a registry without HTTP: what they do when history is lost or something can't be reached, and how servers
//! on one store see each other, whatever their clocks say.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod leadership;
mod lost_history;
mod namespaces;
mod servers;
mod setup;
