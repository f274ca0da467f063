//! The history as this server has read it, and the check that a database still has it.
//!
//! A failover to a replica that lacks commits, or a restore, removes changes that clients have seen. Other changes may
//! have been written in their place. So the newest changes that this server has read are its witnesses: a database that
//! lacks one of them, or is at a lower revision, has lost commits. Every session is checked before it is used
//! (`settle.rs`).
//!
//! Invariant: the published revision never decreases, also when the history is exchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::{StoreError, StoreEvent, StoreKey};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::error::QueryFault;
use super::read::State;
use super::stats::{PostgresCounters, count};
use super::timeline::Timeline;
use crate::tail::Changes;

/// The number of newest changes that a database must have.
pub(crate) const WITNESSES: usize = 32;
/// The maximum number of lost keys in a log line.
const NAMED: usize = 5;

/// The identity of a primary: its cluster, and the number of PostgreSQL's timeline, which increases with each failover.
/// Empty if the server does not report them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) cluster: String,
    pub(crate) number: i32,
}

impl Line {
    fn is_before(&self, other: &Self) -> bool {
        !self.cluster.is_empty() && self.cluster == other.cluster && self.number < other.number
    }
}

/// The newest revision that tails can read, or the error that ends them.
pub(crate) struct TailLimit {
    pub(crate) newest: Revision,
    /// The error after which tails get no more changes.
    pub(crate) failed: Option<StoreError>,
}

pub(crate) struct KnownRevisions {
    known: Mutex<DatabaseIdentity>,
    pub(crate) told: watch::Sender<TailLimit>,
    /// The highest revision that this server has read so far.
    highest: AtomicU64,
    /// The number changes whenever existing sessions must not be used any more.
    generation: AtomicU64,
    counters: Arc<PostgresCounters>,
}

struct DatabaseIdentity {
    incarnation: i64,
    /// The name of the store, which stays when the incarnation changes. None if an older release created the store.
    name: Option<String>,
    line: Line,
    timeline: Timeline,
    max_bytes: usize,
}

impl KnownRevisions {
    /// The state before anything was read.
    pub(crate) fn new(recent_bytes: usize, counters: Arc<PostgresCounters>) -> Self {
        let timeline = Timeline::new(Revision::ZERO, recent_bytes);
        Self {
            known: Mutex::new(DatabaseIdentity {
                incarnation: 0,
                name: None,
                line: Line::default(),
                timeline,
                max_bytes: recent_bytes,
            }),
            told: watch::Sender::new(TailLimit { newest: Revision::ZERO, failed: None }),
            highest: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            counters,
        }
    }

    /// The highest revision that was read so far. The result of a later read must have this revision or a higher one.
    pub(crate) fn highest(&self) -> Revision {
        Revision::new(self.highest.load(Ordering::SeqCst))
    }

    pub(crate) fn saw(&self, revision: Revision) {
        self.highest.fetch_max(revision.get(), Ordering::SeqCst);
    }

    /// The number that identifies the history.
    pub(crate) fn incarnation(&self) -> i64 {
        self.known.lock().incarnation
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Checks that a result belongs to the known history. Its revision must not be lower than `before`, the highest one
    /// before the read.
    pub(crate) fn believe(&self, before: Revision, state: State) -> Result<(), QueryFault> {
        if state.incarnation != self.incarnation() {
            return Err(QueryFault::Doubt("the database holds another history than before".to_owned()));
        }
        if state.revision < before {
            let gone_back = format!("the revision of the database fell from {before} to {}", state.revision);
            return Err(QueryFault::Doubt(gone_back));
        }
        self.saw(state.revision);
        Ok(())
    }

    /// The next range to read: see [`Timeline::gap`].
    pub(crate) fn gap(&self) -> (Revision, Option<Revision>) {
        self.known.lock().timeline.gap()
    }

    /// The newest revision that tails can read.
    pub(crate) fn newest(&self) -> Revision {
        self.known.lock().timeline.newest()
    }

    /// Changes from memory: see [`Timeline::between`].
    pub(crate) fn between(&self, after: Revision, until: Revision) -> Option<Changes> {
        self.known.lock().timeline.between(after, until)
    }

    /// Changes the timeline, and wakes the tails if there are new changes.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut Timeline)) {
        let mut known = self.known.lock();
        change(&mut known.timeline);
        let newest = known.timeline.newest();
        // ORDER: the revision is published before the timeline is unlocked, so that the published revision never
        // decreases.
        self.told.send_if_modified(|told| std::mem::replace(&mut told.newest, newest) != newest);
    }

    /// Ends all tails.
    pub(crate) fn fail(&self, error: StoreError) {
        self.told.send_modify(|told| told.failed = Some(error));
    }

    /// The content that the known database must have.
    pub(crate) fn expected(&self) -> KnownContent {
        let known = self.known.lock();
        // ORDER: this runs before the query to the database. Its result may lack changes that this server reads
        // meanwhile.
        let (highest, newest) = (self.highest(), known.timeline.newest_events(WITNESSES));
        let (incarnation, name, line) = (known.incarnation, known.name.clone(), known.line.clone());
        drop(known);
        KnownContent { incarnation, name, line, highest, witnesses: newest.into_iter().map(Witness::from).collect() }
    }

    /// Records that the database is the known one, perhaps on another server. Returns the generation of sessions with
    /// it. `None` if another thread has changed the known history meanwhile.
    pub(crate) fn stand(&self, expected: &KnownContent, line: &Line) -> Option<u64> {
        let mut known = self.known.lock();
        if known.incarnation != expected.incarnation || line.is_before(&known.line) {
            return None;
        }
        if known.line.is_before(line) {
            // Sessions with the previous primary return outdated results.
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        if !line.cluster.is_empty() {
            known.line = line.clone();
        }
        Some(self.generation())
    }

    /// Changes to another history. `begin` and `changes` are its newest changes, which are the witnesses from now on.
    /// Returns the same as [`KnownRevisions::stand`].
    pub(crate) fn adopt(
        &self,
        expected: &KnownContent,
        found: &DatabaseContent,
        begin: Revision,
        changes: Changes,
    ) -> Option<u64> {
        let mut known = self.known.lock();
        if known.incarnation != expected.incarnation {
            return None;
        }
        let (events, reached) = changes;
        let mut timeline = Timeline::new(begin, known.max_bytes);
        timeline.add_read(begin, events, reached);
        let newest = timeline.newest();
        known.timeline = timeline;
        known.incarnation = found.state.incarnation;
        if found.name.is_some() {
            known.name.clone_from(&found.name);
        }
        known.line = found.line.clone();
        self.saw(found.state.revision);
        if expected.highest > Revision::ZERO {
            count(&self.counters.exchanges);
            tracing::warn!(revision = %found.state.revision, "the database holds another history; going over to it");
        }
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        // ORDER: as in `tell`.
        self.told.send_modify(|told| told.newest = newest);
        Some(generation)
    }
}

/// A change with a digest of its value, so that comparisons are small even for large values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) key: StoreKey,
    pub(crate) revision: Revision,
    /// SHA-256 of the value. None for a delete.
    pub(crate) digest: Option<Bytes>,
}

impl From<StoreEvent> for Witness {
    fn from(event: StoreEvent) -> Self {
        let digest = event.value.map(|value| Bytes::copy_from_slice(&Sha256::digest(&value)));
        Self { key: event.key, revision: event.revision, digest }
    }
}

/// The content that the known database must have.
pub(crate) struct KnownContent {
    pub(crate) incarnation: i64,
    pub(crate) name: Option<String>,
    pub(crate) line: Line,
    pub(crate) highest: Revision,
    /// The newest changes, ascending.
    pub(crate) witnesses: Vec<Witness>,
}

/// The content that a database has.
pub(crate) struct DatabaseContent {
    pub(crate) state: State,
    pub(crate) line: Line,
    pub(crate) name: Option<String>,
    /// The changes at the revisions of the witnesses.
    pub(crate) rows: Vec<Witness>,
}

/// The result of comparing a database with the expected content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The database has the known history.
    Same,
    /// The database has another history, which begins above all revisions that this server has read.
    Another,
    /// The database lacks changes that this server has read, and its history does not begin above them. Holds the loss
    /// for the log.
    Lost(Loss),
    /// The server is a primary from before the last failover.
    Outdated,
    /// The database has another store.
    Foreign,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The highest revision that this server has read.
    pub(crate) seen: Revision,
    /// The highest revision of the database.
    pub(crate) has: Revision,
    /// Up to this revision, the database is as this server has read it. Zero if no change proves this.
    pub(crate) common: Revision,
    /// Some keys whose changes are missing.
    pub(crate) keys: Vec<String>,
}

impl KnownContent {
    pub(crate) fn judge(&self, found: &DatabaseContent) -> Verdict {
        let state = found.state;
        if self.name.is_some() && found.name.is_some() && self.name != found.name {
            return Verdict::Foreign;
        }
        let differs = state.incarnation != self.incarnation;
        if differs && (self.highest == Revision::ZERO || state.oldest > self.highest) {
            return Verdict::Another;
        }
        if found.line.is_before(&self.line) {
            return Verdict::Outdated;
        }
        let lost: Vec<&Witness> = self.witnesses.iter().filter(|witness| found.lacks(witness)).collect();
        if !differs && state.revision >= self.highest && lost.is_empty() {
            return Verdict::Same;
        }
        let first_lost = lost.first().map(|lost| lost.revision);
        let before = self.witnesses.iter().take_while(|witness| Some(witness.revision) != first_lost);
        let common = before.filter(|witness| found.rows.contains(witness)).last();
        if common.is_none() && self.name.is_some() && found.name.is_none() {
            return Verdict::Foreign;
        }
        Verdict::Lost(Loss {
            seen: self.highest,
            has: state.revision,
            common: common.map_or(Revision::ZERO, |common| common.revision),
            keys: lost.iter().take(NAMED).map(|lost| lost.key.as_str().to_owned()).collect(),
        })
    }
}

impl DatabaseContent {
    /// Returns true if a change that this server has read is missing or replaced. Compaction may have deleted a
    /// superseded version up to the oldest revision, or a delete at that revision.
    fn lacks(&self, witness: &Witness) -> bool {
        match self.rows.iter().find(|row| row.revision == witness.revision) {
            Some(row) => row != witness,
            None if witness.revision == self.state.oldest => witness.digest.is_some(),
            None => witness.revision > self.state.oldest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(revision: u64, value: &'static str) -> Witness {
        let value = Some(Bytes::from_static(value.as_bytes()));
        StoreEvent::new(StoreKey::new(format!("k{revision}")), Revision::new(revision), value).into()
    }

    fn expected() -> KnownContent {
        let witnesses = vec![put(8, "a"), put(9, "b")];
        KnownContent { incarnation: 1, name: None, line: line(2), highest: Revision::new(10), witnesses }
    }

    fn line(number: i32) -> Line {
        Line { cluster: "c".to_owned(), number }
    }

    fn content(incarnation: i64, (revision, oldest): (u64, u64), rows: Vec<Witness>) -> DatabaseContent {
        let state = State { incarnation, revision: Revision::new(revision), oldest: Revision::new(oldest) };
        DatabaseContent { state, line: line(2), name: None, rows }
    }

    fn check(found: &DatabaseContent, verdict: Option<&Verdict>) {
        let given = expected().judge(found);
        match verdict {
            Some(verdict) => assert_eq!(&given, verdict),
            None => assert!(matches!(given, Verdict::Lost(_)), "{given:?}"),
        }
    }

    #[test]
    fn a_database_is_the_same_if_it_has_all_that_was_seen() {
        let both = || vec![put(8, "a"), put(9, "b")];
        check(&content(1, (10, 0), both()), Some(&Verdict::Same));
        check(&content(1, (90, 0), both()), Some(&Verdict::Same));
        // Compaction deletes unreadable rows.
        check(&content(1, (90, 9), vec![put(9, "b")]), Some(&Verdict::Same));
        check(&content(1, (90, 60), vec![]), Some(&Verdict::Same));
        // A delete at the oldest revision has no row after compaction.
        let (mut deleted, mut highest) = (put(9, ""), expected());
        deleted.digest = None;
        highest.witnesses[1] = deleted;
        assert_eq!(highest.judge(&content(1, (90, 9), vec![])), Verdict::Same);
    }

    #[test]
    fn a_database_that_lacks_or_replaced_something_is_another() {
        let both = || vec![put(8, "a"), put(9, "b")];
        check(&content(1, (9, 0), both()), None);
        check(&content(1, (90, 0), vec![put(8, "a"), put(9, "c")]), None);
        check(&content(1, (90, 0), vec![put(8, "a")]), None);
        check(&content(1, (90, 8), vec![put(8, "z"), put(9, "b")]), None);
        // The row that is the newest of its key at the oldest revision is readable, so compaction keeps it.
        check(&content(1, (90, 9), vec![put(8, "a")]), None);
        // Another history is accepted only if it begins above all revisions that this server has read.
        check(&content(2, (90, 10), both()), None);
        check(&content(2, (90, 11), vec![]), Some(&Verdict::Another));
    }

    #[test]
    fn a_loss_begins_after_the_last_common_revision() {
        let common = |found: &DatabaseContent| match expected().judge(found) {
            Verdict::Lost(loss) => loss.common.get(),
            other => panic!("{other:?}"),
        };
        assert_eq!(common(&content(1, (90, 0), vec![put(8, "a"), put(9, "c")])), 8);
        assert_eq!(common(&content(1, (9, 0), vec![put(8, "a"), put(9, "b")])), 9);
        // Equal rows after the first different one prove nothing, and neither do compacted ones.
        assert_eq!(common(&content(1, (90, 0), vec![put(8, "z"), put(9, "b")])), 0);
        assert_eq!(common(&content(1, (90, 8), vec![put(9, "c")])), 0);
    }

    #[test]
    fn a_store_of_another_name_is_rejected() {
        let named = |name: Option<&str>| name.map(str::to_owned);
        let mut known = expected();
        known.name = named(Some("one"));
        for (name, found, verdict) in [
            (Some("one"), content(1, (10, 0), vec![put(8, "a"), put(9, "b")]), Some(Verdict::Same)),
            (Some("two"), content(1, (10, 0), vec![put(8, "a"), put(9, "b")]), Some(Verdict::Foreign)),
            (Some("two"), content(2, (90, 11), vec![]), Some(Verdict::Foreign)),
            // A backup from an older release has no name. It must have a known change, or begin above all known
            // revisions.
            (None, content(1, (9, 0), vec![]), Some(Verdict::Foreign)),
            (None, content(1, (9, 0), vec![put(8, "a")]), None),
            (None, content(2, (90, 11), vec![]), Some(Verdict::Another)),
        ] {
            let given = known.judge(&DatabaseContent { name: named(name), ..found });
            match verdict {
                Some(verdict) => assert_eq!(given, verdict, "{name:?}"),
                None => assert!(matches!(given, Verdict::Lost(_)), "{given:?}"),
            }
        }
    }

    #[test]
    fn an_earlier_primary_is_rejected() {
        let mut old = content(1, (90, 0), vec![put(8, "a"), put(9, "b")]);
        old.line = line(1);
        check(&old, Some(&Verdict::Outdated));
        // Timeline numbers of different clusters can't be compared, and neither can missing ones.
        old.line.cluster = "d".to_owned();
        check(&old, Some(&Verdict::Same));
        old.line = Line::default();
        check(&old, Some(&Verdict::Same));
    }
}
