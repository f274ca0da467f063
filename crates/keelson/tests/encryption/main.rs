//! Tests of encryption at rest: the objects that clients read, and the bytes in the store.
//!
//! The test shares the store with the server, so it reads the bytes that an engine stores.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod attacks;
mod common;
mod key_services;
mod migrations;
mod missing_keys;
mod providers;
mod reloads;
mod stores;
