//! Watch events, in each shape. Frames that do not depend on the watcher are made once and shared by all.

use bytes::{Bytes, BytesMut};
use keelson_cache::{Entry, Event, FrameKind, ViewId};
use keelson_codec::EventType;
use keelson_codec::StoredObject;
use keelson_codec::watch::{bookmark_frame, error_frame, framed};
use keelson_meta::{ApiError, ListMeta, Object, Revision};
use keelson_registry::WatchOutput;
use keelson_tables::wire::{self, MetaVersion, TableHead};

use super::Renderer;
use crate::negotiation::{MediaKind, Shape};

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
            WatchOutput::Error(error) => self.error(error),
        }
    }

    fn event(&mut self, kind: FrameKind, event: &Event) -> Bytes {
        let stored = event.object(kind).is_some_and(|entry| self.renderer.view.is_same(&entry.object));
        let shared = match (self.renderer.representation.shape, self.is_protobuf()) {
            // Other versions than the stored one are rare.
            _ if !stored => None,
            (Shape::Whole, false) => return event.frame(kind),
            (Shape::Whole, true) => Some(PROTOBUF),
            (Shape::Metadata(MetaVersion::V1), false) => Some(METADATA_V1),
            (Shape::Metadata(MetaVersion::V1), true) => Some(METADATA_V1_PROTOBUF),
            (Shape::Metadata(MetaVersion::V1Beta1), false) => Some(METADATA_V1_BETA1),
            (Shape::Metadata(MetaVersion::V1Beta1), true) => Some(METADATA_V1_BETA1_PROTOBUF),
            // Rows show ages, and the first row of each watch brings the columns.
            (Shape::Table(_), _) => None,
        };
        let mut encode = |entry: &Entry, revision| self.object(event_type(kind), &entry.object, revision);
        match shared {
            Some(view) => event.frame_in(view, kind, encode),
            None => event.object(kind).map_or_else(Bytes::new, |entry| encode(entry, event.revision)),
        }
    }

    fn object(&mut self, kind: EventType, object: &StoredObject, revision: Revision) -> Bytes {
        let view = &self.renderer.view;
        match self.renderer.representation.shape {
            Shape::Whole => {
                let (api_version, name) = (view.kind().group_version().to_string(), &view.kind().kind);
                self.framed(kind, (&api_version, name), |out| view.write_object(object, revision, out))
            }
            Shape::Metadata(version) => self.framed(kind, (version.api_version(), "PartialObjectMetadata"), |out| {
                self.renderer.write_metadata(version, object, revision, out);
            }),
            Shape::Table(version) => {
                let columns =
                    (!std::mem::replace(&mut self.columns_sent, true)).then(|| self.renderer.printer.columns());
                let head = TableHead { version, meta: ListMeta::at(revision), columns };
                framed(kind, |out| {
                    head.write(out);
                    self.renderer.write_row(version, object, revision, out);
                    out.extend_from_slice(wire::END);
                })
            }
        }
    }

    /// An event around an object of this apiVersion and kind, which `write` appends in JSON.
    fn framed(&self, event: EventType, kind: (&str, &str), write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        if !self.is_protobuf() {
            return framed(event, write);
        }
        let mut json = Vec::new();
        write(&mut json);
        match keelson_protobuf::encode_json(kind.0, kind.1, &json, None) {
            Ok(object) => keelson_protobuf::event_frame(event.as_str(), &object).into(),
            Err(error) => self.error(&ApiError::Internal(error.to_string())),
        }
    }

    fn bookmark(&mut self, revision: Revision, initial_events_end: bool) -> Bytes {
        if self.renderer.representation.shape == Shape::Whole && !self.is_protobuf() {
            return bookmark_frame(self.renderer.view.kind(), revision, initial_events_end);
        }
        let mut mark = Object::default();
        mark.set_type(self.renderer.view.kind());
        mark.set_meta("resourceVersion", revision.to_string());
        if initial_events_end {
            mark.set_meta("annotations", keelson_meta::json::json!({ INITIAL_EVENTS_END: "true" }));
        }
        self.object(EventType::Bookmark, &StoredObject::encode(&mark), revision)
    }

    fn error(&self, error: &ApiError) -> Bytes {
        match self.is_protobuf() {
            true => keelson_protobuf::error_frame(&error.status()).into(),
            false => error_frame(&error.status()),
        }
    }

    fn is_protobuf(&self) -> bool {
        self.renderer.media().kind == MediaKind::Protobuf
    }
}

/// The annotation that marks the bookmark after the initial events (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// The numbers of the views that are shared beside the identity.
const METADATA_V1: ViewId = ViewId(1);
const METADATA_V1_BETA1: ViewId = ViewId(2);
const PROTOBUF: ViewId = ViewId(3);
const METADATA_V1_PROTOBUF: ViewId = ViewId(4);
const METADATA_V1_BETA1_PROTOBUF: ViewId = ViewId(5);

fn event_type(kind: FrameKind) -> EventType {
    match kind {
        FrameKind::Added => EventType::Added,
        FrameKind::Modified => EventType::Modified,
        FrameKind::Deleted => EventType::Deleted,
    }
}
