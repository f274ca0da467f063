//! A list, written item by item: what stands around and between the items, in each shape and encoding.

use keelson_cache::Entry;
use keelson_codec::{ListHead, list, pretty, yaml};
use keelson_tables::wire::{self, ListMeta, MetaVersion, Metadata, PartialListHead, TableHead, write_partial};

use super::Renderer;
use crate::negotiation::{MediaKind, MediaType, Shape};

/// Writes the list of one request.
pub(in crate::handlers) struct ListWriter {
    renderer: Renderer,
    layout: Layout,
    /// Whether no item has been written yet.
    empty: bool,
    scratch: Vec<u8>,
}

enum Layout {
    Json,
    Pretty(pretty::ListWriter),
    Yaml(yaml::ListWriter),
    Table(MetaVersion),
    Metadata(MetaVersion),
}

impl ListWriter {
    /// Appends what stands before the items.
    pub(in crate::handlers) fn start(renderer: Renderer, head: &ListHead<'_>, out: &mut Vec<u8>) -> Self {
        let meta = ListMeta { revision: head.revision, continue_token: head.continue_token, remaining: head.remaining };
        let layout = match (renderer.representation.shape, renderer.media()) {
            (Shape::Table(version), _) => {
                TableHead { version, meta, columns: Some(renderer.printer.columns()) }.write(out);
                Layout::Table(version)
            }
            (Shape::Metadata(version), _) => {
                PartialListHead { version, meta }.write(out);
                Layout::Metadata(version)
            }
            (Shape::Whole, MediaType { kind: MediaKind::Json, pretty: false }) => {
                head.write(out);
                Layout::Json
            }
            (Shape::Whole, MediaType { kind: MediaKind::Json, pretty: true }) => {
                Layout::Pretty(pretty::ListWriter::start(head, out))
            }
            (Shape::Whole, MediaType { kind: MediaKind::Yaml, .. }) => Layout::Yaml(yaml::ListWriter::start(head, out)),
        };
        Self { renderer, layout, empty: true, scratch: Vec::new() }
    }

    /// Whether items are shown as their canonical bytes, so that blocks of them can be taken as they are.
    pub(in crate::handlers) fn is_canonical(&self) -> bool {
        matches!(self.layout, Layout::Json) && self.renderer.view.shows_stored_items()
    }

    /// Appends what stands before a block of canonical items that is sent by other means.
    pub(in crate::handlers) fn before_block(&mut self, out: &mut Vec<u8>) {
        self.comma(out);
    }

    /// Appends an item.
    pub(in crate::handlers) fn item(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        match &mut self.layout {
            Layout::Json => {
                self.comma(out);
                self.renderer.view.write_item(&entry.object, entry.revision, out);
            }
            Layout::Pretty(writer) => {
                self.scratch.clear();
                self.renderer.view.write_item(&entry.object, entry.revision, &mut self.scratch);
                writer.item(&self.scratch, out);
            }
            Layout::Yaml(writer) => {
                let mut item = self.renderer.decode(&entry.object, entry.revision);
                item.0.shift_remove("kind");
                item.0.shift_remove("apiVersion");
                writer.item(&item.into_value(), out);
            }
            Layout::Table(version) => {
                let head = TableHead { version: *version, meta: ListMeta::at(entry.revision), columns: None };
                self.comma(out);
                self.renderer.write_row(&head, &entry.object, entry.revision, out);
            }
            Layout::Metadata(version) => {
                let version = *version;
                self.comma(out);
                self.scratch.clear();
                entry.object.write_object(entry.revision, &mut self.scratch);
                if let Some(metadata) = Metadata::within(&self.scratch) {
                    write_partial(metadata, version, out);
                }
            }
        }
    }

    /// Appends what stands after the items.
    pub(in crate::handlers) fn finish(self, out: &mut Vec<u8>) {
        match self.layout {
            Layout::Json => out.extend_from_slice(list::TAIL),
            Layout::Pretty(writer) => writer.finish(out),
            Layout::Yaml(writer) => writer.finish(out),
            Layout::Table(_) | Layout::Metadata(_) => out.extend_from_slice(wire::TAIL),
        }
    }

    fn comma(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.empty) {
            out.push(b',');
        }
    }
}
