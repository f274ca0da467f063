//! The conformance suite of storage engines: the rules that the server relies on, one function each.
//!
//! The name of a test for an invariant of the design starts with the number of the invariant. Engines may differ in
//! three points, so no test relies on them: consecutive revisions, distinct revisions within a transaction, and passing
//! time.
//!
//! An engine runs the suite with one line, `keelson_storage::conformance_tests!(MyFactory::new());`, which creates one
//! test per case, or with [`run`].

// A failed case panics.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use keelson_meta::Revision;

use crate::key::StoreKey;
use crate::store::{RangePage, RangeRequest, Store, StoreError, StoreEvent, Tail, Transaction};

pub mod compaction;
pub mod expiry;
pub mod model;
pub mod ranges;
pub mod restart;
pub mod tails;
pub mod transactions;

/// Opens the store of one case.
pub trait Factory: Send {
    /// Opens the store. The first call opens an empty store, later calls the same store with its contents. The caller
    /// has dropped all earlier handles.
    fn open(&mut self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// Returns true if the contents survive reopening. Cases about restarts are skipped otherwise.
    fn survives_reopening(&self) -> bool {
        true
    }
}

/// Calls a macro with the list of all cases: `callback! { (arguments) module: [case, ...], ... }`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_conformance_case {
    ($callback:path, $arguments:tt) => {
        $callback! {
            $arguments
            transactions: [
                a_failing_compare_returns_the_current_value_and_writes_nothing,
                compares_hold_for_written_and_unwritten_keys,
                a_transaction_without_writes_checks_its_compares,
                every_write_reports_its_revision,
                deleting_an_absent_key_does_nothing,
                a_deleted_key_can_be_created_again,
                values_come_back_byte_for_byte,
                readers_never_see_half_a_transaction,
                inv15_a_read_sees_every_acknowledged_write,
                inv16_revisions_become_visible_in_order,
                inv19_of_concurrent_updates_exactly_one_succeeds,
            ],
            ranges: [
                inv08_keys_are_ordered_by_their_bytes,
                a_limit_cuts_and_says_whether_more_follows,
                a_count_is_the_length_of_the_range,
                a_range_is_read_at_its_revision,
                a_scan_finds_what_ranges_find,
                a_future_revision_is_refused,
                an_empty_store_has_a_revision,
                inv01_chunks_at_one_revision_equal_the_whole,
            ],
            tails: [
                a_tail_gives_history_and_then_what_is_committed,
                a_tail_from_the_newest_revision_gives_only_new_changes,
                a_tail_from_the_future_is_refused,
                a_long_history_is_delivered_whole,
                a_tail_that_is_not_polled_catches_up,
                tails_started_under_load_have_no_gap_and_no_repeat,
            ],
            compaction: [
                inv20_compaction_never_changes_a_readable_result,
                compacting_again_or_lower_does_nothing,
                compacting_the_future_is_refused,
                inv17_compacting_everything_keeps_the_revision,
                compaction_under_writers_changes_nothing_readable,
            ],
            expiry: [
                keys_end_at_their_time_as_ordinary_deletes,
                a_rewrite_decides_anew_when_a_key_ends,
            ],
            restart: [
                everything_survives_a_restart,
                inv17_revisions_do_not_decrease_over_a_restart,
                expiries_survive_a_restart,
            ],
            model: [
                random_operations_match_the_model,
            ],
        }
    };
}

/// Creates one `#[tokio::test]` per case. The argument is an expression for a fresh [`Factory`].
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        $crate::for_each_conformance_case!($crate::conformance_tests, ($factory));
    };
    (($factory:expr) $($module:ident: [$($case:ident,)*],)*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::conformance::$module::$case(&mut $factory).await;
            }
        )*)*
    };
}

macro_rules! run_all {
    (($make:ident) $($module:ident: [$($case:ident,)*],)*) => {
        $($($module::$case(&mut $make()).await;)*)*
    };
}

/// Runs every case, each on a new store. Panics at the first failure. Needs a Tokio runtime.
pub async fn run<F: Factory>(mut make: impl FnMut() -> F) {
    for_each_conformance_case!(run_all, (make));
}

/// The key prefix of the cases.
const PREFIX: &str = "/registry/conformance/";

fn key(relative: &str) -> StoreKey {
    StoreKey::new(format!("{PREFIX}{relative}"))
}

fn put(relative: &str, value: &str) -> Transaction {
    Transaction::default().put(key(relative), value.to_owned())
}

fn delete(relative: &str) -> Transaction {
    Transaction::default().delete(key(relative))
}

/// Commits a transaction that must succeed; returns its last revision.
async fn commit(store: &dyn Store, transaction: Transaction) -> Revision {
    let committed = store.commit(transaction).await.expect("nothing speaks against this transaction");
    *committed.revisions.last().expect("the transaction writes")
}

/// A request for all keys under the prefix.
fn everything(revision: Option<Revision>) -> RangeRequest {
    RangeRequest { from: key(""), to: StoreKey::prefix_end(PREFIX), revision, limit: None }
}

async fn read(store: &dyn Store, revision: Option<Revision>) -> RangePage {
    store.range(everything(revision)).await.expect("the revision is readable")
}

/// Returns the relative key and the value of each entry.
fn texts(page: &RangePage) -> Vec<(String, String)> {
    page.entries.iter().map(|entry| (relative(&entry.key), text(&entry.value))).collect()
}

fn relative(key: &StoreKey) -> String {
    key.as_str().strip_prefix(PREFIX).expect("only keys under the prefix are written").to_owned()
}

fn text(value: &Bytes) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Reads a tail up to a revision and checks the rules of every batch.
async fn drain(tail: &mut Tail, after: Revision, until: Revision) -> Vec<StoreEvent> {
    let mut events: Vec<StoreEvent> = Vec::new();
    let mut watermark = after;
    let mut newest = after;
    while watermark < until {
        let batch = tail.next().await.expect("a tail ends only with an error").expect("the tail is readable");
        assert!(batch.watermark >= watermark, "the watermark went back from {watermark} to {}", batch.watermark);
        if let Some(first) = batch.events.first() {
            assert!(first.revision > newest, "{} comes after a batch that ended at {newest}", first.revision);
            assert!(first.revision > watermark, "{} is not above the watermark {watermark}", first.revision);
        }
        for event in &batch.events {
            assert!(event.revision >= newest, "{} comes after {newest}", event.revision);
            assert!(event.revision <= batch.watermark, "{} is above its batch's watermark", event.revision);
            newest = event.revision;
        }
        watermark = batch.watermark;
        events.extend(batch.events);
    }
    events
}

/// Returns the relative key and the value of each event.
fn changes(events: &[StoreEvent]) -> Vec<(String, Option<String>)> {
    events.iter().map(|event| (relative(&event.key), event.value.as_ref().map(text))).collect()
}

#[track_caller]
fn assert_compacted<T>(result: Result<T, StoreError>, wanted: Revision, oldest_wanted: Revision) {
    match result {
        Err(StoreError::Compacted { requested, oldest }) => assert_eq!((requested, oldest), (wanted, oldest_wanted)),
        Err(other) => panic!("revision {wanted} should be compacted, not: {other}"),
        Ok(_) => panic!("revision {wanted} should be compacted"),
    }
}

#[track_caller]
fn assert_future<T>(result: Result<T, StoreError>, wanted: Revision) {
    match result {
        Err(StoreError::Future { requested, current }) => assert!(requested == wanted && current < wanted),
        Err(other) => panic!("revision {wanted} should be in the future, not: {other}"),
        Ok(_) => panic!("revision {wanted} should be in the future"),
    }
}
