//! Groups: the number of selected objects with each value.
//!
//! The view of such a query sorts the objects by value, so that a group is counted without reading its objects.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use keelson_cache::{Entry, Position, View};
use keelson_meta::json::{Value as Json, about_bytes};
use keelson_meta::{ApiError, Revision};
use keelson_query::Value;
use tokio::task::yield_now;

use super::turns::Turns;
use super::{FailedEvaluations, PlannedQuery, QueryEvaluator, SelectedSnapshot};

/// The number of groups without a limit.
const DEFAULT_LIMIT: usize = 100;
/// The largest number of groups.
const MAX_LIMIT: usize = 1000;
/// The largest size of the values of a result, in bytes. A value has up to the size of an object.
const VALUES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The number of groups that are counted before the task yields.
pub(super) const COUNTED_AT_ONCE: usize = 256;

/// The number of objects of each value.
pub struct Groups {
    /// The revision of the snapshot.
    pub revision: Revision,
    /// The largest groups. Groups of one size are sorted by value.
    pub groups: Vec<Group>,
    /// The number of groups.
    pub total: usize,
    /// The number of scanned objects.
    pub looked_at: usize,
    /// The objects for which the condition has no value.
    pub failures: FailedEvaluations,
}

/// The objects that have one value.
#[derive(Debug, PartialEq)]
pub struct Group {
    /// The value; `None` for the objects that have none.
    pub value: Option<Json>,
    /// The number of objects.
    pub count: usize,
}

impl Groups {
    pub(super) fn empty(revision: Revision) -> Self {
        Self { revision, groups: Vec::new(), total: 0, looked_at: 0, failures: FailedEvaluations::default() }
    }
}

/// A counted group: its size, its place in the view, and the key of one object. Larger groups come first, and groups of
/// one size by place.
type GroupCount = (Reverse<usize>, Vec<u8>, String);

/// Counts the groups of a view. Only those in the result are kept.
///
/// # Errors
/// 400 when their values are too large.
pub(super) async fn count(query: &PlannedQuery, view: &View, looked_at: usize) -> Result<Groups, ApiError> {
    let limit = query.plan.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    let mut largest: BinaryHeap<GroupCount> = BinaryHeap::new();
    let (mut rank, mut total) = (0, 0_usize);
    while let Some(Position { place, key }) = view.positions(rank, rank + 1).next_position() {
        let behind = view.rank_behind_place(place);
        largest.push((Reverse(behind - rank), place.to_vec(), key.to_owned()));
        if largest.len() > limit {
            largest.pop();
        }
        rank = behind;
        total += 1;
        if total.is_multiple_of(COUNTED_AT_ONCE) {
            yield_now().await;
        }
    }
    let mut turns = Turns::new(&query.sought.wanted);
    let (mut groups, mut bytes) = (Vec::with_capacity(largest.len()), 0);
    for (Reverse(count), place, key) in largest.into_sorted_vec() {
        let missing = || ApiError::Internal(format!("{key:?} stands in a view of a snapshot that it is not in"));
        let entry = query.sought.snapshot.get(&key).ok_or_else(missing)?;
        let value = turns.look(entry, move |wanted, entry| value_at(wanted, entry, &place)).await;
        bytes += value.as_ref().map_or(0, about_bytes);
        if is_too_large(bytes) {
            return Err(too_large("groupBy", "values"));
        }
        groups.push(Group { value, count });
    }
    let SelectedSnapshot { snapshot, wanted, .. } = &query.sought;
    Ok(Groups { revision: snapshot.revision, groups, total, looked_at, failures: wanted.failures(view) })
}

/// The error of a result that is one document, and has too much text.
pub(super) fn too_large(parameter: &str, what: &str) -> ApiError {
    let most = VALUES_BYTES_MAX >> 20;
    ApiError::BadRequest(format!("keelson.io/{parameter}: the {what} have over {most} MiB: request fewer with limit"))
}

/// Returns true for more text than one document may have.
pub(super) const fn is_too_large(bytes: usize) -> bool {
    bytes > VALUES_BYTES_MAX
}

/// The value of a group, read from one of its objects.
pub(super) fn value_at(wanted: &QueryEvaluator, entry: &Entry, place: &[u8]) -> Option<Json> {
    wanted.look(entry, |subject| {
        wanted.query.value_at(subject, place).map(|value| match value {
            Value::Bool(value) => Json::from(value),
            Value::Number(number) => {
                keelson_codec::json::parse(number.as_bytes()).map_or(Json::Null, |parsed| parsed.value)
            }
            Value::Text(text) => Json::from(text.into_owned()),
        })
    })
}
