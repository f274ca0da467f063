//! Encodes watch events in each form. Frames that do not depend on the watch are encoded once and shared by all.
//!
//! The first watch that sends a shared event encodes its frame. Bookmarks and errors contain no stored object and are
//! encoded here completely.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use keelson_cache::{Entry, Event, FrameKind, ViewId};
use keelson_codec::EventType;
use keelson_codec::StoredObject;
use keelson_codec::watch::{bookmark_frame, error_frame, framed};
use keelson_meta::{ApiError, ListMeta, Object, Revision};
use keelson_query::Mask;
use keelson_registry::WatchOutput;
use keelson_tables::wire::{self, MetaVersion, TableHead};

use super::{Renderer, write_metadata};
use crate::handlers::list_body::{HEAVY_BYTES, cut, done};
use crate::metrics::WatchMeter;
use crate::negotiation::{MediaKind, ObjectForm};

/// Makes the frames of one watch.
#[derive(Clone)]
pub(in crate::handlers) struct EventEncoder {
    renderer: Renderer,
    /// True once the column definitions were sent.
    columns_sent: bool,
    /// Selects the fields of each object.
    mask: Option<Arc<Mask>>,
    /// Counts the events for metrics.
    meter: Option<WatchMeter>,
}

impl EventEncoder {
    pub(in crate::handlers) fn new(renderer: Renderer) -> Self {
        Self { renderer, columns_sent: false, mask: None, meter: None }
    }

    /// Applies a mask to each object.
    pub(in crate::handlers) fn masked(self, mask: Option<Arc<Mask>>) -> Self {
        Self { mask, ..self }
    }

    /// Counts the events with this meter.
    pub(in crate::handlers) fn metered(self, meter: Option<WatchMeter>) -> Self {
        Self { meter, ..self }
    }

    /// The encoding.
    pub(in crate::handlers) fn media_kind(&self) -> MediaKind {
        self.renderer.media().kind
    }

    /// Encodes outputs, and returns true if they end the watch. `None` if that takes time, because an object must be
    /// converted or is large. Few outputs need that.
    pub(in crate::handlers) fn encode_now(&mut self, outputs: &[WatchOutput]) -> Option<(Bytes, bool)> {
        let takes_time = size_of(outputs) > HEAVY_BYTES || outputs.iter().any(|output| self.foreign(output).is_some());
        (!takes_time).then(|| self.joined(outputs, &mut std::iter::empty()))
    }

    /// Converts objects to the requested version and encodes the outputs. Returns true if they end the watch. A failed
    /// conversion ends it.
    pub(in crate::handlers) async fn encode(&mut self, outputs: &[WatchOutput]) -> (Bytes, bool) {
        let Some(first) = outputs.iter().position(|output| self.foreign(output).is_some()) else {
            return self.made(outputs, Vec::new()).await;
        };
        let entries = outputs[first..].iter().filter_map(|output| self.foreign(output).cloned()).collect();
        match self.renderer.view.clone().show_all(entries).await {
            Ok(converted) => self.made(outputs, converted).await,
            Err(error) => {
                let (before, ended) = self.made(&outputs[..first], Vec::new()).await;
                if ended {
                    return (before, true);
                }
                let mut told = BytesMut::from(&*before);
                told.extend_from_slice(&self.error(&in_stream(error)));
                (told.freeze(), true)
            }
        }
    }

    /// The object of an output, if it must be converted.
    fn foreign<'o>(&self, output: &'o WatchOutput) -> Option<&'o Arc<Entry>> {
        entry_of(output).filter(|entry| !self.renderer.view.fits_entry(entry))
    }

    /// Encodes outputs, on another thread if they are large, since a large object would block a shared thread.
    async fn made(&mut self, outputs: &[WatchOutput], converted: Vec<Arc<Entry>>) -> (Bytes, bool) {
        let size = size_of(outputs);
        if size <= HEAVY_BYTES {
            return self.joined(outputs, &mut converted.into_iter());
        }
        let (mut elsewhere, outputs) = (self.clone(), outputs.to_vec());
        let making = move || {
            let told = elsewhere.joined(&outputs, &mut converted.into_iter());
            (elsewhere, told)
        };
        let (made_by, told) = done(size, making).await;
        *self = made_by;
        told
    }

    /// Joins the frames of several outputs, because each frame costs more than copying it. A single frame is shared.
    /// `converted` are the objects that are not sent as stored, in order. An event that cannot be encoded ends the
    /// watch, since a client that continues must have every event.
    fn joined(&mut self, outputs: &[WatchOutput], converted: &mut dyn Iterator<Item = Arc<Entry>>) -> (Bytes, bool) {
        if let [one] = outputs
            && let Ok(frame) = self.frame(one, converted)
        {
            self.count(&frame);
            return (frame, false);
        }
        let mut joined = BytesMut::new();
        for output in outputs {
            match self.frame(output, converted) {
                Ok(frame) => {
                    self.count(&frame);
                    joined.extend_from_slice(&frame);
                }
                Err(error) => {
                    joined.extend_from_slice(&self.error(&error));
                    return (joined.freeze(), true);
                }
            }
        }
        (joined.freeze(), false)
    }

    fn count(&self, frame: &Bytes) {
        if let Some(meter) = &self.meter {
            meter.sent(frame.len());
        }
    }

    /// # Errors
    /// 500 when the object cannot be encoded.
    fn frame(
        &mut self,
        output: &WatchOutput,
        converted: &mut dyn Iterator<Item = Arc<Entry>>,
    ) -> Result<Bytes, ApiError> {
        let other_version;
        let entry = match entry_of(output) {
            Some(entry) if self.renderer.view.fits_entry(entry) => Some(&**entry),
            Some(_) => {
                other_version = converted.next();
                other_version.as_deref()
            }
            None => None,
        };
        let cut = match (&self.mask, entry) {
            (Some(mask), Some(entry)) => Some(cut(entry, mask)?),
            (Some(_), None) | (None, _) => None,
        };
        let entry = cut.as_deref().or(entry);
        Ok(match (output, entry) {
            (WatchOutput::Initial(_), Some(entry)) => self.object(EventType::Added, &entry.object(), entry.revision)?,
            (WatchOutput::Event(kind, event), Some(entry)) => self.event(*kind, event, entry)?,
            (WatchOutput::Initial(_) | WatchOutput::Event(..), None) => {
                let key = entry_of(output).map_or("", |entry| &*entry.key);
                let kind = self.renderer.view.kind();
                return Err(ApiError::Internal(format!("there is nothing to show of {key:?} as {kind:?}")));
            }
            (WatchOutput::Bookmark { revision, initial_events_end }, _) => {
                self.bookmark(*revision, *initial_events_end)?
            }
            (WatchOutput::Error(error), _) => self.error(error),
        })
    }

    /// A change event, with the object in `entry`.
    fn event(&mut self, kind: FrameKind, event: &Event, entry: &Entry) -> Result<Bytes, ApiError> {
        let stored = event.object(kind).is_some_and(|stored| self.renderer.view.is_same_entry(stored));
        let shared = match (self.renderer.representation.object_form, self.is_protobuf()) {
            // Other versions than the stored one are rare, and few watches share a mask.
            _ if !stored || self.mask.is_some() => None,
            (ObjectForm::Whole, false) => return Ok(event.frame(kind)),
            (ObjectForm::Whole, true) => Some(PROTOBUF),
            (ObjectForm::Metadata(MetaVersion::V1), false) => Some(METADATA_V1),
            (ObjectForm::Metadata(MetaVersion::V1), true) => Some(METADATA_V1_PROTOBUF),
            (ObjectForm::Metadata(MetaVersion::V1Beta1), false) => Some(METADATA_V1_BETA1),
            (ObjectForm::Metadata(MetaVersion::V1Beta1), true) => Some(METADATA_V1_BETA1_PROTOBUF),
            // Rows contain ages, and the first row of each watch has the column definitions.
            (ObjectForm::Table(_), _) => None,
        };
        let mut encode = |entry: &Entry, revision| self.object(event_type(kind), &entry.object(), revision);
        match shared {
            Some(view) => event.frame_in(view, kind, encode),
            None => encode(entry, event.revision),
        }
    }

    /// # Errors
    /// 500 when the object does not have the fields of the requested version, or does not fit its message.
    fn object(&mut self, kind: EventType, object: &StoredObject, revision: Revision) -> Result<Bytes, ApiError> {
        let view = &self.renderer.view;
        match self.renderer.representation.object_form {
            ObjectForm::Whole => {
                let (api_version, name) = (view.kind().group_version().to_string(), &view.kind().kind);
                self.framed(kind, (&api_version, name), |out| view.write_object(object, revision, out))
            }
            ObjectForm::Metadata(version) => {
                self.framed(kind, (version.api_version(), "PartialObjectMetadata"), |out| {
                    write_metadata(version, object, revision, out);
                    Ok(())
                })
            }
            ObjectForm::Table(version) => {
                let columns =
                    (!std::mem::replace(&mut self.columns_sent, true)).then(|| self.renderer.printer.columns());
                let head = TableHead { version, meta: ListMeta::at(revision), columns: columns.as_deref() };
                let mut written = Ok(());
                let frame = framed(kind, |out| {
                    head.write(out);
                    written = self.renderer.write_row(version, object, revision, out);
                    out.extend_from_slice(wire::END);
                });
                written.map(|()| frame)
            }
        }
    }

    /// An event with an object of this apiVersion and kind, which `write` appends in JSON.
    ///
    /// # Errors
    /// The errors of `write`, and 500 when the object does not fit its message.
    fn framed(
        &self,
        event: EventType,
        kind: (&str, &str),
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), ApiError>,
    ) -> Result<Bytes, ApiError> {
        if !self.is_protobuf() {
            let mut written = Ok(());
            let frame = framed(event, |out| written = write(out));
            return written.map(|()| frame);
        }
        let mut json = Vec::new();
        write(&mut json)?;
        let object = keelson_protobuf::encode_json(kind.0, kind.1, &json, None);
        let object = object.map_err(|error| ApiError::Internal(error.to_string()))?;
        Ok(keelson_protobuf::event_frame(event.as_str(), &object).into())
    }

    fn bookmark(&mut self, revision: Revision, initial_events_end: bool) -> Result<Bytes, ApiError> {
        if let Some(meter) = self.meter.as_ref().filter(|_| initial_events_end) {
            meter.initial_events_end();
        }
        if self.renderer.representation.object_form == ObjectForm::Whole && !self.is_protobuf() {
            return Ok(bookmark_frame(self.renderer.view.kind(), revision, initial_events_end));
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
/// The ids of shared views other than the identity.
const METADATA_V1: ViewId = ViewId(1);
const METADATA_V1_BETA1: ViewId = ViewId(2);
const PROTOBUF: ViewId = ViewId(3);
const METADATA_V1_PROTOBUF: ViewId = ViewId(4);
const METADATA_V1_BETA1_PROTOBUF: ViewId = ViewId(5);

/// The approximate size of the encoded outputs, in bytes.
fn size_of(outputs: &[WatchOutput]) -> u64 {
    outputs.iter().map(WatchOutput::size).sum::<usize>() as u64
}

/// The object of an output.
fn entry_of(output: &WatchOutput) -> Option<&Arc<Entry>> {
    match output {
        WatchOutput::Initial(entry) => Some(entry),
        WatchOutput::Event(kind, event) => event.object(*kind),
        WatchOutput::Bookmark { .. } | WatchOutput::Error(_) => None,
    }
}

/// The error in the form that upstream sends in a stream, where each error has a reason.
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
