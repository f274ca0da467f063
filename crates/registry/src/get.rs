//! Reading one object.
//!
//! The newest state comes from the cache, after the cache has caught up with the store. No object is decoded here.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::ApiError;
use keelson_meta::options::{GetOptions, RequestedVersion};

use crate::caller::Caller;
use crate::registry::{Registry, refuse_unreadable};
use crate::target::Target;

impl Registry {
    /// The object of the target's URL, at least as new as every acknowledged write, unless the requested
    /// resourceVersion allows an older state.
    ///
    /// # Errors
    /// 404 when there is none, 504 when the resourceVersion does not exist yet.
    pub async fn get(
        &self,
        target: &Target,
        name: &str,
        caller: &Caller,
        options: &GetOptions,
    ) -> Result<Arc<Entry>, ApiError> {
        caller.in_time(self.read(target, name, options)).await
    }

    /// As [`Registry::get`], for the server's own use.
    pub(crate) async fn read(&self, target: &Target, name: &str, options: &GetOptions) -> Result<Arc<Entry>, ApiError> {
        match options.requested_version()? {
            RequestedVersion::Unset => self.catch_up().await?,
            RequestedVersion::Any => {}
            RequestedVersion::At(revision) => self.wait_for(revision).await?,
        }
        let not_found = || ApiError::NotFound { resource: target.group_resource(), name: name.to_owned() };
        if target.is_empty_by_nature() {
            return Err(not_found());
        }
        let key = target.relative_key(name);
        let collection = self.settled_collection(target).await?;
        match collection.get(&key) {
            Some(entry) => Ok(entry),
            None => {
                refuse_unreadable(&collection, target, &key)?;
                Err(not_found())
            }
        }
    }
}
