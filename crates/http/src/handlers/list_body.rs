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
use keelson_codec::{DeflateBlock, ListHead, MemberWriter};

use super::render::{ListWriter, Renderer};
use crate::body::BodyError;

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

/// A list as it is.
pub(super) struct ListBody {
    /// What is left to send; `None` once the last frame is made.
    rest: Option<(ListWriter, Source)>,
    /// Items that were begun, and how many of them are written.
    batch: Option<(Batch, usize)>,
    frame: Vec<u8>,
}

impl ListBody {
    pub(super) fn new(renderer: Renderer, head: &ListHead<'_>, source: Source) -> Self {
        let mut frame = Vec::with_capacity(FRAME_BYTES + FRAME_SLACK_BYTES);
        let writer = ListWriter::start(renderer, head, &mut frame);
        Self { rest: Some((writer, source)), batch: None, frame }
    }

    /// Fills the frame; whether there is more to come.
    fn fill(&mut self) -> bool {
        while let Some((writer, source)) = &mut self.rest {
            if let Some((batch, written)) = &mut self.batch {
                let entries = batch.entries();
                while *written < entries.len() {
                    if self.frame.len() >= FRAME_BYTES {
                        return true;
                    }
                    writer.item(&entries[*written], &mut self.frame);
                    *written += 1;
                }
            }
            self.batch = source.next().map(|batch| (batch, 0));
            if self.batch.is_none()
                && let Some((writer, _)) = self.rest.take()
            {
                writer.finish(&mut self.frame);
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
    rest: Option<(ListWriter, Source)>,
    member: MemberWriter,
    frame: Vec<u8>,
    /// What is to be compressed next.
    plain: Vec<u8>,
}

impl GzipListBody {
    pub(super) fn new(renderer: Renderer, head: &ListHead<'_>, source: Source) -> Self {
        let mut plain = Vec::new();
        let writer = ListWriter::start(renderer, head, &mut plain);
        let frame = MemberWriter::header().to_vec();
        Self { rest: Some((writer, source)), member: MemberWriter::new(), frame, plain }
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

    fn add(&mut self, writer: &mut ListWriter, batch: &Batch) {
        let block = match batch {
            Batch::Leaf(leaf) if writer.is_canonical() => leaf.block(),
            Batch::Leaf(_) | Batch::One(_) => None,
        };
        if let Some(block) = block {
            writer.before_block(&mut self.plain);
            self.compress_plain();
            self.push(block);
            return;
        }
        for entry in batch.entries() {
            writer.item(entry, &mut self.plain);
            if self.plain.len() >= FRAME_BYTES {
                self.compress_plain();
            }
        }
    }

    fn end(&mut self, writer: ListWriter) {
        writer.finish(&mut self.plain);
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
            let Some((mut writer, mut source)) = this.rest.take() else {
                break;
            };
            match source.next() {
                Some(batch) => {
                    this.add(&mut writer, &batch);
                    this.rest = Some((writer, source));
                }
                None => this.end(writer),
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
