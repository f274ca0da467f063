//! The frames of a watch: four bytes with the length, most significant first, then a `WatchEvent` without an envelope.
//!
//! The event has the type in field 1. Field 2 is a message with the object in its envelope in field 1.

use keelson_meta::json::json;
use keelson_meta::{Object, Revision, Status};

use crate::envelope::encode;
use crate::error::ProtobufError;
use crate::wire::{Sink, WireType, varint_len};

/// An event of this type (`ADDED`, ...). `object` is in its envelope, as [`encode`] returns it.
pub fn event_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let raw = 1 + varint_len(object.len()) + object.len();
    let length = 1 + varint_len(event.len()) + event.len() + 1 + varint_len(raw) + raw;
    let mut out = Vec::with_capacity(4 + length);
    let prefix = u32::try_from(length).expect("an object is far smaller than 4 GiB");
    out.put(&prefix.to_be_bytes());
    out.bytes(1, event.as_bytes());
    out.tag(2, WireType::Bytes);
    out.varint(raw as u64);
    out.bytes(1, object);
    out
}

/// A bookmark: an object of the watched kind with only a `resourceVersion`. The bookmark that ends the initial events
/// of a watch-list (KEP-3157) has the annotation for that.
///
/// # Errors
/// The kind is not built in.
pub fn bookmark_frame(
    api_version: &str,
    kind: &str,
    revision: Revision,
    initial_events_end: bool,
) -> Result<Vec<u8>, ProtobufError> {
    let mut object = Object::default();
    object.set_meta("resourceVersion", revision.to_string());
    if initial_events_end {
        object.set_meta("annotations", json!({"k8s.io/initial-events-end": "true"}));
    }
    Ok(event_frame("BOOKMARK", &encode(api_version, kind, &object)?))
}

/// The last frame of a watch that failed.
pub fn error_frame(status: &Status) -> Vec<u8> {
    event_frame("ERROR", &encode_status(status))
}

/// A `Status` as a whole body.
pub fn encode_status(status: &Status) -> Vec<u8> {
    let tree = keelson_meta::json::to_value(status).ok().and_then(Object::from_value).unwrap_or_default();
    let body = encode("v1", "Status", &tree);
    body.expect("a Status has the fields of the message Status, with their types")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::decode;

    /// The type and the object of an event.
    fn read(frame: &[u8]) -> (String, Object) {
        let (length, event) = frame.split_at(4);
        assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, event.len());
        assert_eq!(event[0], 0x0a);
        let kind = &event[2..2 + usize::from(event[1])];
        let start = event.windows(4).position(|window| window == crate::PREFIX).expect("an envelope");
        (String::from_utf8(kind.to_vec()).unwrap(), decode(&event[start..]).unwrap().object)
    }

    #[test]
    fn an_event_holds_the_object_in_its_envelope() {
        let frame = event_frame("ADDED", b"k8s\0");
        assert_eq!(frame, *b"\0\0\0\x0f\x0a\x05ADDED\x12\x06\x0a\x04k8s\0");
    }

    #[test]
    fn a_bookmark_has_only_a_revision() {
        let (event, object) = read(&bookmark_frame("v1", "ConfigMap", Revision::new(878), false).unwrap());
        assert_eq!(event, "BOOKMARK");
        let expected = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "878"}});
        assert_eq!(object.into_value(), expected);
        let (_, last) = read(&bookmark_frame("v1", "ConfigMap", Revision::new(878), true).unwrap());
        assert_eq!(last.annotations().collect::<Vec<_>>(), [("k8s.io/initial-events-end", "true")]);
    }

    #[test]
    fn an_error_carries_a_status() {
        let status = Status::failure(410, Some("Expired"), "too old".to_owned());
        let (event, object) = read(&error_frame(&status));
        assert_eq!(event, "ERROR");
        assert_eq!(object.into_value().to_string(), serde_json::to_string(&status).unwrap());
    }
}
