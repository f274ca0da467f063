//! Watch events, in each shape. Frames that do not depend on the watcher are made once and shared by all.
//!
//! An event that is shown alike to many is framed at the first of them. Bookmarks and errors have no object and are made here
//! whole.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use keelson_cache::{Entry, Event, FrameKind, ViewId};
use keelson_codec::EventType;
use keelson_codec::StoredObject;
use keelson_codec::watch::{bookmark_frame, error_frame, framed};
use keelson_meta::{ApiError, ListMeta, Object, Revision};
use keelson_registry::WatchOutput;
use keelson_tables::wire::{self, MetaVersion, TableHead};

use super::{Renderer, write_metadata};
use crate::handlers::list_body::{HEAVY_BYTES, done};
use crate::negotiation::{MediaKind, ObjectForm};

/// Makes the frames of one watch.
#[derive(Clone)]
pub(in crate::handlers) struct EventEncoder {
    renderer: Renderer,
    /// Whether the columns of the table have been sent.
    columns_sent: bool,
}

impl EventEncoder {
    pub(in crate::handlers) fn new(renderer: Renderer) -> Self {
        Self { renderer, columns_sent: false }
    }

    /// What is told of the outputs, unless that takes time: when some of them have to be converted, or are large. Most need neither.
    pub(in crate::handlers) fn encode_now(&mut self, outputs: &[WatchOutput]) -> Option<Bytes> {
        let takes_time = size_of(outputs) > HEAVY_BYTES || outputs.iter().any(|output| self.foreign(output).is_some());
        (!takes_time).then(|| self.joined(outputs, &mut std::iter::empty()))
    }

    /// What is told of the outputs, whose objects are converted to the version that was asked for first, and whether that ends the
    /// watch: it does when one of them can't be converted.
    pub(in crate::handlers) async fn encode(&mut self, outputs: &[WatchOutput]) -> (Bytes, bool) {
        let Some(first) = outputs.iter().position(|output| self.foreign(output).is_some()) else {
            return (self.made(outputs, Vec::new()).await, false);
        };
        let entries = outputs[first..].iter().filter_map(|output| self.foreign(output).cloned()).collect();
        match self.renderer.view.clone().show_all(entries).await {
            Ok(converted) => (self.made(outputs, converted).await, false),
            Err(error) => {
                let mut told = BytesMut::from(&*self.made(&outputs[..first], Vec::new()).await);
                told.extend_from_slice(&self.error(&in_stream(error)));
                (told.freeze(), true)
            }
        }
    }

    /// The object that an output shows, where it has to be converted.
    fn foreign<'o>(&self, output: &'o WatchOutput) -> Option<&'o Arc<Entry>> {
        shown(output).filter(|entry| !self.renderer.view.fits(&entry.object))
    }

    /// What is told of the outputs, made on another thread where it is much: one large object takes too long for a thread that
    /// requests share.
    async fn made(&mut self, outputs: &[WatchOutput], converted: Vec<Arc<Entry>>) -> Bytes {
        let size = size_of(outputs);
        if size <= HEAVY_BYTES {
            return self.joined(outputs, &mut converted.into_iter());
        }
        let (mut elsewhere, outputs) = (self.clone(), outputs.to_vec());
        let making = move || {
            let bytes = elsewhere.joined(&outputs, &mut converted.into_iter());
            (elsewhere, bytes)
        };
        let (made_by, bytes) = done(size, making).await;
        *self = made_by;
        bytes
    }

    /// One event is shared as it is; several are joined, because each frame costs more than its copy. `converted` are the objects
    /// that are not shown as they are stored, in their order.
    fn joined(&mut self, outputs: &[WatchOutput], converted: &mut dyn Iterator<Item = Arc<Entry>>) -> Bytes {
        if let [one] = outputs {
            return self.frame(one, converted);
        }
        let mut joined = BytesMut::new();
        for output in outputs {
            joined.extend_from_slice(&self.frame(output, converted));
        }
        joined.freeze()
    }

    fn frame(&mut self, output: &WatchOutput, converted: &mut dyn Iterator<Item = Arc<Entry>>) -> Bytes {
        let other_version;
        let entry = match shown(output) {
            Some(entry) if self.renderer.view.fits(&entry.object) => Some(&**entry),
            Some(_) => {
                other_version = converted.next();
                other_version.as_deref()
            }
            None => None,
        };
        match (output, entry) {
            (WatchOutput::Initial(_), Some(entry)) => self.object(EventType::Added, &entry.object, entry.revision),
            (WatchOutput::Event(kind, event), Some(entry)) => self.event(*kind, event, entry),
            (WatchOutput::Initial(_) | WatchOutput::Event(..), None) => Bytes::new(),
            (WatchOutput::Bookmark { revision, initial_events_end }, _) => {
                self.bookmark(*revision, *initial_events_end)
            }
            (WatchOutput::Error(error), _) => self.error(error),
        }
    }

    /// A change, of which `entry` is what is shown.
    fn event(&mut self, kind: FrameKind, event: &Event, entry: &Entry) -> Bytes {
        let stored = event.object(kind).is_some_and(|stored| self.renderer.view.is_same(&stored.object));
        let shared = match (self.renderer.representation.object_form, self.is_protobuf()) {
            // Other versions than the stored one are rare.
            _ if !stored => None,
            (ObjectForm::Whole, false) => return event.frame(kind),
            (ObjectForm::Whole, true) => Some(PROTOBUF),
            (ObjectForm::Metadata(MetaVersion::V1), false) => Some(METADATA_V1),
            (ObjectForm::Metadata(MetaVersion::V1), true) => Some(METADATA_V1_PROTOBUF),
            (ObjectForm::Metadata(MetaVersion::V1Beta1), false) => Some(METADATA_V1_BETA1),
            (ObjectForm::Metadata(MetaVersion::V1Beta1), true) => Some(METADATA_V1_BETA1_PROTOBUF),
            // Rows show ages, and the first row of each watch brings the columns.
            (ObjectForm::Table(_), _) => None,
        };
        let mut encode = |entry: &Entry, revision| self.object(event_type(kind), &entry.object, revision);
        match shared {
            Some(view) => event.frame_in(view, kind, encode),
            None => encode(entry, event.revision),
        }
    }

    fn object(&mut self, kind: EventType, object: &StoredObject, revision: Revision) -> Bytes {
        let view = &self.renderer.view;
        match self.renderer.representation.object_form {
            ObjectForm::Whole => {
                let (api_version, name) = (view.kind().group_version().to_string(), &view.kind().kind);
                self.framed(kind, (&api_version, name), |out| view.write_object(object, revision, out))
            }
            ObjectForm::Metadata(version) => {
                self.framed(kind, (version.api_version(), "PartialObjectMetadata"), |out| {
                    write_metadata(version, object, revision, out);
                })
            }
            ObjectForm::Table(version) => {
                let columns =
                    (!std::mem::replace(&mut self.columns_sent, true)).then(|| self.renderer.printer.columns());
                let head = TableHead { version, meta: ListMeta::at(revision), columns: columns.as_deref() };
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
        if self.renderer.representation.object_form == ObjectForm::Whole && !self.is_protobuf() {
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

/// About how many bytes it takes to tell of the outputs.
fn size_of(outputs: &[WatchOutput]) -> u64 {
    outputs.iter().map(WatchOutput::size).sum::<usize>() as u64
}

/// The object that an output shows.
fn shown(output: &WatchOutput) -> Option<&Arc<Entry>> {
    match output {
        WatchOutput::Initial(entry) => Some(entry),
        WatchOutput::Event(kind, event) => event.object(*kind),
        WatchOutput::Bookmark { .. } | WatchOutput::Error(_) => None,
    }
}

/// A failure as upstream tells it in a stream, where none is without a reason.
fn in_stream(error: ApiError) -> ApiError {
    match error {
        ApiError::Unclassified(message) => ApiError::Internal(message),
        other => other,
    }
}

fn event_type(kind: FrameKind) -> EventType {
    match kind {
        FrameKind::Added => EventType::Added,
        FrameKind::Modified => EventType::Modified,
        FrameKind::Deleted => EventType::Deleted,
    }
}
