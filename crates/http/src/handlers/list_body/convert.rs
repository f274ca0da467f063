//! Converts the items of a list to the requested version before they are encoded.
//!
//! Items are converted in blocks, a few of them ahead of the stream. Leaves that need no conversion pass unchanged. The
//! first block is converted before the response's status is sent, so that a failure becomes a `Status`. So is a whole
//! chunk of usual length, if it is small enough to keep in memory.
//!
//! A later failure breaks the body, which no client takes for a complete list. A list that is measured first is
//! converted twice, a few blocks at a time, so that it need not be kept in memory.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use keelson_cache::{Entry, RangeCursor};
use keelson_meta::ApiError;
use keelson_registry::{BATCH_BYTES, BATCH_OBJECTS, HistoryItems, VersionedView};

use super::ahead::{BLOCK_BYTES, BLOCKS_AHEAD, beside};
use super::{Batch, Converted, Source, bytes_of};

/// The number of concurrent calls to the converter of one list.
const CALLS_AHEAD: usize = 2;
/// A list of at most this many items, a usual chunk, is converted before the response's status is sent.
const WHOLE_OBJECTS: usize = BATCH_OBJECTS;
/// The maximum size of converted objects that are kept before the status is sent. The rest is converted while it is
/// sent.
const WHOLE_BYTES: u64 = 8 << 20;

/// Converts the items to the version of the view. `measured` is true if they are measured before they are sent.
///
/// # Errors
/// 500 when one of the first items cannot be converted.
pub(in crate::handlers) async fn converted(
    source: Source,
    view: &VersionedView,
    measured: bool,
) -> Result<Source, ApiError> {
    let fits = match &source {
        Source::Chosen(entries) => entries.as_slice().iter().all(|entry| view.fits_entry(entry)),
        // Leaves cache their sizes, so checking each of them pays off.
        Source::Range(cursor, _) if measured => all_fit(cursor.clone(), view).await,
        Source::Range(..) | Source::History(_) | Source::Converted { .. } => false,
    };
    if fits {
        return Ok(source);
    }
    let bytes = source.size_hint();
    let wanted = match &source {
        Source::Range(cursor, _) => cursor.remaining(),
        Source::Chosen(entries) => entries.len(),
        Source::History(_) | Source::Converted { .. } => usize::MAX,
    };
    let wanted = if wanted <= WHOLE_OBJECTS { wanted } else { 1 };
    let again = match &source {
        // A conversion webhook may return another result the next time.
        _ if !measured || view.asks() => None,
        Source::Range(cursor, bytes) => Some(Source::Range(cursor.clone(), *bytes)),
        Source::Chosen(entries) => Some(Source::Chosen(entries.clone())),
        Source::History(_) | Source::Converted { .. } => None,
    };
    let (source, again) = match source {
        // A past revision can be read again.
        Source::History(items) if measured && !view.asks() => {
            let read = |pages| HistoryItems { pages, again: stream::empty().boxed(), least_bytes: items.least_bytes };
            (Source::History(read(items.pages)), Some(Source::History(read(items.again))))
        }
        source => (source, again),
    };
    let again = again.map(|source| batches_of(source, view));
    let mut batches = batches_of(source, view);
    let (mut first, mut count, mut kept) = (Vec::new(), 0, 0);
    while count < wanted
        && kept < WHOLE_BYTES
        && let Some(batch) = batches.try_next().await?
    {
        count += batch.entries().len();
        kept += bytes_of(batch.entries());
        first.push(Ok(batch));
    }
    Ok(Source::Converted { batches: stream::iter(first).chain(batches).boxed(), bytes, again })
}

/// The items of a source, converted on demand and a few blocks ahead.
fn batches_of(source: Source, view: &VersionedView) -> Converted {
    let ahead = if view.asks() { CALLS_AHEAD } else { BLOCKS_AHEAD };
    let blocks = Blocks { source: Some(source), view: view.clone(), gathered: VecDeque::new(), bytes: 0, behind: None };
    let blocks = stream::try_unfold(blocks, async |mut blocks| Ok(blocks.next().await?.map(|block| (block, blocks))));
    let view = view.clone();
    blocks.map_ok(move |block| convert(block, view.clone())).try_buffered(ahead).boxed()
}

async fn all_fit(cursor: RangeCursor, view: &VersionedView) -> bool {
    for leaf in cursor {
        if !leaf.entries().iter().all(|entry| view.fits_entry(entry)) {
            return false;
        }
        // Other tasks get a turn. The future is dropped here if the client disconnects.
        tokio::task::yield_now().await;
    }
    true
}

/// Consecutive items.
enum Block {
    /// Items that all have the requested version.
    Fitting(Batch),
    /// Items of which some need conversion.
    Foreign(Vec<Arc<Entry>>),
}

async fn convert(block: Block, view: VersionedView) -> Result<Batch, ApiError> {
    let entries = match block {
        Block::Fitting(batch) => return Ok(batch),
        Block::Foreign(entries) if view.asks() => view.show_all(entries).await?,
        Block::Foreign(entries) => beside(bytes_of(&entries), move || view.show_all_now(entries)).await?,
    };
    Ok(Batch::Page(entries))
}

/// Divides a source into blocks.
struct Blocks {
    /// The remaining entries. `None` at the end.
    source: Option<Source>,
    view: VersionedView,
    /// Items for the next blocks. Some need conversion.
    gathered: VecDeque<Arc<Entry>>,
    /// Their size in bytes.
    bytes: usize,
    /// Items without need for conversion that follow the collected ones.
    behind: Option<Batch>,
}

impl Blocks {
    async fn next(&mut self) -> Result<Option<Block>, ApiError> {
        while self.behind.is_none()
            && !self.is_full()
            && let Some(source) = &mut self.source
        {
            match poll_fn(|context| source.poll_next(context)).await? {
                None => self.source = None,
                Some(batch @ Batch::Leaf(_)) if self.fits(&batch) => self.behind = Some(batch),
                Some(batch) => {
                    self.bytes += batch.entries().iter().map(|entry| size(entry)).sum::<usize>();
                    self.gathered.extend(batch.entries().iter().cloned());
                }
            }
        }
        if self.gathered.is_empty() {
            return Ok(self.behind.take().map(Block::Fitting));
        }
        Ok(Some(Block::Foreign(self.cut())))
    }

    fn fits(&self, batch: &Batch) -> bool {
        batch.entries().iter().all(|entry| self.view.fits_entry(entry))
    }

    /// The maximum number of objects and of bytes in a block.
    fn limits(&self) -> (usize, usize) {
        if self.view.asks() { (BATCH_OBJECTS, BATCH_BYTES) } else { (usize::MAX, BLOCK_BYTES) }
    }

    fn is_full(&self) -> bool {
        let (objects, bytes) = self.limits();
        self.gathered.len() >= objects || self.bytes >= bytes
    }

    fn cut(&mut self) -> Vec<Arc<Entry>> {
        let (objects, most) = self.limits();
        let (mut block, mut bytes) = (Vec::new(), 0);
        while block.len() < objects
            && let Some(entry) = self.gathered.pop_front_if(|next| bytes == 0 || bytes + size(next) <= most)
        {
            bytes += size(&entry);
            block.push(entry);
        }
        self.bytes -= bytes;
        block
    }
}

fn size(entry: &Entry) -> usize {
    entry.size()
}
