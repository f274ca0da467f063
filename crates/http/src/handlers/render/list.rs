//! A list, written item by item: what stands around and between the items, in each shape and encoding.
//!
//! The shape decides what an item is in JSON, the encoding what becomes of that JSON: two choices that know nothing of
//! each other. A list in protobuf is measured before its first byte, because its envelope says how long it is.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_codec::{list, pretty, yaml};
use keelson_meta::{ApiError, ListHead};
use keelson_protobuf::{ListForm, ProtobufError};
use keelson_tables::wire::TableHead;

use super::Renderer;
use crate::handlers::list_body::Source;
use crate::negotiation::{MediaKind, MediaType, Shape};

/// Writes the list of one request.
pub(in crate::handlers) struct ListWriter {
    renderer: Renderer,
    frame: Frame,
    /// Whether no item has been written yet.
    empty: bool,
    scratch: Vec<u8>,
}

enum Frame {
    Json,
    Pretty(pretty::ListWriter),
    Yaml(yaml::ListWriter),
    Protobuf(ListForm),
}

impl ListWriter {
    /// Begins a list of the items in `source`: the writer, and what stands before the items.
    ///
    /// # Errors
    /// [`ApiError::Internal`] when an item does not fit its message, which only damaged data can cause.
    pub(in crate::handlers) async fn start(
        renderer: Renderer,
        head: &ListHead<'_>,
        source: &mut Source,
    ) -> Result<(Self, Vec<u8>), ApiError> {
        let (head, columns) = match renderer.representation.shape {
            Shape::Whole => (*head, None),
            Shape::Table(version) => (*head, Some((version, renderer.printer.columns()))),
            Shape::Metadata(version) => {
                let kind = "PartialObjectMetadataList";
                (ListHead { kind, api_version: version.api_version(), meta: head.meta }, None)
            }
        };
        let mut json = Vec::with_capacity(512);
        match columns {
            None => list::write_head(&head, &mut json),
            Some((version, columns)) => {
                TableHead { version, meta: head.meta, columns: Some(columns) }.write(&mut json);
            }
        }
        let mut out = Vec::new();
        let frame = match renderer.media() {
            MediaType { kind: MediaKind::Json, pretty: false } => {
                out = json;
                Frame::Json
            }
            MediaType { kind: MediaKind::Json, pretty: true } => {
                Frame::Pretty(pretty::ListWriter::start(&json, &mut out))
            }
            MediaType { kind: MediaKind::Yaml, .. } => Frame::Yaml(yaml::ListWriter::start(&json, &mut out)),
            MediaType { kind: MediaKind::Protobuf, .. } => {
                Frame::Protobuf(start_protobuf(&renderer, &head, source, &mut out).await?)
            }
        };
        Ok((Self { renderer, frame, empty: true, scratch: Vec::new() }, out))
    }

    /// Whether items are shown as their canonical bytes, so that blocks of them can be taken as they are.
    pub(in crate::handlers) fn is_canonical(&self) -> bool {
        let whole = self.renderer.representation.shape == Shape::Whole;
        whole && matches!(self.frame, Frame::Json) && self.renderer.view.shows_stored_items()
    }

    /// Appends what stands before a block of canonical items that is sent by other means.
    pub(in crate::handlers) fn before_block(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.empty) {
            out.push(b',');
        }
    }

    /// Appends an item.
    pub(in crate::handlers) fn item(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        if matches!(self.frame, Frame::Json) {
            self.before_block(out);
            return self.renderer.write_item(entry, out);
        }
        self.scratch.clear();
        self.renderer.write_item(entry, &mut self.scratch);
        match &mut self.frame {
            Frame::Json => {}
            Frame::Pretty(writer) => writer.item(&self.scratch, out),
            Frame::Yaml(writer) => writer.item(&self.scratch, out),
            Frame::Protobuf(form) => {
                if let Err(error) = form.write_item(&self.scratch, out) {
                    // It could be measured, so it can be written.
                    tracing::error!(%error, key = %entry.key, "an object does not fit its message");
                }
            }
        }
    }

    /// Appends what stands after the items.
    pub(in crate::handlers) fn finish(self, out: &mut Vec<u8>) {
        match self.frame {
            Frame::Json => out.extend_from_slice(list::TAIL),
            Frame::Pretty(writer) => writer.finish(out),
            Frame::Yaml(writer) => writer.finish(out),
            Frame::Protobuf(_) => out.extend_from_slice(ListForm::TAIL),
        }
    }
}

impl Renderer {
    /// Appends an item of a list in JSON: an object, a row, or bare metadata.
    fn write_item(&self, entry: &Entry, out: &mut Vec<u8>) {
        match self.representation.shape {
            Shape::Whole => self.view.write_item(&entry.object, entry.revision, out),
            Shape::Table(version) => self.write_row(version, &entry.object, entry.revision, out),
            Shape::Metadata(version) => self.write_metadata(version, &entry.object, entry.revision, out),
        }
    }

    /// How many bytes items take in protobuf.
    fn measure(&self, form: &ListForm, entries: &[Arc<Entry>]) -> Result<usize, ProtobufError> {
        let mut json = Vec::new();
        entries.iter().try_fold(0, |sum, entry| {
            json.clear();
            self.write_item(entry, &mut json);
            Ok(sum + form.item_len(&json)?)
        })
    }
}

/// Measures the items and appends what stands before them.
async fn start_protobuf(
    renderer: &Renderer,
    head: &ListHead<'_>,
    source: &mut Source,
    out: &mut Vec<u8>,
) -> Result<ListForm, ApiError> {
    let failed = |error: ProtobufError| ApiError::Internal(error.to_string());
    let item_kind = match renderer.representation.shape {
        Shape::Whole | Shape::Table(_) => renderer.view.kind().kind.as_str(),
        Shape::Metadata(_) => "PartialObjectMetadata",
    };
    let form = ListForm::of(head.api_version, head.kind, item_kind).map_err(failed)?;
    let measured = source.size_in(form.item().number(), |entries| renderer.measure(&form, entries)).await;
    let unread = || ApiError::Internal("a list in protobuf is not made of items that are still to be read".to_owned());
    let items = measured.map_err(failed)?.ok_or_else(unread)?;
    form.write_head(head, items, out).map_err(failed)?;
    Ok(form)
}
