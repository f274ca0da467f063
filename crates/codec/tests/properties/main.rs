//! Properties of the codecs, with generated values and texts.
//!
//! Each format has a module. Examples from clients are in the unit tests of each codec.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod gzip;
mod json;
mod shared;
mod stored;
mod strategies;
mod suite;
mod yaml;

/// The JSON text before the items of a list.
fn start(head: &keelson_meta::ListHead<'_>) -> Vec<u8> {
    let mut start = Vec::new();
    keelson_codec::list::write_head(head, &mut start);
    start
}
