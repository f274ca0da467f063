//! The body of a list, made while it is sent: entries of a snapshot are copied into frames, and nothing is collected.
//!
//! Memory is one frame, whatever the list holds and however slow the client is. A compressed list is one gzip member put
//! together from blocks that the leaves of the snapshot keep, so an unchanged leaf is compressed once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use keelson_cache::{Entry, LeafSlice, RangeCursor};
use keelson_codec::{DeflateBlock, ListHead, MemberWriter, list, pretty, yaml};

use crate::body::BodyError;
use crate::negotiation::{MediaKind, MediaType};

/// A frame is sent once it holds this many bytes.
const FRAME_BYTES: usize = 64 * 1024;
/// Room for the entry that fills a frame, so that it rarely grows.
const FRAME_SLACK_BYTES: usize = 16 * 1024;
/// How hard lists are compressed: the least, as the reference server does.
const GZIP_LEVEL: u32 = 1;

/// Where the items come from.
pub(super) enum Source {
    /// A contiguous part of a snapshot, of about so many bytes in JSON.
    Range(RangeCursor, u64),
    /// Entries that were picked.
    Chosen(std::vec::IntoIter<Arc<Entry>>),
}

impl Source {
    /// About how many bytes the items are in JSON.
    pub(super) fn size_hint(&self) -> u64 {
        match self {
            Self::Range(_, bytes) => *bytes,
            Self::Chosen(entries) => entries.as_slice().iter().map(|entry| entry.object.bytes().len() as u64).sum(),
        }
    }

    fn next(&mut self) -> Option<Batch> {
        match self {
            Self::Range(cursor, _) => cursor.next_leaf().map(Batch::Leaf),
            Self::Chosen(entries) => entries.next().map(Batch::One),
        }
    }
}

/// Some items that follow each other.
enum Batch {
    Leaf(LeafSlice),
    One(Arc<Entry>),
}

impl Batch {
    fn entries(&self) -> &[Arc<Entry>] {
        match self {
            Self::Leaf(leaf) => leaf.entries(),
            Self::One(entry) => std::slice::from_ref(entry),
        }
    }
}

/// What stands around and between the items, in one media type.
enum Layout {
    Json { first: bool },
    Pretty(pretty::ListWriter, Vec<u8>),
    Yaml(yaml::ListWriter),
}

impl Layout {
    /// The layout, and what stands before the items.
    fn begin(head: &ListHead<'_>, media: MediaType) -> (Self, Vec<u8>) {
        let mut out = Vec::with_capacity(FRAME_BYTES + FRAME_SLACK_BYTES);
        let layout = match media {
            MediaType { kind: MediaKind::Json, pretty: false } => {
                head.write(&mut out);
                Self::Json { first: true }
            }
            MediaType { kind: MediaKind::Json, pretty: true } => {
                Self::Pretty(pretty::ListWriter::start(head, &mut out), Vec::new())
            }
            MediaType { kind: MediaKind::Yaml, .. } => Self::Yaml(yaml::ListWriter::start(head, &mut out)),
        };
        (layout, out)
    }

    fn write(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        match self {
            Self::Json { first } => {
                if !std::mem::take(first) {
                    out.push(b',');
                }
                entry.object.write_item(entry.revision, out);
            }
            Self::Pretty(writer, scratch) => {
                scratch.clear();
                entry.object.write_item(entry.revision, scratch);
                writer.item(scratch, out);
            }
            Self::Yaml(writer) => {
                let mut item = entry.object.decode(entry.revision);
                item.0.shift_remove("kind");
                item.0.shift_remove("apiVersion");
                writer.item(&item.into_value(), out);
            }
        }
    }

    fn end(self, out: &mut Vec<u8>) {
        match self {
            Self::Json { .. } => out.extend_from_slice(list::TAIL),
            Self::Pretty(writer, _) => writer.finish(out),
            Self::Yaml(writer) => writer.finish(out),
        }
    }
}

/// A list as it is.
pub(super) struct ListBody {
    /// What is left to send; `None` once the last frame is made.
    rest: Option<(Layout, Source)>,
    /// Items that were begun, and how many of them are written.
    batch: Option<(Batch, usize)>,
    frame: Vec<u8>,
}

impl ListBody {
    pub(super) fn new(head: &ListHead<'_>, source: Source, media: MediaType) -> Self {
        let (layout, frame) = Layout::begin(head, media);
        Self { rest: Some((layout, source)), batch: None, frame }
    }

    /// Fills the frame; whether there is more to come.
    fn fill(&mut self) -> bool {
        while let Some((layout, source)) = &mut self.rest {
            if let Some((batch, written)) = &mut self.batch {
                let entries = batch.entries();
                while *written < entries.len() {
                    if self.frame.len() >= FRAME_BYTES {
                        return true;
                    }
                    layout.write(&entries[*written], &mut self.frame);
                    *written += 1;
                }
            }
            self.batch = source.next().map(|batch| (batch, 0));
            if self.batch.is_none()
                && let Some((layout, _)) = self.rest.take()
            {
                layout.end(&mut self.frame);
            }
        }
        false
    }
}

impl Body for ListBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.rest.is_none() {
            return Poll::Ready(None);
        }
        let room = if this.fill() { FRAME_BYTES + FRAME_SLACK_BYTES } else { 0 };
        let frame = std::mem::replace(&mut this.frame, Vec::with_capacity(room));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(frame)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none()
    }
}

/// A list as one gzip member.
pub(super) struct GzipListBody {
    /// What is left to send; `None` once the last frame is made.
    rest: Option<(Layout, Source)>,
    member: MemberWriter,
    frame: Vec<u8>,
    /// What is to be compressed next.
    plain: Vec<u8>,
}

impl GzipListBody {
    pub(super) fn new(head: &ListHead<'_>, source: Source, media: MediaType) -> Self {
        let (layout, plain) = Layout::begin(head, media);
        let frame = MemberWriter::header().to_vec();
        Self { rest: Some((layout, source)), member: MemberWriter::new(), frame, plain }
    }

    fn push(&mut self, block: &DeflateBlock) {
        self.member.push(block);
        self.frame.extend_from_slice(&block.bytes);
    }

    fn compress_plain(&mut self) {
        if !self.plain.is_empty() {
            let block = DeflateBlock::compress(&self.plain, GZIP_LEVEL);
            self.plain.clear();
            self.push(&block);
        }
    }

    fn add(&mut self, layout: &mut Layout, batch: &Batch) {
        if let (Layout::Json { first }, Batch::Leaf(leaf)) = (&mut *layout, batch)
            && let Some(block) = leaf.block()
        {
            if !std::mem::take(first) {
                self.plain.push(b',');
            }
            self.compress_plain();
            self.push(block);
            return;
        }
        for entry in batch.entries() {
            layout.write(entry, &mut self.plain);
            if self.plain.len() >= FRAME_BYTES {
                self.compress_plain();
            }
        }
    }

    fn end(&mut self, layout: Layout) {
        layout.end(&mut self.plain);
        self.compress_plain();
        let end = std::mem::take(&mut self.member).finish();
        self.frame.extend_from_slice(&end);
    }
}

impl Body for GzipListBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        while this.frame.len() < FRAME_BYTES {
            let Some((mut layout, mut source)) = this.rest.take() else {
                break;
            };
            match source.next() {
                Some(batch) => {
                    this.add(&mut layout, &batch);
                    this.rest = Some((layout, source));
                }
                None => this.end(layout),
            }
        }
        if this.frame.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(std::mem::take(&mut this.frame))))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.frame.is_empty()
    }
}
