//! Every format that is stored or sent: JSON and YAML text, stored objects, list and watch framing, gzip members.
//!
//! Each format has one module, and no other crate writes its bytes. The crate is pure and must not know HTTP or the
//! store. To send a stored object, its bytes are copied with the `resourceVersion` inserted. A value tree is built only
//! for objects that change.

pub mod cursor;
pub mod gzip;
pub mod json;
pub mod list;
pub mod outline;
pub mod pretty;
mod room;
pub mod stored;
mod syntax;
pub mod watch;
pub mod yaml;

pub use gzip::{DeflateBlock, MemberWriter};
pub use json::JsonError;
pub use outline::Outline;
pub use stored::{DecodeError, FieldPath, ParsedObject, StoredObject, Summary};
pub use watch::EventType;
pub use yaml::YamlError;
