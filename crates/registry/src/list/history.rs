//! Which snapshot a list is read from: the cache's, at any revision it can still rebuild, or the store's own history.

use keelson_cache::{Collection, Snapshot, SnapshotError};
use keelson_meta::ApiError;
use keelson_meta::error::ExpiredKind;
use keelson_storage::{ContinueToken, RangeRequest, StoreError, StoreKey};

use super::page::KeyRange;
use super::plan::{ListPlan, ReadAt};
use super::{ListItems, ListPage};
use crate::registry::Registry;
use crate::selection::Selection;
use crate::target::Target;

/// How many keys one read of the store's history asks for.
const STORE_PAGE: usize = 1000;

impl Registry {
    /// The snapshot that the plan asks for; `None` when the cache no longer knows the revision.
    pub(super) async fn snapshot(
        &self,
        collection: &Collection,
        plan: &ListPlan,
    ) -> Result<Option<Snapshot>, ApiError> {
        match plan.at {
            ReadAt::Any => Ok(Some(collection.snapshot())),
            ReadAt::Newest => {
                self.catch_up().await?;
                Ok(Some(collection.snapshot()))
            }
            ReadAt::NotOlderThan(revision) => {
                self.wait_for(revision).await?;
                Ok(Some(collection.snapshot()))
            }
            ReadAt::Exactly(revision) => {
                self.wait_for(revision).await?;
                match collection.snapshot_at(revision) {
                    Ok(snapshot) => {
                        self.counters().count_snapshot_rebuilt();
                        Ok(Some(snapshot))
                    }
                    Err(SnapshotError::TooOld { .. }) => Ok(None),
                    Err(SnapshotError::Future { current }) => {
                        Err(ApiError::RevisionTooLarge { requested: revision, current, retry: true })
                    }
                }
            }
        }
    }

    /// Reads the page from the store's history: the way for revisions that the cache had no room to keep.
    ///
    /// The rest is not counted here, so that a chunk costs a chunk.
    ///
    /// # Errors
    /// 410 when the store has compacted the revision.
    pub(super) async fn list_from_store(
        &self,
        target: &Target,
        plan: &ListPlan,
        selection: &Selection,
    ) -> Result<ListPage, ApiError> {
        let ReadAt::Exactly(revision) = plan.at else {
            return Err(ApiError::Internal("only an exact revision is read from history".to_owned()));
        };
        self.counters().count_list_from_store();
        let prefix = target.key_prefix();
        let range = KeyRange::below(&prefix, &plan.start).narrowed(target, selection);
        let collection = self.collection(target)?;
        let root = collection.prefix();
        let end = range.to.map_or_else(|| StoreKey::prefix_end(root), |to| StoreKey::new(format!("{root}{to}")));
        let mut from = StoreKey::new(format!("{root}{}", range.from));
        let mut chosen = Vec::new();
        let mut looked_at = 0;
        let mut last: Option<String> = None;
        loop {
            let request =
                RangeRequest { from: from.clone(), to: end.clone(), revision: Some(revision), limit: Some(STORE_PAGE) };
            let page = self.store().range(request).await.map_err(|error| expired(error, plan))?;
            for stored in page.entries {
                if plan.limit.is_some_and(|limit| chosen.len() == limit || looked_at == self.config.bounds.scan) {
                    let continue_token = last.map(|key| {
                        let relative = key.strip_prefix(prefix.as_str()).unwrap_or(&key).to_owned();
                        ContinueToken::after(revision, &relative).encode()
                    });
                    return Ok(ListPage {
                        revision,
                        continue_token,
                        remaining: None,
                        items: ListItems::Chosen(chosen),
                    });
                }
                from = StoreKey::new(format!("{}\0", stored.key));
                let entry = collection.decode(&stored).map_err(|error| self.corrupt(&stored.key, &error))?;
                looked_at += 1;
                last = Some(entry.key.to_string());
                if selection.matches(&entry) {
                    chosen.push(entry);
                }
            }
            if !page.more {
                return Ok(ListPage {
                    revision,
                    continue_token: None,
                    remaining: None,
                    items: ListItems::Chosen(chosen),
                });
            }
        }
    }
}

/// What a client is told when the store can't read the planned revision: for a continued list 410 carries a token with
/// which the rest can be read at the newest revision (KEP-365, "inconsistent continue").
fn expired(error: StoreError, plan: &ListPlan) -> ApiError {
    match (error, &plan.token) {
        (StoreError::Compacted { .. }, Some(token)) => {
            ApiError::Expired { message: ExpiredKind::ContinueToken, continue_token: Some(token.newest().encode()) }
        }
        (StoreError::Compacted { .. }, None) => {
            ApiError::Expired { message: ExpiredKind::ListRevision, continue_token: None }
        }
        (other, _) => crate::registry::store_error(other),
    }
}
