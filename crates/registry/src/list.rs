//! Chunked lists (KEP-365): one consistent snapshot over all chunks, on any server, across restarts.
//!
//! `plan.rs` selects revision, start and length. Entries come from a snapshot of the cache or, beyond its history, from
//! the store (`history.rs`). `page.rs` cuts the page.
//!
//! Invariants 1 to 7 of ARCHITECTURE.md. The chunks together equal the whole list, and every chunk has the same
//! resourceVersion. A token is relative to the range of its URL, and no token means complete.

mod converted;
mod history;
mod page;
mod plan;
mod token_form;

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, TryStreamExt as _};
use keelson_access::{Attributes, ResourceAttributes};
use keelson_cache::{Entry, RangeCursor};
use keelson_meta::options::ListOptions;
use keelson_meta::{ApiError, Revision};
use keelson_resources::Verb;

use crate::caller::Caller;
use crate::config::PartialRights;
pub(crate) use crate::list::history::Rests;
pub(crate) use crate::list::page::KeyRange;
pub(crate) use crate::list::plan::{ListPlan, ReadAt, read_at};
pub(crate) use crate::list::token_form::TokenForm;
use crate::registry::Registry;
use crate::target::Target;

/// One chunk of a list, or all of it.
pub struct ListPage {
    /// The revision of the snapshot that the whole walk is read from.
    pub revision: Revision,
    /// The token of the next chunk; `None` when this page completes the list.
    pub continue_token: Option<String>,
    /// The number of objects after this page. Known only for unselected lists with a next chunk.
    pub remaining: Option<u64>,
    /// The objects.
    pub items: ListItems,
}

/// The objects of a page, still in canonical bytes.
pub enum ListItems {
    /// A contiguous part of a snapshot. Its objects are not collected.
    Range {
        /// The objects, leaf by leaf.
        cursor: RangeCursor,
        /// The size of the objects in JSON, in bytes, without separators.
        bytes: u64,
    },
    /// Entries that were selected one by one.
    Chosen(Vec<Arc<Entry>>),
    /// Entries that are read from the store's history as they are used. A read may fail.
    History(HistoryItems),
}

/// Pages of entries that are read as they are used.
pub type HistoryPages = BoxStream<'static, Result<Vec<Arc<Entry>>, ApiError>>;

/// Objects at a past revision that only the store has. Only the current page is in memory.
pub struct HistoryItems {
    /// The pages, in key order.
    pub pages: HistoryPages,
    /// A second stream of the same pages, since a past revision does not change. The first stream measures them.
    pub again: HistoryPages,
    /// The least size of the objects as JSON, in bytes.
    pub least_bytes: u64,
}

impl ListItems {
    /// The number of objects, as far as it is known before they are read.
    fn known_len(&self) -> usize {
        match self {
            Self::Range { cursor, .. } => cursor.remaining(),
            Self::Chosen(entries) => entries.len(),
            Self::History(_) => 0,
        }
    }

    /// The entries, collected: for small pages, or for callers that need all entries at once.
    ///
    /// # Errors
    /// 503 or 410 if the store cannot return the rest of its history.
    pub async fn into_entries(self) -> Result<Vec<Arc<Entry>>, ApiError> {
        Ok(match self {
            Self::Chosen(entries) => entries,
            Self::History(items) => items.pages.try_concat().await?,
            Self::Range { mut cursor, .. } => {
                let mut entries = Vec::with_capacity(cursor.remaining());
                while let Some(leaf) = cursor.next_leaf() {
                    entries.extend_from_slice(leaf.entries());
                }
                entries
            }
        })
    }
}

impl Registry {
    /// Lists the objects of the target's URL.
    ///
    /// Cost: O(log n) to find the start and to count. With a selector, also the scanned entries. Nothing is decoded or
    /// copied.
    ///
    /// # Errors
    /// - 400 for invalid selectors and tokens
    /// - 410 for a revision that is no longer known (with a token to continue a list)
    /// - 504 for a revision that does not exist yet
    /// - 500 if an object cannot be read
    pub async fn list(&self, target: &Target, caller: &Caller, options: &ListOptions) -> Result<ListPage, ApiError> {
        caller
            .in_time(async {
                let rights = self.rights_to_range(target, caller, options).await;
                self.read_list(target, options, &caller.user().name, rights).await
            })
            .await
    }

    /// The rights that decide the chunking of a list. The right to list a range covers all of it. A selector may need a
    /// narrower right, which is checked only if it makes a difference.
    async fn rights_to_range(&self, target: &Target, caller: &Caller, options: &ListOptions) -> PartialRights {
        let configured = self.config.partial_rights;
        let selects = !options.label_selector.is_empty() || !options.field_selector.is_empty();
        let is_cut = options.limit.is_some() || options.continue_token.is_some();
        if configured == PartialRights::AsOthers || !selects || !is_cut {
            return PartialRights::AsOthers;
        }
        let attributes = Attributes::Resource(ResourceAttributes {
            verb: Verb::List.as_str(),
            group: &target.resource.group,
            version: &target.version.name,
            resource: &target.resource.plural,
            namespace: target.namespace.as_deref(),
            ..ResourceAttributes::default()
        });
        let verdict = caller.authorizer().authorize(caller.user(), &attributes).await;
        if verdict.is_allowed() { PartialRights::AsOthers } else { configured }
    }

    /// As [`list`](Self::list), for the server's own use. Its tokens are those of the named caller, with these rights.
    pub(crate) fn read_list<'l>(
        &'l self,
        target: &'l Target,
        options: &'l ListOptions,
        caller: &'l str,
        rights: PartialRights,
    ) -> BoxFuture<'l, Result<ListPage, ApiError>> {
        self.read_planned_list(target, options, caller, rights).boxed()
    }

    async fn read_planned_list(
        &self,
        target: &Target,
        options: &ListOptions,
        caller: &str,
        rights: PartialRights,
    ) -> Result<ListPage, ApiError> {
        let selection = self.selection(target, options)?;
        let plan = ListPlan::new(target, options, &self.config, Some(caller), rights)?;
        if target.is_empty_by_nature() {
            let revision = self.newest_revision().await?;
            let items = ListItems::Chosen(Vec::new());
            return Ok(ListPage { revision, continue_token: None, remaining: None, items });
        }
        let collection = self.settled_collection(target).await?;
        match self.snapshot(&collection, plan.at).await? {
            Some(snapshot) => {
                // ORDER: checked after the snapshot was taken, so that the set of unreadable objects is at least as new
                // as it.
                self.check_readable(target, &collection)?;
                self.counters().count_list_from_cache();
                if plan.limit.is_some() {
                    collection.pin(&snapshot);
                }
                if selection.is_of_converted() {
                    return converted::cut(&snapshot, target, &plan, &selection, self.config.bounds).await;
                }
                let found = self.find_selected(target, options, &selection, (&collection, &snapshot)).await;
                let selected = (&selection, found.as_deref());
                let (page, looked_at) = page::cut(&snapshot, target, &plan, selected, self.config.bounds);
                let (index, returned) = (selection.list_index(target, found.is_some()), page.items.known_len());
                let evaluated = if selection.is_everything() { 0 } else { looked_at };
                collection.counts().listed(index, looked_at, evaluated, returned);
                Ok(page)
            }
            None => self.list_from_store(target, &plan, &selection).await,
        }
    }
}
