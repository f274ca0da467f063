//! Reading all there is of some ranges, about in the order in which it was written.
//!
//! The index alone says which rows that takes; they are then fetched by ascending revision, some at a time, on as many
//! connections as there are for ranges. A range in the order of the keys would go over every version of every object instead,
//! one page after the other. Many keys are divided into parts: while the rows of one are fetched, the index is asked for the
//! next. Every answer is of one moment, and says whether the revision could be read in it.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, Scan, ScanRequest, StoreError, StoreKey};

use super::read;
use super::session::Session;
use super::store::Shared;
use crate::ranges::{Ranges, divide};

/// The number of rows fetched at once.
const PIECE_ROWS: usize = 512;
/// Into how many parts the ranges are divided.
const PARTS: usize = 8;
/// The number of revisions sampled for their keys, to find parts of about equal size.
const SAMPLES: u64 = 64;
/// The index is asked for more as long as fewer pieces than this are known.
const PIECES_AHEAD: usize = 32;

/// Reads the ranges on all connections that are for ranges.
pub(super) fn stream(shared: Arc<Shared>, request: ScanRequest) -> Scan {
    let ScanRequest { ranges, revision } = request;
    let reading = async move {
        shared.loss.check()?;
        let parts = parts(&shared, ranges, revision).await?;
        let reading = Reading { shared, at: revision, parts, pieces: VecDeque::new(), asked: FuturesUnordered::new() };
        Ok::<_, StoreError>(stream::try_unfold(reading, Reading::next))
    };
    stream::once(reading).try_flatten().boxed()
}

/// The ranges in parts of about as many rows. One range alone is that of a collection that has come while the server runs, which is
/// nearly always empty.
async fn parts(shared: &Arc<Shared>, ranges: Ranges, at: Revision) -> Result<VecDeque<Ranges>, StoreError> {
    if ranges.len() < 2 || at.get() < SAMPLES {
        return Ok(VecDeque::from([ranges]));
    }
    let samples = (1..=SAMPLES).filter_map(|number| i64::try_from(at.get() / SAMPLES * number).ok()).collect();
    let keys: Vec<StoreKey> = fetch(shared.clone(), samples, at).await?.into_iter().map(|entry| entry.key).collect();
    Ok(divide(ranges, keys, PARTS).into())
}

/// The rest to read.
struct Reading {
    shared: Arc<Shared>,
    at: Revision,
    /// Of which the index was not asked yet.
    parts: VecDeque<Ranges>,
    /// Rows that were not asked for yet.
    pieces: VecDeque<Vec<i64>>,
    /// The queries in flight, at most one for each connection.
    asked: FuturesUnordered<BoxFuture<'static, Result<Answer, StoreError>>>,
}

enum Answer {
    /// Which rows a part takes.
    Rows(Vec<i64>),
    /// The entries of a part.
    Entries(Vec<KeyValue>),
}

impl Reading {
    /// The next entries, in the order in which they come.
    async fn next(mut self) -> Result<Option<(Vec<KeyValue>, Self)>, StoreError> {
        loop {
            while self.asked.len() < self.shared.readers.size {
                let (shared, at) = (self.shared.clone(), self.at);
                let next = if self.pieces.len() < PIECES_AHEAD { self.parts.pop_front() } else { None };
                match next {
                    Some(part) => self.asked.push(newest(shared, part, at).map(|rows| rows.map(Answer::Rows)).boxed()),
                    None => match self.pieces.pop_front() {
                        Some(piece) => {
                            let entries = fetch(shared, piece, at).map(|entries| entries.map(Answer::Entries));
                            self.asked.push(entries.boxed());
                        }
                        None => break,
                    },
                }
            }
            match self.asked.try_next().await? {
                Some(Answer::Entries(entries)) => return Ok(Some((entries, self))),
                Some(Answer::Rows(rows)) => self.pieces.extend(rows.chunks(PIECE_ROWS).map(<[i64]>::to_vec)),
                None => return Ok(None),
            }
        }
    }
}

/// The revisions that show a part, ascending.
async fn newest(shared: Arc<Shared>, part: Ranges, at: Revision) -> Result<Vec<i64>, StoreError> {
    let asked = |session: Arc<Session>| {
        let (shared, part) = (&shared, &part);
        shared.believed(async move { read::newest(&session, part, at).await })
    };
    let (state, mut newest) = shared.readers.read(asked).await?;
    state.check_readable(at)?;
    newest.sort_unstable();
    Ok(newest)
}

/// The entries that these revisions have written and that are there at one revision.
async fn fetch(shared: Arc<Shared>, rows: Vec<i64>, at: Revision) -> Result<Vec<KeyValue>, StoreError> {
    let asked = |session: Arc<Session>| {
        let (shared, rows) = (&shared, &rows);
        shared.believed(async move { read::rows(&session, rows).await })
    };
    let (state, entries) = shared.readers.read(asked).await?;
    // The rows are of the same moment as the state: what it allows to be read was there.
    state.check_readable(at)?;
    Ok(entries)
}
