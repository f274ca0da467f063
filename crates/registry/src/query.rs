//! Queries of lists: sorted, counted and paged, with all chunks from the snapshot of the first.
//!
//! `query/plan.rs` selects revision and start. `wanted.rs` evaluates the objects of the URL and its selectors.
//! `making.rs` builds the view: the snapshot's objects in the order of the query. `page.rs` cuts a page, and
//! `groups.rs` counts groups. A query in key order without selectors needs no view, since the snapshot counts.
//!
//! Invariants: chunks together equal the whole result at their revision. A token is bound to its query and URL, and
//! reads nothing that its request could not. A page and its counts are of one snapshot.

mod cells;
mod groups;
mod indexes;
mod live;
mod making;
mod matches;
mod moment;
mod ordered;
mod page;
mod paths;
mod plan;
mod searching;
mod turns;
mod wanted;

use std::sync::Arc;

use keelson_cache::{Collection, Entry, Snapshot, View, ViewOwner};
use keelson_meta::error::ExpiredKind;
use keelson_meta::options::ListOptions;
use keelson_meta::{ApiError, Revision};
use keelson_query::Query;

pub use self::groups::{Group, Groups};
pub use self::live::{LiveOutput, LivePage, PageChange};
pub use self::matches::{MatchedPlaces, Matches};
pub use self::ordered::{CountedValue, CountedValues, OrderedResult};
pub use self::page::QueryPage;
use self::plan::QueryPlan;
pub(crate) use self::wanted::QueryEvaluator;
use crate::caller::Caller;
use crate::list::{KeyRange, TokenForm};
use crate::registry::Registry;
use crate::selection::Selection;
use crate::target::Target;

/// The objects for which the condition of a query has no value. They are not in the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedEvaluations {
    /// The number of these objects.
    pub count: usize,
    /// The reason for one of them, if it was evaluated for this response.
    pub first: Option<String>,
}

/// A planned query, and the objects that it selects.
struct PlannedQuery {
    plan: QueryPlan,
    sought: SelectedSnapshot,
}

/// A snapshot, and the selection of a query from it.
struct SelectedSnapshot {
    collection: Arc<Collection>,
    snapshot: Snapshot,
    wanted: Arc<QueryEvaluator>,
    /// The user that views and indexes are built for.
    owner: ViewOwner,
}

/// The source of a query's objects.
enum QuerySource {
    /// A range: the query selects all of its objects, in key order.
    Range(KeyRange),
    /// A view.
    View(View),
}

impl Registry {
    /// Lists a page of the objects that match a query, in its order.
    ///
    /// Cost: O(log n) for the page if the view exists, and O(changes) if it exists for another snapshot. Otherwise a
    /// scan of every object that the index does not rule out. The scan yields to other tasks.
    ///
    /// # Errors
    /// As [`list`](Self::list), and 400 for mutually exclusive parameters. 410 for revisions that only the store has.
    pub async fn query(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
        query: &Query,
    ) -> Result<QueryPage, ApiError> {
        caller.in_time(self.read_query(target, options, query, caller)).await
    }

    /// Counts the objects that match a query by value.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub async fn query_groups(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
        query: &Query,
    ) -> Result<Groups, ApiError> {
        caller.in_time(self.read_groups(target, options, query, caller)).await
    }

    /// Returns the places of the searched words in the objects of a page.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub async fn query_matches(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
        query: &Query,
    ) -> Result<Matches, ApiError> {
        caller.in_time(self.read_matches(target, options, query, caller)).await
    }

    async fn read_query(
        &self,
        target: &Target,
        options: &ListOptions,
        query: &Query,
        caller: &Caller,
    ) -> Result<QueryPage, ApiError> {
        let plan = QueryPlan::new(target, options, query, self.moment(query).await?, self.token_form(target, caller))?
            .for_caller(caller);
        let selection = self.selection(target, options)?;
        if target.is_empty_by_nature() {
            return Ok(QueryPage::empty(self.newest_revision().await?));
        }
        let asked = self.ask(target, options, query, plan, selection).await?;
        self.page_of(&asked).await
    }

    async fn page_of(&self, query: &PlannedQuery) -> Result<QueryPage, ApiError> {
        let (shown, looked_at) = making::shown(&query.sought).await?;
        if query.plan.limit.is_some() {
            query.sought.collection.pin(&query.sought.snapshot);
        }
        page::cut(query, shown, looked_at).await
    }

    async fn read_matches(
        &self,
        target: &Target,
        options: &ListOptions,
        query: &Query,
        caller: &Caller,
    ) -> Result<Matches, ApiError> {
        let mut plan =
            QueryPlan::new(target, options, query, self.moment(query).await?, self.token_form(target, caller))?
                .for_caller(caller);
        let limit = *plan.limit.get_or_insert(matches::DEFAULT_LIMIT);
        if limit > matches::MAX_LIMIT {
            let most = matches::MAX_LIMIT;
            return Err(ApiError::BadRequest(format!("keelson.io/matches reports at most {most} objects at once")));
        }
        let selection = self.selection(target, options)?;
        if target.is_empty_by_nature() {
            return Ok(Matches::new(QueryPage::empty(self.newest_revision().await?), Vec::new()));
        }
        let asked = self.ask(target, options, query, plan, selection).await?;
        let page = self.page_of(&asked).await?;
        matches::told(&asked, page).await
    }

    fn token_form(&self, target: &Target, caller: &Caller) -> TokenForm {
        TokenForm::new(target, &self.config, Some(&caller.user().name))
    }

    async fn read_groups(
        &self,
        target: &Target,
        options: &ListOptions,
        query: &Query,
        caller: &Caller,
    ) -> Result<Groups, ApiError> {
        let plan = QueryPlan::new(target, options, query, self.moment(query).await?, self.token_form(target, caller))?
            .for_caller(caller);
        let selection = self.selection(target, options)?;
        if target.is_empty_by_nature() {
            return Ok(Groups::empty(self.newest_revision().await?));
        }
        let asked = self.ask(target, options, query, plan, selection).await?;
        let (view, looked_at) = making::view_of(&asked.sought).await?;
        groups::count(&asked, &view, looked_at).await
    }

    /// The snapshot of a query.
    ///
    /// # Errors
    /// 410 if the snapshot is gone. For a continued query, the error has a token for the rest at the newest revision.
    async fn ask(
        &self,
        target: &Target,
        options: &ListOptions,
        query: &Query,
        plan: QueryPlan,
        selection: Selection,
    ) -> Result<PlannedQuery, ApiError> {
        let collection = self.settled_collection(target).await?;
        let Some(snapshot) = self.snapshot(&collection, plan.at).await? else {
            return Err(plan.expired());
        };
        // ORDER: checked after the snapshot was taken, so that the set of unreadable objects is at least as new as it.
        self.check_readable(target, &collection)?;
        self.counters().count_list_from_cache();
        let wanted =
            QueryEvaluator::new(target, options, query.clone(), selection).indexed(&self.config).within_budget();
        let wanted = Arc::new(wanted);
        let owner = plan.owner;
        Ok(PlannedQuery { plan, sought: SelectedSnapshot { collection, snapshot, wanted, owner } })
    }

    /// The candidates of a selector from an index of a declared field, in key order. `None` if no index helps.
    pub(crate) async fn find_selected(
        &self,
        target: &Target,
        options: &ListOptions,
        selection: &Selection,
        (collection, snapshot): (&Arc<Collection>, &Snapshot),
    ) -> Option<Vec<Arc<Entry>>> {
        selection.exact_fields().next()?;
        let wanted = QueryEvaluator::new(target, options, Query::default(), selection.clone()).indexed(&self.config);
        let (collection, snapshot, wanted) = (collection.clone(), snapshot.clone(), Arc::new(wanted));
        let owner = ViewOwner::default();
        let (mut found, _) = indexes::find(&SelectedSnapshot { collection, snapshot, wanted, owner }).await.ok()??;
        // Objects of one value are in this order already.
        found.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Some(found)
    }
}

impl QueryPlan {
    /// The error for a revision that is gone.
    fn expired(&self) -> ApiError {
        match self.token() {
            // A query of a past revision has no rest at a newer one.
            Some(_) if self.is_past => {
                ApiError::Expired { message: ExpiredKind::ContinueTokenNoRest, continue_token: None }
            }
            Some(token) => {
                let continue_token = Some(self.form.give(token.newest().encode()));
                ApiError::Expired { message: ExpiredKind::ContinueToken, continue_token }
            }
            None => ApiError::Expired { message: ExpiredKind::ListRevision, continue_token: None },
        }
    }
}

impl QueryPage {
    fn empty(revision: Revision) -> Self {
        Self {
            revision,
            continue_token: None,
            remaining: None,
            items: page::none(),
            total: 0,
            looked_at: 0,
            failures: FailedEvaluations::default(),
        }
    }
}
