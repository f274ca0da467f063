//! The frames of a JSON watch. Each frame is one line with one event.
//!
//! A frame is encoded once for each event and shared by all watches. The API conventions define the content of each
//! type of event.

use bytes::Bytes;
use keelson_meta::{GroupVersionKind, Revision, Status};

use crate::json::write_string;
use crate::stored::StoredObject;

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object did not match the watch before.
    Added,
    /// The object changed.
    Modified,
    /// The object was deleted: its last content, at the revision of the deletion.
    Deleted,
    /// Progress only.
    Bookmark,
    /// The end of the watch, with a `Status` as the object.
    Error,
}

impl EventType {
    /// The type in the response.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// The annotation that marks the bookmark after the initial events of a watch-list (KEP-3157).
const INITIAL_EVENTS_END: &str = "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}";

/// An event with an object at a revision, under `kind`, or under its stored kind if that is `None`.
pub fn event_frame(
    event: EventType,
    object: &StoredObject,
    revision: Revision,
    kind: Option<&GroupVersionKind>,
) -> Bytes {
    let mut out = start(event, object.object_len(revision) + 64);
    match kind {
        None => object.write_object(revision, &mut out),
        Some(kind) => object.write_object_as(kind, revision, &mut out),
    }
    finish(out)
}

/// An event whose object `write` appends.
pub fn framed(event: EventType, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = start(event, 512);
    write(&mut out);
    finish(out)
}

/// A bookmark: an object of the watched kind with only a `resourceVersion`.
pub fn bookmark_frame(kind: &GroupVersionKind, revision: Revision, initial_events_end: bool) -> Bytes {
    let mut out = start(EventType::Bookmark, 192);
    out.extend_from_slice(b"{\"kind\":");
    write_string(&kind.kind, &mut out);
    out.extend_from_slice(b",\"apiVersion\":");
    write_string(&kind.group_version().to_string(), &mut out);
    out.extend_from_slice(b",\"metadata\":{\"resourceVersion\":\"");
    out.extend_from_slice(itoa::Buffer::new().format(revision.get()).as_bytes());
    out.push(b'"');
    if initial_events_end {
        out.push(b',');
        out.extend_from_slice(INITIAL_EVENTS_END.as_bytes());
    }
    out.extend_from_slice(b"}}");
    finish(out)
}

/// The last frame of a watch that failed.
pub fn error_frame(status: &Status) -> Bytes {
    let mut out = start(EventType::Error, 512);
    serde_json::to_writer(&mut out, status).expect("a Status has string keys, and writing to a Vec cannot fail");
    finish(out)
}

fn start(event: EventType, capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_str().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out
}

fn finish(mut out: Vec<u8>) -> Bytes {
    out.extend_from_slice(b"}\n");
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map() -> GroupVersionKind {
        GroupVersionKind { group: String::new(), version: "v1".into(), kind: "ConfigMap".into() }
    }

    #[test]
    fn an_event_is_one_line_with_the_whole_object() {
        let text = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n"},"data":{"a":"b"}}"#;
        let object = StoredObject::parse(Bytes::from_static(text.as_bytes())).unwrap();
        let frame = event_frame(EventType::Deleted, &object, Revision::new(9), None);
        let expected = concat!(
            r#"{"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1","#,
            r#""metadata":{"name":"n","resourceVersion":"9"},"data":{"a":"b"}}}"#,
            "\n"
        );
        assert_eq!(frame, expected);
        let other = GroupVersionKind { group: "g".into(), version: "v2".into(), kind: "Other".into() };
        let frame = event_frame(EventType::Added, &object, Revision::new(9), Some(&other));
        assert!(frame.starts_with(br#"{"type":"ADDED","object":{"kind":"Other","apiVersion":"g/v2","metadata":"#));
    }

    #[test]
    fn a_bookmark_has_only_a_revision() {
        let expected = concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"878"}}}"#,
            "\n"
        );
        assert_eq!(bookmark_frame(&config_map(), Revision::new(878), false), expected);
        let last = bookmark_frame(&config_map(), Revision::new(878), true);
        let annotations = r#"{"resourceVersion":"878","annotations":{"k8s.io/initial-events-end":"true"}}"#;
        assert!(String::from_utf8_lossy(&last).contains(annotations));
    }

    #[test]
    fn an_error_carries_a_status() {
        let status = Status::failure(410, Some("Expired"), "too old".to_owned());
        let frame = error_frame(&status);
        assert!(frame.starts_with(br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","#));
        assert!(frame.ends_with(b"}}\n"));
    }
}
