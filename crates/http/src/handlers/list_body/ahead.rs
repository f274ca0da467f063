//! Encodes large lists ahead of the stream, in blocks, on all cores.
//!
//! The module is independent of forms and encodings. Blocks are sent in the order of their items. One list has at most
//! [`BLOCKS_AHEAD`] blocks in work or waiting to be sent, however large it is and however slow its client. All lists
//! together have at most one block in work for each core.
//!
//! Blocks run on threads beside those of requests, so that requests keep their part of every core. A core's permit is
//! called a share. A list that gets no share encodes its blocks in its own task, as small lists do. Only a heavy block,
//! such as one large object, waits for a share, since it would block the task's thread. When a body is dropped, its
//! pending blocks are dropped.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use hyper::body::{Body, Frame};
use keelson_cache::Entry;
use keelson_codec::{DeflateBlock, MemberWriter};
use keelson_meta::ApiError;
use keelson_supervision::outcome;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::{Batch, FRAME_BYTES, GZIP_LEVEL, Source, bytes_of};
use crate::body::BodyError;
use crate::handlers::render::{ListWriter, LongItem, Part};

/// Lists with less JSON are encoded in their own task, since moving blocks between threads would cost more for a chunk
/// of 500 pods.
pub(in crate::handlers) const AHEAD_FROM_BYTES: u64 = 4 * 1024 * 1024;
/// The approximate size of a block's stored objects. It is so large that waking a thread costs little in comparison.
pub(super) const BLOCK_BYTES: usize = 128 * 1024;
/// Work on more bytes than this is heavy: it takes several milliseconds.
pub(in crate::handlers) const HEAVY_BYTES: u64 = 256 * 1024;
/// The number of blocks of one list in work or waiting to be sent.
pub(super) const BLOCKS_AHEAD: usize = 4;

/// The shares of all lists together, one for each thread of the runtime.
static SHARES: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(tokio::runtime::Handle::current().metrics().num_workers())));

/// The next frame or block. `None` at the end.
type NextFrame<T> = Poll<Result<Option<T>, BodyError>>;

/// Work that runs on another thread, or waits for one.
type BackgroundWork<T> = BoxFuture<'static, Result<T, JoinError>>;

/// Starts the work on another thread if a share is free. Heavy work waits for a share. Other work is returned to the
/// caller.
fn begin<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(bytes: u64, work: F) -> Result<BackgroundWork<T>, F> {
    match SHARES.clone().try_acquire_owned() {
        Ok(share) => Ok(on_a_thread(share, work).boxed()),
        Err(_) if bytes > HEAVY_BYTES => Ok(async move {
            match SHARES.clone().acquire_owned().await {
                Ok(share) => on_a_thread(share, work).await,
                // The semaphore is never closed.
                Err(_) => std::future::pending().await,
            }
        }
        .boxed()),
        Err(_) => Err(work),
    }
}

fn on_a_thread<T: Send + 'static>(
    share: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> AbortOnDropHandle<T> {
    // Not a task: a runtime thread keeps the tasks that it spawns, unless another thread is idle.
    AbortOnDropHandle::new(keelson_supervision::spawn_blocking(move || {
        let _share = share;
        work()
    }))
}

/// Runs work on this many bytes: here, after other tasks had a turn, or on another thread if it is heavy.
///
/// # Panics
/// When the work does.
pub(in crate::handlers) async fn done<T: Send + 'static>(bytes: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes <= HEAVY_BYTES {
        // The future is dropped here if the client disconnects.
        tokio::task::yield_now().await;
        return work();
    }
    match begin(bytes, work) {
        Ok(under_way) => outcome(under_way).await,
        Err(work) => work(),
    }
}

/// The results of several pieces of work, each on this many bytes, in order. At most [`BLOCKS_AHEAD`] run at once.
///
/// # Panics
/// When the work does.
pub(super) fn in_order<T, F>(work: impl Iterator<Item = (u64, F)>) -> impl Stream<Item = T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    stream::iter(work).map(|(bytes, work)| beside(bytes, work)).buffered(BLOCKS_AHEAD)
}

/// Runs work on this many bytes: on another thread if a share is free or the work is heavy, and otherwise here.
///
/// # Panics
/// When the work does.
pub(super) fn beside<T: Send + 'static>(
    bytes: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> {
    match begin(bytes, work) {
        Ok(under_way) => outcome(under_way).left_future(),
        Err(work) => async move {
            // Other tasks get a turn. The future is dropped here if the client disconnects.
            tokio::task::yield_now().await;
            work()
        }
        .right_future(),
    }
}

/// The body of a list, plain or as one gzip member, whose blocks are encoded ahead of the stream.
pub(in crate::handlers) struct AheadBody {
    /// Writes the rest of the list. `None` once the last frame is complete.
    writer: Option<ListWriter>,
    entries: Entries,
    ahead: VecDeque<StartedBlock>,
    /// The bytes before the items, until they are sent.
    start: Option<Vec<u8>>,
    /// The blocks to send next.
    blocks: VecDeque<Block>,
    /// The state of the gzip member, if the list is compressed.
    member: Option<MemberWriter>,
}

/// A block that was started.
enum StartedBlock {
    UnderWay(BackgroundWork<BlockResult>),
    Made(BlockResult),
}

/// Consecutive blocks, or the error of one of their items.
type BlockResult = Result<VecDeque<Block>, ApiError>;

/// An encoded block, or an item that is encoded while it is sent.
enum Block {
    Plain(Vec<u8>),
    Deflated(DeflateBlock),
    Long(LongItem),
}

impl StartedBlock {
    fn begin(bytes: u64, work: impl FnOnce() -> BlockResult + Send + 'static) -> Self {
        match begin(bytes, work) {
            Ok(under_way) => Self::UnderWay(under_way),
            // Other lists hold all shares.
            Err(work) => Self::Made(work()),
        }
    }
}

impl AheadBody {
    /// `start` is the beginning of the list, and `parts` have the first items if these are not in it.
    pub(in crate::handlers) fn new(
        writer: ListWriter,
        (start, parts): (Vec<u8>, Vec<Part>),
        source: Source,
        gzip: bool,
    ) -> Self {
        let block_bytes = BLOCK_BYTES * writer.ease();
        Self {
            writer: Some(writer),
            entries: Entries { source: Some(source), batch: None, gathered: Vec::new(), bytes: 0, block_bytes },
            ahead: VecDeque::with_capacity(BLOCKS_AHEAD),
            start: Some(start),
            blocks: Block::all(parts, gzip),
            member: gzip.then(MemberWriter::new),
        }
    }

    /// Starts blocks until the limit is reached or no share is free.
    fn begin_blocks(&mut self, context: &mut Context<'_>) -> Result<(), BodyError> {
        while self.ahead.len() < BLOCKS_AHEAD && SHARES.available_permits() > 0 {
            let Poll::Ready(Some((bytes, work))) = self.poll_work(context)? else { break };
            self.ahead.push_back(StartedBlock::begin(bytes, work));
        }
        Ok(())
    }

    /// The next block. `None` at the end.
    fn poll_block(&mut self, context: &mut Context<'_>) -> NextFrame<Block> {
        loop {
            match self.blocks.front_mut() {
                Some(Block::Long(item)) => {
                    if let Some(piece) = item.next(FRAME_BYTES)? {
                        return Poll::Ready(Ok(Some(Block::new(piece, self.member.is_some()))));
                    }
                    self.blocks.pop_front();
                }
                Some(Block::Plain(_) | Block::Deflated(_)) => return Poll::Ready(Ok(self.blocks.pop_front())),
                None => match ready!(self.poll_blocks(context))? {
                    Some(blocks) => self.blocks = blocks,
                    None => return Poll::Ready(Ok(None)),
                },
            }
        }
    }

    /// The next blocks. `None` at the end.
    fn poll_blocks(&mut self, context: &mut Context<'_>) -> NextFrame<VecDeque<Block>> {
        self.begin_blocks(context)?;
        if self.ahead.is_empty()
            && let Some((bytes, work)) = ready!(self.poll_work(context))?
        {
            self.ahead.push_back(StartedBlock::begin(bytes, work));
        }
        let made = match self.ahead.pop_front() {
            None => return Poll::Ready(Ok(None)),
            Some(StartedBlock::Made(made)) => made,
            Some(StartedBlock::UnderWay(mut under_way)) => match under_way.poll_unpin(context) {
                Poll::Ready(made) => made.map_err(|error| BodyError::Aborted(error.to_string()))?,
                Poll::Pending => {
                    self.ahead.push_front(StartedBlock::UnderWay(under_way));
                    return Poll::Pending;
                }
            },
        };
        // The other threads work while this block is sent.
        self.begin_blocks(context)?;
        Poll::Ready(Ok(Some(made?)))
    }

    /// Polls for the work of the next block, and its bytes.
    fn poll_work(
        &mut self,
        context: &mut Context<'_>,
    ) -> NextFrame<(u64, impl FnOnce() -> BlockResult + Send + 'static + use<>)> {
        let gzip = self.member.is_some();
        let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(None)) };
        let ease = writer.ease() as u64;
        self.entries.poll_block(context).map_err(BodyError::from).map_ok(|entries| {
            let entries = entries?;
            let bytes = bytes_of(&entries) / ease;
            let items = writer.block(entries);
            Some((bytes, move || Ok(Block::all(items()?, gzip))))
        })
    }

    fn frame(&mut self, block: Block, mut before: Vec<u8>) -> Bytes {
        match block {
            Block::Plain(bytes) if before.is_empty() => bytes.into(),
            Block::Plain(bytes) => {
                before.extend_from_slice(&bytes);
                before.into()
            }
            Block::Deflated(block) => {
                if let Some(member) = &mut self.member {
                    member.push(&block);
                }
                before.extend_from_slice(&block.bytes);
                before.into()
            }
            // Only its pieces are sent.
            Block::Long(_) => before.into(),
        }
    }
}

impl Block {
    fn all(parts: Vec<Part>, gzip: bool) -> VecDeque<Self> {
        let block = |part| match part {
            Part::Text(items) => Self::new(items, gzip),
            Part::Long(item) => Self::Long(item),
        };
        parts.into_iter().map(block).collect()
    }

    fn new(items: Vec<u8>, gzip: bool) -> Self {
        if gzip { Self::Deflated(DeflateBlock::compress(&items, GZIP_LEVEL)) } else { Self::Plain(items) }
    }
}

impl Body for AheadBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let gzip = this.member.is_some();
        if let Some(start) = this.start.take() {
            let header = if gzip { MemberWriter::header().to_vec() } else { Vec::new() };
            return Poll::Ready(Some(Ok(Frame::data(this.frame(Block::new(start, gzip), header)))));
        }
        if this.writer.is_none() {
            return Poll::Ready(None);
        }
        let frame = match ready!(this.poll_block(context)) {
            Ok(Some(block)) => this.frame(block, Vec::new()),
            Ok(None) => {
                let mut end = Vec::new();
                if let Some(writer) = this.writer.take() {
                    writer.finish(&mut end);
                }
                let mut frame = this.frame(Block::new(end, gzip), Vec::new()).to_vec();
                if let Some(member) = this.member.take() {
                    frame.extend_from_slice(&member.finish());
                }
                frame.into()
            }
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.writer.is_none()
    }
}

/// Collects the entries of a source into blocks.
struct Entries {
    /// The remaining entries. `None` at the end.
    source: Option<Source>,
    /// The current items, and the number of them that are collected.
    batch: Option<(Batch, usize)>,
    gathered: Vec<Arc<Entry>>,
    /// The size of the collected items in bytes.
    bytes: usize,
    /// The size of a block in bytes.
    block_bytes: usize,
}

impl Entries {
    fn poll_block(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Vec<Arc<Entry>>>, ApiError>> {
        while let Some(source) = &mut self.source {
            if let Some((batch, taken)) = &mut self.batch {
                while let Some(entry) = batch.entries().get(*taken) {
                    if self.bytes >= self.block_bytes {
                        self.bytes = 0;
                        return Poll::Ready(Ok(Some(std::mem::take(&mut self.gathered))));
                    }
                    self.bytes += entry.size();
                    self.gathered.push(entry.clone());
                    *taken += 1;
                }
            }
            self.batch = None;
            self.batch = ready!(source.poll_next(context))?.map(|batch| (batch, 0));
            if self.batch.is_none() {
                self.source = None;
            }
        }
        let rest = std::mem::take(&mut self.gathered);
        Poll::Ready(Ok(if rest.is_empty() { None } else { Some(rest) }))
    }
}
