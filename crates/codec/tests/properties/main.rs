//! What must hold for every value and every text, tried with generated ones.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod gzip;
mod json;
mod stored;
mod strategies;
mod yaml;
