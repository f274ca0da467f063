//! Tests of lists and watches over the wire: in chunks (KEP-365), sorted and counted, of many large objects, and by the
//! informers of the Rust client.
//!
//! Each module covers one way of reading.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod answers;
mod chunking;
mod client;
mod compressed_watches;
mod large_lists;
mod looks;
mod packed;
mod partial_rights;
mod past;
mod queries;
mod query_costs;
mod query_faults;
mod query_watches;
mod sealed_tokens;
mod search;
mod shards;
mod websockets;

use serde_json::Value;

/// The names of the objects of a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
}
