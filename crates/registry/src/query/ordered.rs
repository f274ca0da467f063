//! The whole result of a query in its order, without a page, to be merged with the results of other registries.
//!
//! A result owns its snapshot, so that later writes do not change it. Ranks and positions cost O(log n).

use std::sync::Arc;

use keelson_cache::{Entry, Position, Snapshot};
use keelson_meta::json::Value;
use keelson_meta::options::ListOptions;
use keelson_meta::{ApiError, Revision};
use keelson_query::Query;
use keelson_storage::behind;
use tokio::task::yield_now;

use super::groups::{COUNTED_AT_ONCE, value_at};
use super::plan::QueryPlan;
use super::turns::Turns;
use super::{FailedEvaluations, PlannedQuery, QuerySource, making};
use crate::caller::Caller;
use crate::registry::Registry;
use crate::target::Target;

/// The objects that a query selects, in its order.
pub struct OrderedResult {
    /// The revision of the snapshot.
    pub revision: Revision,
    /// The objects for which the condition has no value.
    pub failures: FailedEvaluations,
    snapshot: Snapshot,
    source: QuerySource,
}

/// A group of objects with one value.
#[derive(Debug)]
pub struct CountedValue {
    /// The sort key of the value.
    pub place: Vec<u8>,
    /// The value; `None` for the objects that have none.
    pub value: Option<Value>,
    /// The number of objects.
    pub count: usize,
}

/// All groups of a query.
#[derive(Debug)]
pub struct CountedValues {
    /// The revision of the snapshot.
    pub revision: Revision,
    /// The groups, by sort key.
    pub values: Vec<CountedValue>,
    /// The objects for which the condition has no value.
    pub failures: FailedEvaluations,
}

impl Registry {
    /// Evaluates a query without cutting a page. Without a query, the objects are in the order of their keys.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub async fn query_ordered(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
        query: Option<&Query>,
    ) -> Result<OrderedResult, ApiError> {
        let plain = Query::default();
        let work = async {
            let asked = self.asked(target, caller, options, query.unwrap_or(&plain)).await?;
            let (source, _) = making::shown(&asked.sought).await?;
            let sought = &asked.sought;
            sought.collection.pin(&sought.snapshot);
            let failures = match &source {
                QuerySource::Range(_) => FailedEvaluations::default(),
                QuerySource::View(view) => sought.wanted.failures(view),
            };
            Ok(OrderedResult {
                revision: sought.snapshot.revision,
                failures,
                snapshot: sought.snapshot.clone(),
                source,
            })
        };
        caller.in_time(work).await
    }

    /// Counts the objects of a grouped query for each value.
    ///
    /// # Errors
    /// As [`query_groups`](Self::query_groups), and 400 for more than `most` values.
    pub async fn query_counts(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
        query: &Query,
        most: usize,
    ) -> Result<CountedValues, ApiError> {
        let work = async {
            let asked = self.asked(target, caller, options, query).await?;
            counts(&asked, most).await
        };
        caller.in_time(work).await
    }

    async fn asked(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
        query: &Query,
    ) -> Result<PlannedQuery, ApiError> {
        let plan = QueryPlan::new(target, options, query, self.moment(query).await?, self.token_form(target, caller))?;
        let selection = self.selection(target, options)?;
        self.ask(target, options, query, plan.for_caller(caller), selection).await
    }
}

async fn counts(asked: &PlannedQuery, most: usize) -> Result<CountedValues, ApiError> {
    let sought = &asked.sought;
    let (view, _) = making::view_of(sought).await?;
    let mut values = Vec::new();
    let mut turns = Turns::new(&sought.wanted);
    let mut rank = 0;
    while let Some(Position { place, key }) = view.positions(rank, rank + 1).next_position() {
        if values.len() == most {
            return Err(ApiError::BadRequest(format!("keelson.io/groupBy: there are more than {most} values")));
        }
        let behind = view.rank_behind_place(place);
        let missing = || ApiError::Internal(format!("{key:?} stands in a view of a snapshot that it is not in"));
        let (entry, place) = (sought.snapshot.get(key).ok_or_else(missing)?, place.to_vec());
        let searched = place.clone();
        let value = turns.look(entry, move |wanted, entry| value_at(wanted, entry, &searched)).await;
        values.push(CountedValue { place, value, count: behind - rank });
        rank = behind;
        if values.len().is_multiple_of(COUNTED_AT_ONCE) {
            yield_now().await;
        }
    }
    Ok(CountedValues { revision: sought.snapshot.revision, values, failures: sought.wanted.failures(&view) })
}

impl OrderedResult {
    /// The number of objects.
    pub fn len(&self) -> usize {
        match &self.source {
            QuerySource::Range(range) => self.snapshot.count(&range.from, range.to.as_deref()),
            QuerySource::View(view) => view.len(),
        }
    }

    /// Returns true if the query selects nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sort key and the object key at a rank. The sort key is empty in the order of keys.
    pub fn position(&self, rank: usize) -> Option<(Vec<u8>, String)> {
        if rank >= self.len() {
            return None;
        }
        match &self.source {
            QuerySource::Range(range) => {
                let entry = self.snapshot.nth(self.snapshot.rank(&range.from) + rank)?;
                Some((Vec::new(), entry.key.to_string()))
            }
            QuerySource::View(view) => {
                let mut positions = view.positions(rank, rank + 1);
                let Position { place, key } = positions.next_position()?;
                Some((place.to_vec(), key.to_owned()))
            }
        }
    }

    /// The number of objects up to and including a position, which need not exist.
    pub fn through(&self, place: &[u8], key: &str) -> usize {
        match &self.source {
            QuerySource::Range(range) => {
                let rank = self.snapshot.rank(&behind(key)).saturating_sub(self.snapshot.rank(&range.from));
                rank.min(self.len())
            }
            QuerySource::View(view) => view.rank_behind(place, key),
        }
    }

    /// The number of objects before a sort key.
    pub fn before_place(&self, place: &[u8]) -> usize {
        match &self.source {
            QuerySource::Range(_) => 0,
            QuerySource::View(view) => view.rank_before_place(place),
        }
    }

    /// The number of objects up to and including a sort key.
    pub fn through_place(&self, place: &[u8]) -> usize {
        match &self.source {
            QuerySource::Range(_) => self.len(),
            QuerySource::View(view) => view.rank_behind_place(place),
        }
    }

    /// The object with a key.
    pub fn entry(&self, key: &str) -> Option<&Arc<Entry>> {
        self.snapshot.get(key)
    }
}

impl std::fmt::Debug for OrderedResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrderedResult").field("revision", &self.revision).finish_non_exhaustive()
    }
}
