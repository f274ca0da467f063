//! Kubernetes objects in protobuf: read into JSON trees, and written from them.
//!
//! Driven by one table of messages (`messages.txt`); nothing here knows a kind by name, except for the few messages whose
//! JSON is not an object (times, quantities, int-or-string, embedded JSON, the alternatives of JSON schema). What is read
//! looks exactly as Go's JSON of the same object would: same fields, same order, same zero values shown or left out.
//!
//! Pure, and bounded in depth and in the number of values, so that a small body cannot grow into a large tree. Whether an
//! object makes sense is judged elsewhere.

mod decode;
mod encode;
mod envelope;
mod error;
mod list;
mod repeats;
#[cfg(test)]
mod round_trip;
mod scan;
mod special;
mod table;
mod watch;
mod wire;

pub use envelope::{Decoded, MessageType, PREFIX, decode, decode_with_default, encode, encode_json};
pub use error::{ProtobufError, WireFault};
pub use list::{ItemMeasure, ItemWriter, ListForm};
pub use watch::{bookmark_frame, encode_status, error_frame, event_frame};
