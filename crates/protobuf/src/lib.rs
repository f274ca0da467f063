//! Kubernetes objects in protobuf: decodes them into JSON trees, and encodes them from trees or JSON text.
//!
//! One table of messages (`messages.txt`) drives both directions. The code must not name kinds. Exceptions are the few
//! messages whose JSON is not an object: times, quantities, int-or-string, embedded JSON, and the alternatives of JSON
//! schema. A decoded object equals Go's JSON of the same object, in its fields, their order, and the omitted zero
//! values.
//!
//! The crate is pure. It limits depth and number of values, so that a small body cannot grow into a large tree. Objects
//! are validated elsewhere.

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
