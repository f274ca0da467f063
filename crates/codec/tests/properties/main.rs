//! Properties of the codecs, tried with generated values and texts.
//!
//! A format is a module; examples of what clients send are in the unit tests of each codec.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod gzip;
mod json;
mod shared;
mod stored;
mod strategies;
mod yaml;

/// What stands before the items of a list in JSON.
fn start(head: &keelson_meta::ListHead<'_>) -> Vec<u8> {
    let mut start = Vec::new();
    keelson_codec::list::write_head(head, &mut start);
    start
}
