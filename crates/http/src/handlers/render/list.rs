//! Encodes a list item by item, with the bytes before, between and after the items, in each form and encoding.
//!
//! The form determines an item's JSON, and the encoding converts that JSON. The two are independent. A protobuf list is
//! measured before its first byte is sent, because its envelope contains its length.

use std::iter;
use std::sync::Arc;

use bytes::Bytes;
use keelson_cache::Entry;
use keelson_codec::{list, pretty, yaml};
use keelson_meta::{ApiError, ListHead, ListMeta};
use keelson_protobuf::{ListForm as ProtobufForm, ProtobufError};
use keelson_tables::wire::TableHead;

use super::{Renderer, write_metadata};
use crate::filters;
use crate::handlers::list_body::Source;
use crate::negotiation::{MediaKind, MediaType, ObjectForm};
use crate::shares::Share;

/// The approximate size of the JSON of items that is in memory at once to be encoded as protobuf.
const TEXTS_BYTES: usize = 1024 * 1024;
/// Additional capacity for bytes that are added to the stored JSON, such as revisions.
const TEXT_SLACK_BYTES: usize = 16 * 1024;

/// An indented item with more bytes than this and than [`LONG_ITEM_RATIO`] times its JSON is sent in pieces. Deep nesting
/// makes it hundreds of times as long as its JSON.
const LONG_ITEM_BYTES: usize = 64 * 1024;
/// Indentation about doubles ordinary objects.
const LONG_ITEM_RATIO: usize = 4;
/// Behind so many bytes of a block, items may not be many times as long as their JSON.
const BLOCK_TEXT_BYTES: usize = 1024 * 1024;

/// Writes the list of one request.
pub(in crate::handlers) struct ListWriter {
    form: Arc<ListForm>,
    /// True before the first item.
    empty: bool,
    texts: Texts,
}

/// All properties of one request's list that writing its items needs.
pub(in crate::handlers) struct ListForm {
    renderer: Renderer,
    frame: Frame,
}

enum Frame {
    Json,
    Pretty(pretty::ListWriter),
    Yaml(yaml::ListWriter),
    Protobuf(ProtobufForm),
}

/// A part of a list.
pub(in crate::handlers) enum Part {
    /// Encoded items.
    Text(Vec<u8>),
    /// An item that is encoded while it is sent.
    Long(LongItem),
}

/// An item whose indented form is many times as long as its JSON.
pub(in crate::handlers) struct LongItem {
    form: Arc<ListForm>,
    compact: Bytes,
    is_first: bool,
    /// The rest of the item, and its memory.
    pieces: Option<(Pieces, Share)>,
}

enum Pieces {
    Pretty(pretty::Pieces),
    Yaml(yaml::Pieces),
}

impl LongItem {
    /// The next piece, of at least `length` bytes unless it is the last. `None` at the end.
    ///
    /// # Errors
    /// 429 when unread responses of the user take its share of the memory.
    pub(in crate::handlers) fn next(&mut self, length: usize) -> Result<Option<Vec<u8>>, ApiError> {
        let (pieces, _) = match &mut self.pieces {
            Some(begun) => begun,
            // Not before, since items that wait would keep many times their size.
            none => none.insert(Self::begin(&self.form, &self.compact, self.is_first)?),
        };
        Ok(match pieces {
            Pieces::Pretty(pieces) => pieces.next(length),
            Pieces::Yaml(pieces) => pieces.next(length),
        })
    }

    fn begin(form: &ListForm, compact: &Bytes, is_first: bool) -> Result<(Pieces, Share), ApiError> {
        let (pieces, bytes) = match &form.frame {
            Frame::Yaml(writer) => {
                let pieces = writer.pieces(compact, is_first);
                let bytes = pieces.bytes();
                (Pieces::Yaml(pieces), bytes)
            }
            Frame::Pretty(writer) => (Pieces::Pretty(writer.pieces(compact.clone(), is_first)), 0),
            Frame::Json | Frame::Protobuf(_) => {
                return Err(ApiError::Internal("a list without indentation has a long item".to_owned()));
            }
        };
        Ok((pieces, filters::kept_memory(form.renderer.holder, bytes + compact.len())?))
    }
}

impl ListWriter {
    /// Begins a list of the items in `source`. Returns the writer, and the bytes before the items.
    ///
    /// # Errors
    /// [`ApiError::Internal`] when an item does not fit its message, which only damaged data can cause.
    pub(in crate::handlers) async fn start(
        renderer: Renderer,
        head: &ListHead<'_>,
        source: &mut Source,
    ) -> Result<(Self, Vec<u8>), ApiError> {
        // Only lists of whole objects have an empty continue token.
        let meta = ListMeta { continue_token: head.meta.continue_token.filter(|token| !token.is_empty()), ..head.meta };
        let (head, columns) = match renderer.representation.object_form {
            ObjectForm::Whole => (*head, None),
            ObjectForm::Table(version) => (ListHead { meta, ..*head }, Some((version, renderer.printer.columns()))),
            ObjectForm::Metadata(version) => {
                let kind = "PartialObjectMetadataList";
                (ListHead { kind, api_version: version.api_version(), meta }, None)
            }
        };
        let mut json = Vec::with_capacity(512);
        match columns {
            None => list::write_head(&head, &mut json),
            Some((version, columns)) => {
                TableHead { version, meta: head.meta, columns: Some(&columns) }.write(&mut json);
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
        Ok((Self { form: Arc::new(ListForm { renderer, frame }), empty: true, texts: Texts::default() }, out))
    }

    /// Returns true if items are sent as canonical bytes, so that whole blocks can be copied.
    pub(in crate::handlers) fn is_canonical(&self) -> bool {
        let ListForm { renderer, frame } = &*self.form;
        renderer.representation.object_form == ObjectForm::Whole && matches!(frame, Frame::Json)
    }

    /// Returns true if these items are sent as canonical bytes: those that contain their version must have the
    /// requested one.
    pub(in crate::handlers) fn shows_as_stored(&self, entries: &[Arc<Entry>]) -> bool {
        let view = &self.form.renderer.view;
        self.is_canonical() && entries.iter().all(|entry| !entry.is_typed_item() || view.is_same_entry(entry))
    }

    /// Returns true if items are copied from stored bytes, so that encoding costs hardly more than sending.
    pub(in crate::handlers) fn copies(&self) -> bool {
        let ListForm { renderer, frame } = &*self.form;
        let copied = match renderer.representation.object_form {
            ObjectForm::Whole | ObjectForm::Metadata(_) => true,
            ObjectForm::Table(_) => false,
        };
        copied && matches!(frame, Frame::Json)
    }

    /// The speed of this encoding as a multiple of the slowest encoding's.
    pub(in crate::handlers) fn ease(&self) -> usize {
        match self.form.frame {
            Frame::Protobuf(_) => 4,
            Frame::Json if self.is_canonical() => 4,
            Frame::Json | Frame::Pretty(_) | Frame::Yaml(_) => 1,
        }
    }

    /// Appends the bytes before a block of canonical items that another path sends.
    pub(in crate::handlers) fn before_block(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.empty) {
            out.push(b',');
        }
    }

    /// Appends the first of these items, at least one, until there are `full` bytes. Returns the number of items, and
    /// the last of them if it is long. That is sent next.
    ///
    /// # Errors
    /// 500 when an item cannot be encoded in the requested version.
    pub(in crate::handlers) fn items(
        &mut self,
        entries: &[Arc<Entry>],
        full: usize,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<LongItem>), ApiError> {
        let first = std::mem::take(&mut self.empty);
        ListForm::write(&self.form, entries, first, full, &mut self.texts, out)
    }

    /// Returns a function that encodes the next items, at any time and on any thread. Its result must be sent at this
    /// place of the list.
    pub(in crate::handlers) fn block(
        &mut self,
        entries: Vec<Arc<Entry>>,
    ) -> impl FnOnce() -> Result<Vec<Part>, ApiError> + Send + 'static + use<> {
        let (form, mut first) = (self.form.clone(), std::mem::take(&mut self.empty));
        move || {
            let bytes: usize = entries.iter().map(|entry| entry.size()).sum();
            // YAML needs half as much again, the other encodings less.
            let room = if matches!(form.frame, Frame::Yaml(_)) { bytes * 3 / 2 } else { bytes };
            let (mut parts, mut rest, mut texts) = (Vec::new(), &*entries, Texts::default());
            let mut out = Vec::with_capacity(room);
            while !rest.is_empty() {
                let (written, long) = ListForm::write(&form, rest, first, usize::MAX, &mut texts, &mut out)?;
                (rest, first) = (&rest[written..], false);
                let Some(long) = long else { continue };
                if !out.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut out)));
                }
                parts.push(Part::Long(long));
            }
            if !out.is_empty() {
                parts.push(Part::Text(out));
            }
            Ok(parts)
        }
    }

    /// Appends the bytes after the items.
    pub(in crate::handlers) fn finish(self, out: &mut Vec<u8>) {
        match &self.form.frame {
            Frame::Json => out.extend_from_slice(list::TAIL),
            Frame::Pretty(writer) => writer.finish(self.empty, out),
            Frame::Yaml(writer) => writer.finish(self.empty, out),
            Frame::Protobuf(_) => out.extend_from_slice(ProtobufForm::TAIL),
        }
    }
}

impl ListForm {
    /// Appends the first of these items, at least one, until there are `full` bytes or an item is long. Returns the
    /// number of items, and the long one. `first` is true at the start of the list.
    fn write(
        this: &Arc<Self>,
        entries: &[Arc<Entry>],
        first: bool,
        full: usize,
        texts: &mut Texts,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<LongItem>), ApiError> {
        if let Frame::Protobuf(form) = &this.frame {
            return Ok((this.write_protobuf(*form, entries, full, texts, out)?, None));
        }
        for (number, entry) in entries.iter().enumerate() {
            if number > 0 && out.len() >= full {
                return Ok((number, None));
            }
            let is_first = first && number == 0;
            if !this.write_text(entry, is_first, &mut texts.joined, out)? {
                let compact = Bytes::copy_from_slice(&texts.joined);
                let long = LongItem { form: this.clone(), compact, is_first, pieces: None };
                return Ok((number + 1, Some(long)));
            }
        }
        Ok((entries.len(), None))
    }

    /// Appends an item, unless it is long. Returns false if it is, with its JSON in `scratch`. `first` is true at the
    /// start of the list.
    fn write_text(
        &self,
        entry: &Entry,
        first: bool,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, ApiError> {
        if matches!(self.frame, Frame::Json) {
            if !first {
                out.push(b',');
            }
            self.renderer.write_item(entry, out)?;
            return Ok(true);
        }
        scratch.clear();
        self.renderer.write_item(entry, scratch)?;
        let spare = LONG_ITEM_BYTES.min(BLOCK_TEXT_BYTES.saturating_sub(out.len()));
        let most = spare.max(scratch.len().saturating_mul(LONG_ITEM_RATIO));
        Ok(match &self.frame {
            Frame::Json | Frame::Protobuf(_) => true,
            Frame::Pretty(writer) => writer.item_within(scratch, first, most, out),
            Frame::Yaml(writer) => writer.item_within(scratch, first, most, out),
        })
    }

    /// As `write`, in protobuf, for several items at once, since neighbours share fields.
    fn write_protobuf(
        &self,
        form: ProtobufForm,
        entries: &[Arc<Entry>],
        full: usize,
        texts: &mut Texts,
        out: &mut Vec<u8>,
    ) -> Result<usize, ApiError> {
        let mut written = 0;
        while written < entries.len() && (written == 0 || out.len() < full) {
            // Hardly any object is longer in protobuf than in JSON.
            self.renderer.write_texts(&entries[written..], full.saturating_sub(out.len()), texts)?;
            let mut writer = form.write_items(out);
            for (text, entry) in texts.iter().zip(&entries[written..]) {
                // The item was measured before, so it can be encoded.
                let unfit = |error| ApiError::Internal(format!("{:?} does not fit its message: {error}", entry.key));
                writer.item(text).map_err(unfit)?;
            }
            written += texts.ends.len();
        }
        Ok(written)
    }
}

/// Consecutive items in JSON.
#[derive(Default)]
struct Texts {
    joined: Vec<u8>,
    /// The end of each item.
    ends: Vec<usize>,
}

impl Texts {
    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.joined[start..*end])
    }
}

impl Renderer {
    /// Appends an item of a list in JSON: an object, a row, or bare metadata.
    fn write_item(&self, entry: &Entry, out: &mut Vec<u8>) -> Result<(), ApiError> {
        match self.representation.object_form {
            ObjectForm::Whole if entry.is_typed_item() => {
                self.view.write_object(&entry.object(), entry.revision, out)?;
            }
            // Other forms of items do not contain their version.
            ObjectForm::Whole => entry.write_item(out),
            ObjectForm::Table(version) => self.write_row(version, &entry.object(), entry.revision, out)?,
            ObjectForm::Metadata(version) => write_metadata(version, &entry.object(), entry.revision, out),
        }
        Ok(())
    }

    /// Writes the first of these items in JSON: at least one, and no more than about this many bytes.
    ///
    /// # Errors
    /// 500 when an item cannot be encoded in the requested version.
    fn write_texts(&self, entries: &[Arc<Entry>], bytes: usize, texts: &mut Texts) -> Result<(), ApiError> {
        texts.joined.clear();
        texts.ends.clear();
        let bytes = bytes.min(TEXTS_BYTES);
        texts.joined.reserve(bytes.min(entries.iter().map(|entry| entry.size()).sum::<usize>()) + TEXT_SLACK_BYTES);
        for entry in entries {
            if !texts.ends.is_empty() && texts.joined.len() >= bytes {
                break;
            }
            self.write_item(entry, &mut texts.joined)?;
            texts.ends.push(texts.joined.len());
        }
        Ok(())
    }

    /// The size of items in protobuf, in bytes.
    ///
    /// # Errors
    /// 500 when one of them cannot be converted to the requested version, or does not fit its message.
    fn measure(&self, form: &ProtobufForm, entries: &[Arc<Entry>]) -> Result<usize, ApiError> {
        let (mut texts, mut rest, mut sum) = (Texts::default(), entries, 0);
        while !rest.is_empty() {
            self.write_texts(rest, usize::MAX, &mut texts)?;
            let mut measure = form.measure_items();
            for text in texts.iter() {
                measure.item(text).map_err(|error| ApiError::Internal(error.to_string()))?;
            }
            sum += measure.bytes();
            rest = &rest[texts.ends.len()..];
        }
        Ok(sum)
    }
}

/// Measures the items and appends the bytes before them.
async fn start_protobuf(
    renderer: &Renderer,
    head: &ListHead<'_>,
    source: &mut Source,
    out: &mut Vec<u8>,
) -> Result<ProtobufForm, ApiError> {
    let failed = |error: ProtobufError| ApiError::Internal(error.to_string());
    let item_kind = match renderer.representation.object_form {
        ObjectForm::Whole | ObjectForm::Table(_) => renderer.view.kind().kind.as_str(),
        ObjectForm::Metadata(_) => "PartialObjectMetadata",
    };
    let form = ProtobufForm::new(head.api_version, head.kind, item_kind).map_err(failed)?;
    let measuring = renderer.clone();
    let measure = move |entries: &[Arc<Entry>]| measuring.measure(&form, entries);
    let measured = source.size_in(form.item().number(), Arc::new(measure)).await;
    let unread = || ApiError::Internal("a list in protobuf is not made of items that are still to be read".to_owned());
    let items = measured?.ok_or_else(unread)?;
    form.write_head(head, items, out).map_err(failed)?;
    Ok(form)
}
