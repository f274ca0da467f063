//! Watch events, in each shape. Frames that do not depend on the watcher are made once and shared by all.

use bytes::{Bytes, BytesMut};
use keelson_cache::{Entry, Event, FrameKind, ViewId};
use keelson_codec::EventType;
use keelson_codec::StoredObject;
use keelson_codec::watch::{bookmark_frame, error_frame, framed};
use keelson_meta::{Object, Revision};
use keelson_registry::WatchOutput;
use keelson_tables::wire::{self, ListMeta, MetaVersion, Metadata, TableHead, write_partial};

use super::Renderer;
use crate::negotiation::Shape;

/// Makes the frames of one watch.
pub(in crate::handlers) struct EventEncoder {
    renderer: Renderer,
    /// Whether the columns of the table have been sent.
    columns_sent: bool,
}

impl EventEncoder {
    pub(in crate::handlers) fn new(renderer: Renderer) -> Self {
        Self { renderer, columns_sent: false }
    }

    /// One event is shared as it is; several are joined, because each frame costs more than its copy.
    pub(in crate::handlers) fn encode(&mut self, outputs: &[WatchOutput]) -> Bytes {
        if let [one] = outputs {
            return self.frame(one);
        }
        let mut joined = BytesMut::new();
        for output in outputs {
            joined.extend_from_slice(&self.frame(output));
        }
        joined.freeze()
    }

    fn frame(&mut self, output: &WatchOutput) -> Bytes {
        match output {
            WatchOutput::Initial(entry) => self.object(EventType::Added, &entry.object, entry.revision),
            WatchOutput::Event(kind, event) => self.event(*kind, event),
            WatchOutput::Bookmark { revision, initial_events_end } => self.bookmark(*revision, *initial_events_end),
            WatchOutput::Error(error) => error_frame(&error.status()),
        }
    }

    fn event(&mut self, kind: FrameKind, event: &Event) -> Bytes {
        let stored = event.object(kind).is_some_and(|entry| self.renderer.view.is_same(&entry.object));
        let shared = match self.renderer.representation.shape {
            Shape::Whole if stored => return event.frame(kind),
            Shape::Metadata(MetaVersion::V1) => Some(METADATA_V1),
            Shape::Metadata(MetaVersion::V1Beta1) => Some(METADATA_V1_BETA1),
            // Rows show ages, and the first row of each watch brings the columns; other versions are rare.
            Shape::Whole | Shape::Table(_) => None,
        };
        let mut encode = |entry: &Entry, revision| self.object(event_type(kind), &entry.object, revision);
        match shared {
            Some(view) => event.frame_in(view, kind, encode),
            None => event.object(kind).map_or_else(Bytes::new, |entry| encode(entry, event.revision)),
        }
    }

    fn object(&mut self, kind: EventType, object: &StoredObject, revision: Revision) -> Bytes {
        match self.renderer.representation.shape {
            Shape::Whole => framed(kind, |out| self.renderer.view.write_object(object, revision, out)),
            Shape::Metadata(version) => framed(kind, |out| {
                let mut whole = Vec::with_capacity(object.object_len(revision));
                object.write_object(revision, &mut whole);
                if let Some(metadata) = Metadata::within(&whole) {
                    write_partial(metadata, version, out);
                }
            }),
            Shape::Table(version) => {
                let columns =
                    (!std::mem::replace(&mut self.columns_sent, true)).then(|| self.renderer.printer.columns());
                let head = TableHead { version, meta: ListMeta::at(revision), columns };
                framed(kind, |out| {
                    head.write(out);
                    self.renderer.write_row(&head, object, revision, out);
                    out.extend_from_slice(wire::END);
                })
            }
        }
    }

    fn bookmark(&mut self, revision: Revision, initial_events_end: bool) -> Bytes {
        match self.renderer.representation.shape {
            Shape::Whole => bookmark_frame(self.renderer.view.kind(), revision, initial_events_end),
            Shape::Metadata(_) | Shape::Table(_) => {
                let mut mark = Object::default();
                mark.set_type(self.renderer.view.kind());
                mark.set_meta("resourceVersion", revision.to_string());
                if initial_events_end {
                    mark.set_meta("annotations", serde_json::json!({ INITIAL_EVENTS_END: "true" }));
                }
                self.object(EventType::Bookmark, &StoredObject::encode(&mark), revision)
            }
        }
    }
}

/// The annotation that marks the bookmark after the initial events (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// The numbers of the views that are shared beside the identity.
const METADATA_V1: ViewId = ViewId(1);
const METADATA_V1_BETA1: ViewId = ViewId(2);

fn event_type(kind: FrameKind) -> EventType {
    match kind {
        FrameKind::Added => EventType::Added,
        FrameKind::Modified => EventType::Modified,
        FrameKind::Deleted => EventType::Deleted,
    }
}
