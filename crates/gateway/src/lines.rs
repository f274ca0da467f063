//! The lines of a watch, and the events in them.
//!
//! A line has one event. Lines that arrived together are returned together, so that a cache applies them at once.

use bytes::{Bytes, BytesMut};
use keelson_meta::json::Value;
use keelson_meta::{Object, Revision};
use keelson_storage::StoreEvent;

use crate::objects::{MirroredKind, revision_of};
use crate::source::{Fault, Parts, parse};

/// The longest line in bytes. An object has at most 1.5 MiB in etcd, and its JSON may be larger.
const LINE_BYTES: usize = 32 << 20;

/// The annotation of the bookmark after the initial events of a watch (KEP-3157).
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// An event of a watch.
pub(crate) enum Event {
    /// An object has changed.
    Change(StoreEvent),
    /// All changes up to this revision have been sent.
    Bookmark(Revision),
    /// All objects have been sent, in their state at this revision.
    InitialEnd(Revision),
    /// The revision of the watch is too old.
    Expired,
    /// The watch has failed for another reason.
    Failed(String),
}

/// A watch as lines.
pub(crate) struct Lines {
    parts: Parts,
    unread: BytesMut,
    /// The number of unread bytes that hold no end of a line.
    searched: usize,
}

impl Lines {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts, unread: BytesMut::new(), searched: 0 }
    }

    /// The next complete lines: at least one. `None` at the end. The wait may be cancelled without a loss.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Bytes>>, Fault> {
        loop {
            // A long line in small parts must not be searched from its start for each part.
            if let Some(end) = self.unread[self.searched..].iter().rposition(|byte| *byte == b'\n') {
                let whole = self.unread.split_to(self.searched + end + 1).freeze();
                self.searched = self.unread.len();
                let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
                return Ok(Some(lines.map(|line| whole.slice_ref(line)).collect()));
            }
            self.searched = self.unread.len();
            if self.unread.len() > LINE_BYTES {
                return Err(Fault::Invalid(format!("an event has more than {LINE_BYTES} bytes")));
            }
            match self.parts.next().await? {
                Some(part) => self.unread.extend_from_slice(&part),
                None => return Ok(None),
            }
        }
    }
}

impl MirroredKind {
    /// The event in a line.
    ///
    /// # Errors
    /// The line is no event of a watch of this kind.
    pub(crate) fn event(&self, line: &[u8]) -> Result<Event, Fault> {
        let mut event = parse(line)?;
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        let named = event["type"].as_str().unwrap_or_default();
        Ok(match named {
            "ADDED" | "MODIFIED" => {
                let stored = self.stored(object).map_err(Fault::Invalid)?;
                Event::Change(StoreEvent::new(stored.key, stored.revision, Some(stored.value)))
            }
            "DELETED" => {
                let object = Object::from_value(object).unwrap_or_default();
                let key = self.key(&object).map_err(Fault::Invalid)?;
                let revision = revision_of(object.resource_version()).map_err(Fault::Invalid)?;
                Event::Change(StoreEvent::new(key, revision, None))
            }
            "BOOKMARK" => {
                let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                let revision = revision_of(text).map_err(Fault::Invalid)?;
                let is_end = object["metadata"]["annotations"][INITIAL_END] == "true";
                if is_end { Event::InitialEnd(revision) } else { Event::Bookmark(revision) }
            }
            "ERROR" if object["code"].as_u64() == Some(410) => Event::Expired,
            "ERROR" => Event::Failed(object["message"].as_str().unwrap_or("an error without a message").to_owned()),
            other => return Err(Fault::Invalid(format!("an event has the type {other:?}"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::GroupVersionKind;
    use keelson_storage::StoreKey;

    use super::*;

    fn maps() -> MirroredKind {
        MirroredKind {
            kind: GroupVersionKind { group: String::new(), version: "v1".to_owned(), kind: "ConfigMap".to_owned() },
            namespaced: true,
            path: "/api/v1/configmaps".to_owned(),
            prefix: "/registry/configmaps/".to_owned(),
        }
    }

    /// The events have the form of kube-apiserver 1.36.
    #[test]
    fn events_are_read_as_kube_apiserver_sends_them() {
        let event =
            |kind: &str, object: &str| maps().event(format!(r#"{{"type":"{kind}","object":{object}}}"#).as_bytes());
        let object = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"w1","namespace":"watchns","resourceVersion":"393"},"data":{"i":"1"}}"#;
        let key = StoreKey::new("/registry/configmaps/watchns/w1");
        for kind in ["ADDED", "MODIFIED"] {
            let Event::Change(change) = event(kind, object).unwrap() else { panic!("no change") };
            assert_eq!((&change.key, change.revision), (&key, Revision::new(393)));
            let stored = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"w1","namespace":"watchns"},"data":{"i":"1"}}"#;
            assert_eq!(change.value.unwrap(), stored.as_bytes());
        }
        let Event::Change(gone) = event("DELETED", object).unwrap() else { panic!("no change") };
        assert_eq!(gone, StoreEvent::new(key, Revision::new(393), None));
        let mark = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"400","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        assert!(
            matches!(event("BOOKMARK", mark).unwrap(), Event::InitialEnd(revision) if revision == Revision::new(400))
        );
        let mark = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"401"}}"#;
        assert!(
            matches!(event("BOOKMARK", mark).unwrap(), Event::Bookmark(revision) if revision == Revision::new(401))
        );
        let expired =
            r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 1 (300)"}"#;
        assert!(matches!(event("ERROR", expired).unwrap(), Event::Expired));
        assert!(matches!(event("ERROR", r#"{"code":500,"message":"m"}"#).unwrap(), Event::Failed(text) if text == "m"));
        assert!(event("OTHER", object).is_err() && event("ADDED", "{}").is_err() && event("BOOKMARK", "{}").is_err());
        assert!(maps().event(b"x").is_err());
    }
}
