//! Reads all entries of some ranges, approximately in the order in which they were written.
//!
//! The scan first finds the revisions of the rows in the index alone. Then it fetches the rows by ascending revision,
//! some at a time, on all connections for ranges. Reading a range in the order of keys would instead visit every
//! version of every object, one page after the other. Many keys are divided into parts: while rows of one part are
//! fetched, the index is read for the next. Every result belongs to one snapshot, and shows if the revision was
//! readable in it.

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

/// The number of rows that one query fetches.
const PIECE_ROWS: usize = 512;
/// The number of parts of the ranges.
const PARTS: usize = 8;
/// The number of revisions whose keys are sampled, to find parts of about equal size.
const SAMPLES: u64 = 64;
/// The index is read for the next part while fewer pieces than this are pending.
const PIECES_AHEAD: usize = 32;

/// Reads the ranges on all connections for ranges.
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

/// Divides the ranges into parts with about equal numbers of rows. A single range is not divided: it belongs to a
/// collection that is added while the server runs, and nearly all of these are empty.
async fn parts(shared: &Arc<Shared>, ranges: Ranges, at: Revision) -> Result<VecDeque<Ranges>, StoreError> {
    if ranges.len() < 2 || at.get() < SAMPLES {
        return Ok(VecDeque::from([ranges]));
    }
    let samples = (1..=SAMPLES).filter_map(|number| i64::try_from(at.get() / SAMPLES * number).ok()).collect();
    let keys: Vec<StoreKey> = fetch(shared.clone(), samples, at).await?.into_iter().map(|entry| entry.key).collect();
    Ok(divide(ranges, keys, PARTS).into())
}

/// The state of a scan: the parts and rows to read.
struct Reading {
    shared: Arc<Shared>,
    at: Revision,
    /// The parts whose rows the index was not yet read for.
    parts: VecDeque<Ranges>,
    /// The revisions of rows that are not yet fetched.
    pieces: VecDeque<Vec<i64>>,
    /// The queries in flight, at most one for each connection.
    asked: FuturesUnordered<BoxFuture<'static, Result<Answer, StoreError>>>,
}

enum Answer {
    /// The revisions of the rows of a part.
    Rows(Vec<i64>),
    /// Fetched entries.
    Entries(Vec<KeyValue>),
}

impl Reading {
    /// Returns the next entries, in the order in which they arrive.
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

/// Returns the revisions of the rows to fetch for a part, ascending.
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

/// Returns the entries that were written at these revisions. Checks that revision `at` was readable meanwhile.
async fn fetch(shared: Arc<Shared>, rows: Vec<i64>, at: Revision) -> Result<Vec<KeyValue>, StoreError> {
    let asked = |session: Arc<Session>| {
        let (shared, rows) = (&shared, &rows);
        shared.believed(async move { read::rows(&session, rows).await })
    };
    let (state, entries) = shared.readers.read(asked).await?;
    // The rows and the state belong to one snapshot. If the revision is readable in this state, its rows were all
    // there.
    state.check_readable(at)?;
    Ok(entries)
}
