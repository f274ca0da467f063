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
struct Layout {
    media: MediaType,
    tail: Vec<u8>,
    first: bool,
    scratch: Vec<u8>,
}

impl Layout {
    /// The layout, and what stands before the items.
    fn begin(head: &ListHead<'_>, media: MediaType) -> (Self, Vec<u8>) {
        let mut out = Vec::with_capacity(FRAME_BYTES + FRAME_SLACK_BYTES);
        let mut tail = Vec::new();
        match media {
            MediaType { kind: MediaKind::Json, pretty: false } => {
                head.write(&mut out);
                tail.extend_from_slice(list::TAIL);
            }
            MediaType { kind: MediaKind::Json, pretty: true } => {
                head.write_pretty(&mut out);
                head.write_pretty_tail(&mut tail);
            }
            MediaType { kind: MediaKind::Yaml, .. } => {
                yaml::write_list_head(head, &mut out);
                yaml::write_list_tail(head, &mut tail);
            }
        }
        (Self { media, tail, first: true, scratch: Vec::new() }, out)
    }

    fn write(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        let first = std::mem::take(&mut self.first);
        match self.media {
            MediaType { kind: MediaKind::Json, pretty: false } => {
                if !first {
                    out.push(b',');
                }
                entry.object.write_item(entry.revision, out);
            }
            MediaType { kind: MediaKind::Json, pretty: true } => {
                if !first {
                    out.push(b',');
                }
                self.scratch.clear();
                entry.object.write_item(entry.revision, &mut self.scratch);
                pretty::new_line(2, out);
                pretty::write(&self.scratch, 2, out);
            }
            MediaType { kind: MediaKind::Yaml, .. } => {
                self.scratch.clear();
                entry.object.write_item(entry.revision, &mut self.scratch);
                yaml::write_list_item(&self.scratch, out);
            }
        }
    }

    fn end(&self, out: &mut Vec<u8>) {
        if self.first && self.media.kind == MediaKind::Yaml {
            yaml::write_empty_items(out);
        }
        if !self.first && self.media == (MediaType { kind: MediaKind::Json, pretty: true }) {
            pretty::new_line(1, out);
        }
        out.extend_from_slice(&self.tail);
    }
}

/// A list as it is.
pub(super) struct ListBody {
    layout: Layout,
    source: Option<Source>,
    /// Items that were begun, and how many of them are written.
    batch: Option<(Batch, usize)>,
    frame: Vec<u8>,
}

impl ListBody {
    pub(super) fn new(head: &ListHead<'_>, source: Source, media: MediaType) -> Self {
        let (layout, frame) = Layout::begin(head, media);
        Self { layout, source: Some(source), batch: None, frame }
    }

    /// Fills the frame; whether there is more to come.
    fn fill(&mut self) -> bool {
        loop {
            if let Some((batch, written)) = &mut self.batch {
                let entries = batch.entries();
                while *written < entries.len() {
                    if self.frame.len() >= FRAME_BYTES {
                        return true;
                    }
                    self.layout.write(&entries[*written], &mut self.frame);
                    *written += 1;
                }
            }
            self.batch = self.source.as_mut().and_then(Source::next).map(|batch| (batch, 0));
            if self.batch.is_none() {
                self.source = None;
                self.layout.end(&mut self.frame);
                return false;
            }
        }
    }
}

impl Body for ListBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.source.is_none() {
            return Poll::Ready(None);
        }
        let more = this.fill();
        let room = if more { FRAME_BYTES + FRAME_SLACK_BYTES } else { 0 };
        let frame = std::mem::replace(&mut this.frame, Vec::with_capacity(room));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(frame)))))
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_none()
    }
}

/// A list as one gzip member.
pub(super) struct GzipListBody {
    layout: Layout,
    source: Option<Source>,
    member: MemberWriter,
    frame: Vec<u8>,
    /// What is to be compressed next.
    plain: Vec<u8>,
    comma: DeflateBlock,
}

impl GzipListBody {
    pub(super) fn new(head: &ListHead<'_>, source: Source, media: MediaType) -> Self {
        let (layout, plain) = Layout::begin(head, media);
        let frame = MemberWriter::header().to_vec();
        let comma = DeflateBlock::compress(b",", GZIP_LEVEL);
        Self { layout, source: Some(source), member: MemberWriter::new(), frame, plain, comma }
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

    fn add(&mut self, batch: &Batch) {
        if let Batch::Leaf(leaf) = batch {
            if self.layout.media == MediaType::JSON {
                if let Some(block) = leaf.block() {
                    self.compress_plain();
                    if !std::mem::take(&mut self.layout.first) {
                        let comma = self.comma.clone();
                        self.push(&comma);
                    }
                    self.push(block);
                    return;
                }
            }
        }
        for entry in batch.entries() {
            self.layout.write(entry, &mut self.plain);
            if self.plain.len() >= FRAME_BYTES {
                self.compress_plain();
            }
        }
    }
}

impl Body for GzipListBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        while let Some(source) = &mut this.source {
            match source.next() {
                Some(batch) => this.add(&batch),
                None => {
                    this.source = None;
                    this.layout.end(&mut this.plain);
                    this.compress_plain();
                    let end = std::mem::take(&mut this.member).finish();
                    this.frame.extend_from_slice(&end);
                }
            }
            if this.frame.len() >= FRAME_BYTES {
                break;
            }
        }
        if this.frame.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(std::mem::take(&mut this.frame))))))
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_none() && self.frame.is_empty()
    }
}
