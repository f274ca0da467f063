//! Every format that is stored or sent: JSON and YAML text, stored objects, list and watch framing, gzip members.
//!
//! Bytes are made here and nowhere else, one module per format. The crate is pure: it takes bytes and values, gives
//! bytes and values, and knows neither HTTP nor the store. Objects that are already stored are sent by copying their
//! bytes around the `resourceVersion`; a value tree is only built for objects that change.

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
pub use stored::{Checked, DecodeError, FieldPath, StoredObject, Summary};
pub use watch::EventType;
pub use yaml::YamlError;
