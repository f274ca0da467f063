//! Objects by the verbs of the registry, as a controller thinks of them: get, create, update what was read, delete.
//!
//! An update always states the revision that was read, so that a controller never overwrites what it has not seen.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_cache::Entry;
use keelson_meta::json::Value;
use keelson_meta::options::{
    CreateOptions, DeleteOptions, FieldValidation, GetOptions, ListOptions, Preconditions, Query, UpdateOptions,
};
use keelson_meta::{ApiError, Object, Revision};
use keelson_registry::{Registry, Target, Writer, Written, accept};

/// How many objects a chunk of a list has.
const CHUNK: usize = 500;
/// How long a server that stops may take to give up one thing that it holds.
const CLEAN_UP_TIME: Duration = Duration::from_secs(2);

/// The verbs for one controller.
#[derive(Clone)]
pub(crate) struct Client {
    registry: Arc<Registry>,
    writer: Writer,
}

/// An object, and the revision that wrote it.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) object: Object,
    pub(crate) revision: Revision,
}

impl Client {
    /// The verbs for a controller that owns fields by this name.
    pub(crate) fn new(registry: Arc<Registry>, manager: &str) -> Self {
        Self { registry, writer: Writer::named(manager) }
    }

    /// The collection of a resource, in a namespace or in none.
    ///
    /// # Errors
    /// 500 when it is not served.
    pub(crate) fn collection(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        namespace: Option<&str>,
    ) -> Result<Target, ApiError> {
        collection(&self.registry, group, version, plural, namespace)
    }

    /// The time.
    pub(crate) fn now(&self) -> SystemTime {
        self.registry.now()
    }

    /// The object of this name, as it is at this moment or later.
    pub(crate) async fn get(&self, target: &Target, name: &str) -> Result<Option<Stored>, ApiError> {
        match self.registry.get(target, name, &GetOptions::default()).await {
            Ok(entry) => Ok(Some(read(&entry))),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The objects that have these labels, in chunks; begun anew when it takes longer than history is kept.
    pub(crate) async fn list(&self, target: &Target, labels: &str) -> Result<Vec<Stored>, ApiError> {
        let mut found = Vec::new();
        let mut token = String::new();
        loop {
            let labels: String = form_urlencoded::byte_serialize(labels.as_bytes()).collect();
            let query = format!("labelSelector={labels}&limit={CHUNK}&continue={token}");
            let page = match self.registry.list(target, &ListOptions::parse(&Query::parse(&query), false)?).await {
                Err(ApiError::Expired { .. }) if !token.is_empty() => {
                    found.clear();
                    token.clear();
                    continue;
                }
                page => page?,
            };
            found.extend(page.items.into_entries().await?.iter().map(|entry| read(entry)));
            match page.continue_token {
                Some(next) => token = next,
                None => return Ok(found),
            }
        }
    }

    /// Creates an object.
    pub(crate) async fn create(&self, target: &Target, object: Value) -> Result<Stored, ApiError> {
        let object = accept(target, object, &[], FieldValidation::Strict)?.object;
        let options = CreateOptions::default();
        Ok(stored(&self.registry.create(target, object, &self.writer, &options).await?))
    }

    /// Replaces an object that was read; refused when it has changed since.
    pub(crate) async fn update(&self, target: &Target, object: Object) -> Result<Stored, ApiError> {
        let name = object.name().to_owned();
        let object = accept(target, object.into_value(), &[], FieldValidation::Strict)?.object;
        let options = UpdateOptions::default();
        Ok(stored(&self.registry.update(target, &name, || Ok(object.clone()), &self.writer, &options).await?))
    }

    /// Deletes an object if it still is as it was read. That it is gone already is as good.
    pub(crate) async fn delete(&self, target: &Target, read: &Stored) -> Result<(), ApiError> {
        let preconditions = Preconditions {
            uid: Some(read.object.uid().to_owned()),
            resource_version: Some(read.revision.to_string()),
        };
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        match self.registry.delete(target, read.object.name(), &options).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The collection of a resource, in a namespace or in none.
///
/// # Errors
/// 500 when it is not served.
pub(crate) fn collection(
    registry: &Registry,
    group: &str,
    version: &str,
    plural: &str,
    namespace: Option<&str>,
) -> Result<Target, ApiError> {
    let found = registry.surface().lookup(group, version, plural);
    let found = found.ok_or_else(|| ApiError::Internal(format!("{plural} are not served in {group}/{version}")))?;
    Ok(found.in_namespace(namespace))
}

/// Takes away what a server that stops would leave behind, if the store answers in time: a store that is away does not keep a server
/// from stopping. `left_behind` is what the log says otherwise.
pub(crate) async fn clean_up(act: impl Future<Output = Result<(), ApiError>>, left_behind: &str) {
    match tokio::time::timeout(CLEAN_UP_TIME, act).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "{left_behind}"),
        Err(_) => tracing::warn!("{left_behind}: no answer in {CLEAN_UP_TIME:?}"),
    }
}

fn read(entry: &Entry) -> Stored {
    Stored { object: entry.object.decode(entry.revision), revision: entry.revision }
}

fn stored(written: &Written) -> Stored {
    let revision = written.revision.unwrap_or(Revision::ZERO);
    Stored { object: written.object.decode(revision), revision }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_store_that_says_nothing_does_not_keep_a_server_from_stopping() {
        let begun = tokio::time::Instant::now();
        clean_up(std::future::pending(), "it was not given up").await;
        assert_eq!(begun.elapsed(), CLEAN_UP_TIME);
    }
}
