//! Encryption at rest over the wire: what clients read, and the bytes that the store holds meanwhile.
//!
//! Stores are shared with the server under test, so that a test sees what an engine sees.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod attacks;
mod common;
mod key_services;
mod migrations;
mod missing_keys;
mod providers;
mod reloads;
mod stores;
