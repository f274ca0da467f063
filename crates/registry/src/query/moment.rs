//! Reads of the past: the revision of a time, and an object at a revision.
//!
//! A time means the newest revision that this server knew at that time. The history window limits times and states.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::error::ExpiredKind;
use keelson_meta::options::{GetOptions, RequestedVersion};
use keelson_meta::{ApiError, Revision};
use keelson_query::{Moment, Query};

use crate::caller::Caller;
use crate::list::ReadAt;
use crate::registry::Registry;
use crate::target::Target;

impl Registry {
    /// The revision of the moment that a query requests.
    ///
    /// # Errors
    /// 410 for a time before the history, 400 for a time in the future.
    pub(super) async fn moment(&self, query: &Query) -> Result<Option<Revision>, ApiError> {
        let time = match query.at {
            None => return Ok(None),
            Some(Moment::Revision(revision)) => return Ok(Some(revision)),
            Some(Moment::Time(time)) => time,
        };
        if time > self.now() {
            return Err(ApiError::BadRequest("keelson.io/at: this time has not come yet".to_owned()));
        }
        // After this, the cache has the writes of other servers up to now.
        self.catch_up().await?;
        self.cache().revision_at(time).map(Some).ok_or(GONE)
    }

    /// The object of the target's URL at the moment that a query requests. Without a moment, the object as it is now.
    ///
    /// # Errors
    /// As [`get`](Self::get). 404 if the object did not exist then, 410 if that state is no longer known.
    pub async fn get_at(
        &self,
        target: &Target,
        name: &str,
        caller: &Caller,
        options: &GetOptions,
        query: &Query,
    ) -> Result<Arc<Entry>, ApiError> {
        if query.at.is_none() {
            return self.get(target, name, caller, options).await;
        }
        caller.in_time(self.read_at(target, name, options, query)).await
    }

    async fn read_at(
        &self,
        target: &Target,
        name: &str,
        options: &GetOptions,
        query: &Query,
    ) -> Result<Arc<Entry>, ApiError> {
        if options.requested_version()? != RequestedVersion::Unset {
            return Err(ApiError::BadRequest("keelson.io/at can't be combined with resourceVersion".to_owned()));
        }
        let not_found = || ApiError::NotFound { resource: target.group_resource(), name: name.to_owned() };
        let Some(revision) = self.moment(query).await?.filter(|_| !target.is_empty_by_nature()) else {
            return Err(not_found());
        };
        let collection = self.settled_collection(target).await?;
        let snapshot = self.snapshot(&collection, ReadAt::Exactly(revision)).await?.ok_or(GONE)?;
        snapshot.get(&target.relative_key(name)).cloned().ok_or_else(not_found)
    }
}

/// The error for a time before the history.
const GONE: ApiError = ApiError::Expired { message: ExpiredKind::ListRevision, continue_token: None };
