//! The body of a list, produced while it is sent: entries of a snapshot are copied into frames, and no list is
//! collected in memory.
//!
//! A body needs the memory of one frame, whatever the size of the list and the speed of the client. A compressed list
//! is one gzip member, assembled from blocks that the leaves of the snapshot cache, so an unchanged leaf is compressed
//! once.
//!
//! Large lists that must be encoded have another body (`ahead.rs`). Items in other versions than the requested one are
//! converted first (`convert.rs`).

mod ahead;
mod convert;
mod masked;
mod yielding;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use hyper::body::{Body, Frame};
use keelson_cache::{Entry, LeafSlice, RangeCursor};
use keelson_codec::{DeflateBlock, MemberWriter};
use keelson_meta::ApiError;
use keelson_registry::HistoryItems;

use self::ahead::in_order;
pub(super) use self::ahead::{AHEAD_FROM_BYTES, AheadBody, HEAVY_BYTES, done};
pub(super) use self::convert::converted;
pub(super) use self::masked::{cut, masked, masked_object};
pub(super) use self::yielding::YieldingBody;
use super::render::{ListWriter, LongItem, Part};
use crate::body::BodyError;

/// A frame is sent once it holds this many bytes.
const FRAME_BYTES: usize = 64 * 1024;
/// Room for the entry that fills a frame, so that it rarely grows.
const FRAME_SLACK_BYTES: usize = 16 * 1024;
/// The number of selected entries that are measured or written in one step.
const CHOSEN_BLOCK: usize = 32;
/// The number of newly compressed bytes after which a frame is sent, so that no frame takes long.
const FRESH_BYTES: usize = 256 * 1024;
/// The gzip level of lists and watches: the lowest, as upstream.
pub(super) const GZIP_LEVEL: u32 = 1;

/// The source of the items.
pub(super) enum Source {
    /// A contiguous range of a snapshot, with its approximate size as JSON in bytes.
    Range(RangeCursor, u64),
    /// Selected entries.
    Chosen(std::vec::IntoIter<Arc<Entry>>),
    /// Entries of a past revision, still to be read from the store.
    History(HistoryItems),
    /// Entries of which some must still be converted, with their approximate size as JSON in bytes.
    Converted {
        batches: Converted,
        bytes: u64,
        /// The items again, for a second pass after measuring. `None` if they cannot be read twice.
        again: Option<Converted>,
    },
}

/// Items that are converted on demand.
type Converted = BoxStream<'static, Result<Batch, ApiError>>;

impl Source {
    /// The approximate size of the items as JSON, in bytes.
    pub(super) fn size_hint(&self) -> u64 {
        match self {
            Self::Range(_, bytes) | Self::Converted { bytes, .. } => *bytes,
            Self::History(items) => items.least_bytes,
            Self::Chosen(entries) => entries.as_slice().iter().map(|entry| entry.size() as u64).sum(),
        }
    }

    /// Returns true if items at the start must be decoded before they are copied.
    pub(super) fn is_packed(&self) -> bool {
        let is_packed = |entry: &Arc<Entry>| entry.is_packed();
        match self {
            Self::Range(cursor, _) => {
                cursor.clone().next_leaf().is_some_and(|leaf| leaf.entries().iter().any(is_packed))
            }
            Self::Chosen(entries) => entries.as_slice().iter().take(CHOSEN_BLOCK).any(is_packed),
            Self::History(_) | Self::Converted { .. } => false,
        }
    }

    /// Returns true if one of the items is so large that encoding it takes long. Checks each item, so there must be
    /// few.
    pub(super) fn has_heavy(&self) -> bool {
        let is_heavy = |entry: &Arc<Entry>| entry.list_bytes() > HEAVY_BYTES;
        match self {
            Self::Range(cursor, _) => cursor.clone().any(|leaf| leaf.entries().iter().any(is_heavy)),
            Self::Chosen(entries) => entries.as_slice().iter().any(is_heavy),
            // The sizes are not known yet.
            Self::History(_) | Self::Converted { .. } => true,
        }
    }

    /// The size of the items in an encoding: the sum of what `measure` returns. Leaves cache it. `None` if the items
    /// cannot be read twice.
    ///
    /// # Errors
    /// The errors of `measure`, and 500 when an item cannot be converted.
    pub(super) async fn size_in(
        // Exclusive, since measuring consumes items that can be read only once.
        &mut self,
        form: u16,
        measure: Arc<impl Fn(&[Arc<Entry>]) -> Result<usize, ApiError> + Send + Sync + 'static>,
    ) -> Result<Option<usize>, ApiError> {
        let mut size = 0;
        if let Self::Converted { again, .. } = self {
            let Some(mut batches) = again.take() else { return Ok(None) };
            while let Some(batch) = batches.next().await.transpose()? {
                let measure = measure.clone();
                size += done(bytes_of(batch.entries()), move || measure(batch.entries())).await?;
            }
            return Ok(Some(size));
        }
        if let Self::History(items) = self {
            while let Some(page) = items.again.next().await.transpose()? {
                let measure = measure.clone();
                size += done(bytes_of(&page), move || measure(&page)).await?;
            }
            return Ok(Some(size));
        }
        match &*self {
            Self::Range(cursor, bytes) if *bytes < AHEAD_FROM_BYTES => {
                for leaf in cursor.clone() {
                    let measure = measure.clone();
                    size += done(leaf.bytes(), move || leaf.size_in(form, &*measure)).await?;
                }
            }
            Self::Range(cursor, _) => {
                let leaves = cursor.clone().map(|leaf| {
                    let measure = measure.clone();
                    (leaf.bytes(), move || leaf.size_in(form, &*measure))
                });
                let mut sizes = pin!(in_order(leaves));
                while let Some(leaf) = sizes.next().await {
                    size += leaf?;
                }
            }
            Self::Chosen(entries) => {
                let blocks: Vec<Vec<Arc<Entry>>> = entries.as_slice().chunks(CHOSEN_BLOCK).map(<[_]>::to_vec).collect();
                let blocks = blocks.into_iter().map(move |block| {
                    let measure = measure.clone();
                    (bytes_of(&block), move || measure(&block))
                });
                let mut sizes = pin!(in_order(blocks));
                while let Some(block) = sizes.next().await {
                    size += block?;
                }
            }
            Self::History(_) | Self::Converted { .. } => return Ok(None),
        }
        Ok(Some(size))
    }

    /// Collects all entries, for encodings that need them at once. The limit is about this many bytes.
    ///
    /// # Errors
    /// Failures of the source, and 413 above the limit.
    pub(super) async fn into_entries_within(mut self, most: u64) -> Result<Vec<Arc<Entry>>, ApiError> {
        let (mut collected, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = poll_fn(|context| self.poll_next(context)).await? {
            bytes += bytes_of(batch.entries());
            if bytes > most {
                return Err(ApiError::TooLarge { limit: usize::try_from(most).unwrap_or(usize::MAX) });
            }
            collected.extend_from_slice(batch.entries());
        }
        Ok(collected)
    }

    /// The next items. `None` at the end.
    ///
    /// # Errors
    /// 500 when an item cannot be converted or read.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Arc<Entry>>>, ApiError> {
        let batch = poll_fn(|context| self.poll_next(context)).await?;
        Ok(batch.map(|batch| batch.entries().to_vec()))
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Batch>, ApiError>> {
        Poll::Ready(match self {
            Self::Range(cursor, _) => Ok(cursor.next_leaf().map(Batch::Leaf)),
            Self::Chosen(entries) => {
                let block: Vec<_> = entries.by_ref().take(CHOSEN_BLOCK).collect();
                Ok((!block.is_empty()).then_some(Batch::Page(block)))
            }
            Self::History(items) => {
                ready!(items.pages.poll_next_unpin(context)).transpose().map(|page| page.map(Batch::Page))
            }
            Self::Converted { batches, .. } => ready!(batches.poll_next_unpin(context)).transpose(),
        })
    }
}

/// The size of these entries as JSON, in bytes.
pub(super) fn bytes_of(entries: &[Arc<Entry>]) -> u64 {
    entries.iter().map(|entry| entry.list_bytes()).sum()
}

/// Consecutive items.
pub(super) enum Batch {
    Leaf(LeafSlice),
    Page(Vec<Arc<Entry>>),
}

impl Batch {
    fn entries(&self) -> &[Arc<Entry>] {
        match self {
            Self::Leaf(leaf) => leaf.entries(),
            Self::Page(entries) => entries,
        }
    }
}

/// The parts of a list that are sent next.
#[derive(Default)]
struct Parts(VecDeque<Part>);

impl Parts {
    /// Appends bytes until there are `full`. Returns false if no part is left.
    ///
    /// # Errors
    /// The errors of [`LongItem::next`].
    fn write(&mut self, full: usize, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        while out.len() < full {
            match self.0.front_mut() {
                None => return Ok(false),
                Some(Part::Text(text)) => {
                    out.append(text);
                    self.0.pop_front();
                }
                Some(Part::Long(item)) => match item.next(full - out.len())? {
                    Some(piece) => out.extend_from_slice(&piece),
                    None => drop(self.0.pop_front()),
                },
            }
        }
        Ok(!self.0.is_empty())
    }

    fn push(&mut self, long: Option<LongItem>) {
        self.0.extend(long.map(Part::Long));
    }
}

/// The body of an uncompressed list.
pub(super) struct ListBody {
    /// The remaining items. `None` once the last frame is complete.
    rest: Option<(ListWriter, Source)>,
    parts: Parts,
    /// The current items, and the number of them that are written.
    batch: Option<(Batch, usize)>,
    frame: Vec<u8>,
}

impl ListBody {
    /// `start` is the beginning of the list, and `parts` have the first items if these are not in it.
    pub(super) fn new(writer: ListWriter, (start, parts): (&[u8], Vec<Part>), source: Source) -> Self {
        let mut frame = Vec::with_capacity(FRAME_BYTES + FRAME_SLACK_BYTES);
        frame.extend_from_slice(start);
        Self { rest: Some((writer, source)), parts: Parts(parts.into()), batch: None, frame }
    }

    /// Fills the frame. Returns false at the end of the list.
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        while let Some((writer, source)) = &mut self.rest {
            if self.parts.write(FRAME_BYTES, &mut self.frame)? {
                return Poll::Ready(Ok(true));
            }
            if let Some((batch, written)) = &mut self.batch {
                let entries = batch.entries();
                while *written < entries.len() {
                    if self.frame.len() >= FRAME_BYTES {
                        return Poll::Ready(Ok(true));
                    }
                    let (count, long) = writer.items(&entries[*written..], FRAME_BYTES, &mut self.frame)?;
                    *written += count;
                    self.parts.push(long);
                    if self.parts.write(FRAME_BYTES, &mut self.frame)? {
                        return Poll::Ready(Ok(true));
                    }
                }
            }
            self.batch = None;
            self.batch = ready!(source.poll_next(context))?.map(|batch| (batch, 0));
            if self.batch.is_none()
                && let Some((writer, _)) = self.rest.take()
            {
                writer.finish(&mut self.frame);
            }
        }
        Poll::Ready(Ok(false))
    }
}

impl Body for ListBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.rest.is_none() {
            return Poll::Ready(None);
        }
        let room = match ready!(this.fill(context)) {
            Ok(true) => FRAME_BYTES + FRAME_SLACK_BYTES,
            Ok(false) => 0,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        let frame = std::mem::replace(&mut this.frame, Vec::with_capacity(room));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(frame)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none()
    }
}

/// The body of a list as one gzip member.
pub(super) struct GzipListBody {
    /// The remaining items. `None` once the last frame is complete.
    rest: Option<(ListWriter, Source)>,
    member: MemberWriter,
    frame: Vec<u8>,
    /// The bytes to compress next.
    plain: Vec<u8>,
    parts: Parts,
    /// The current items, and the number of them that are written.
    batch: Option<(Batch, usize)>,
    /// A large leaf that another thread compresses.
    under_way: Option<BoxFuture<'static, LeafSlice>>,
    /// The number of bytes compressed for this frame.
    fresh: usize,
}

impl GzipListBody {
    /// `plain` is the beginning of the list, and `parts` have the first items if these are not in it.
    pub(super) fn new(writer: ListWriter, (plain, parts): (Vec<u8>, Vec<Part>), source: Source) -> Self {
        let frame = MemberWriter::header().to_vec();
        let (rest, member, parts) = (Some((writer, source)), MemberWriter::new(), Parts(parts.into()));
        Self { rest, member, frame, plain, parts, batch: None, under_way: None, fresh: 0 }
    }

    fn push(&mut self, block: &DeflateBlock) {
        self.member.push(block);
        self.frame.extend_from_slice(&block.bytes);
    }

    fn compress_plain(&mut self) {
        if !self.plain.is_empty() {
            self.fresh += self.plain.len();
            let block = DeflateBlock::compress(&self.plain, GZIP_LEVEL);
            self.plain.clear();
            self.push(&block);
        }
    }

    /// Adds some of the parts. Returns true if more of them remain.
    ///
    /// # Errors
    /// The errors of [`LongItem::next`].
    fn add_parts(&mut self) -> Result<bool, ApiError> {
        let remain = self.parts.write(FRAME_BYTES, &mut self.plain)?;
        if remain {
            self.compress_plain();
        }
        Ok(remain)
    }

    /// Adds some of the items, or a whole compressed leaf. Returns true if more items of the batch remain.
    ///
    /// # Errors
    /// 500 when one of them cannot be converted to the requested version.
    fn add(&mut self, writer: &mut ListWriter, batch: &Batch, written: &mut usize) -> Result<bool, ApiError> {
        if let Batch::Leaf(leaf) = batch
            && *written == 0
            && writer.shows_as_stored(leaf.entries())
        {
            let is_fresh = !leaf.has_block();
            if let Some(block) = leaf.block() {
                self.fresh += if is_fresh { usize::try_from(leaf.bytes()).unwrap_or(usize::MAX) } else { 0 };
                writer.before_block(&mut self.plain);
                self.compress_plain();
                self.push(block);
                return Ok(false);
            }
        }
        let entries = batch.entries();
        if *written < entries.len() {
            let (count, long) = writer.items(&entries[*written..], FRAME_BYTES, &mut self.plain)?;
            *written += count;
            self.parts.push(long);
        }
        if self.plain.len() >= FRAME_BYTES {
            self.compress_plain();
        }
        Ok(*written < entries.len())
    }

    /// The next items. `None` at the end. Another thread compresses a large leaf first.
    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Batch>, ApiError>> {
        if let Some(under_way) = &mut self.under_way {
            let leaf = ready!(under_way.poll_unpin(context));
            self.under_way = None;
            return Poll::Ready(Ok(Some(Batch::Leaf(leaf))));
        }
        let Some((writer, source)) = &mut self.rest else { return Poll::Ready(Ok(None)) };
        let batch = ready!(source.poll_next(context))?;
        match batch {
            Some(Batch::Leaf(leaf))
                if leaf.is_whole()
                    && !leaf.has_block()
                    && leaf.bytes() > HEAVY_BYTES
                    && writer.shows_as_stored(leaf.entries()) =>
            {
                let compressed = move || {
                    leaf.block();
                    leaf
                };
                self.under_way = Some(done(u64::MAX, compressed).boxed());
                self.poll_batch(context)
            }
            batch => Poll::Ready(Ok(batch)),
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

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        this.fresh = 0;
        while this.frame.len() < FRAME_BYTES && (this.frame.is_empty() || this.fresh < FRESH_BYTES) {
            if this.rest.is_none() {
                break;
            }
            match this.add_parts() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
            let (batch, mut written) = match this.batch.take() {
                Some(begun) => begun,
                None => match this.poll_batch(context) {
                    Poll::Ready(Ok(Some(batch))) => (batch, 0),
                    Poll::Ready(Ok(None)) => {
                        if let Some((writer, _)) = this.rest.take() {
                            this.end(writer);
                        }
                        break;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                    Poll::Pending => return Poll::Pending,
                },
            };
            let Some((mut writer, source)) = this.rest.take() else { break };
            match this.add(&mut writer, &batch, &mut written) {
                Ok(true) => this.batch = Some((batch, written)),
                Ok(false) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
            this.rest = Some((writer, source));
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
