//! Deletes everything that a list selects.
//!
//! The objects are listed first and then deleted, some of them concurrently, each by a deletion of its own. Objects
//! that are created meanwhile stay.

use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use keelson_cache::Entry;
use keelson_meta::options::{DeleteOptions, ListOptions};
use keelson_meta::{ApiError, Revision};

use crate::admission::WriteOptions;
use crate::caller::Caller;
use crate::delete::warn_of;
use crate::list::ListPage;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::WriteRequest;

/// The number of concurrent deletes: enough to share commits, few enough to leave room for others.
const IN_FLIGHT: usize = 32;

/// The deleted objects, in their last state.
pub struct DeletedPage {
    /// The revision of the list.
    pub revision: Revision,
    /// The token of the objects after the limit; `None` if none are left.
    pub continue_token: Option<String>,
    /// The number of objects after the limit, if known.
    pub remaining: Option<u64>,
    /// The objects.
    pub deleted: Vec<Arc<Entry>>,
}

impl Registry {
    /// Deletes every object that the list selects, up to its limit. Objects that other clients delete meanwhile are no
    /// error.
    ///
    /// # Errors
    /// The errors of [`Registry::list`] and [`Registry::delete`]. Objects deleted before an error stay deleted.
    pub async fn delete_collection(
        &self,
        target: &Target,
        caller: &Caller,
        selected: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<DeletedPage, ApiError> {
        warn_of(target, caller, options);
        let ListPage { revision, continue_token, remaining, items } = self.list(target, caller, selected).await?;
        // An object that must stay is skipped, and the others are still deleted.
        let may_go = |entry: &Arc<Entry>| target.strategy().delete.check_delete(self, target, entry.name()).is_ok();
        let deleted = stream::iter(items.into_entries().await?.into_iter().filter(may_go))
            .map(|entry| self.delete_listed(target, entry, caller, options))
            .buffered(IN_FLIGHT)
            .try_filter_map(async |entry| Ok(entry))
            .try_collect()
            .await?;
        Ok(DeletedPage { revision, continue_token, remaining, deleted })
    }

    async fn delete_listed(
        &self,
        target: &Target,
        entry: Arc<Entry>,
        caller: &Caller,
        options: &DeleteOptions,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        let mut one = target.clone();
        one.namespace = entry.namespace().map(str::to_owned);
        let options_of = WriteOptions::Delete(options);
        let request = WriteRequest { of_collection: true, ..WriteRequest::new(&one, entry.name(), caller, options_of) };
        match self.delete_requested(&request, options).await {
            Ok(_) => Ok(Some(entry)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
