//! Empties namespaces that are being deleted and lets them go when nothing is left.
//!
//! The finalizer `kubernetes` in a namespace's `spec` stands for "content is left". Nothing can be created in a namespace
//! once it is marked, so a pass that finds nothing is final.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::ApiError;
use keelson_meta::options::{DeleteOptions, ListOptions, Query};
use keelson_registry::{Registry, Target, WatchOutput};
use keelson_resources::{Catalogue, Verb};
use tokio_util::sync::CancellationToken;

/// How long a namespace whose content is held by finalizers is left alone before it is looked at again.
const RETRY: Duration = Duration::from_secs(2);

/// The controller.
pub struct NamespaceDeletion {
    registry: Arc<Registry>,
    namespaces: Target,
}

impl NamespaceDeletion {
    /// A controller over a registry.
    ///
    /// # Errors
    /// 500 when the catalogue has no namespaces.
    pub fn new(registry: Arc<Registry>) -> Result<Self, ApiError> {
        let namespaces = keelson_registry::namespaces_target()?;
        Ok(Self { registry, namespaces })
    }

    /// Runs until the server stops.
    pub async fn run(self, stopping: CancellationToken) {
        while !stopping.is_cancelled() {
            tokio::select! {
                () = stopping.cancelled() => return,
                ended = self.follow() => if let Err(error) = ended {
                    tracing::warn!(%error, "following namespaces failed and is begun anew");
                },
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Follows the namespaces until the watch ends.
    async fn follow(&self) -> Result<(), ApiError> {
        let options = ListOptions::parse(&Query::parse("watch=1"), true)?;
        let mut watch = self.registry.watch(&self.namespaces, &options).await?;
        while let Some(outputs) = watch.next().await {
            for output in outputs {
                let entry = match output {
                    WatchOutput::Initial(entry) => entry,
                    WatchOutput::Event(_, event) => match &event.current {
                        Some(entry) => entry.clone(),
                        None => continue,
                    },
                    WatchOutput::Bookmark { .. } => continue,
                    WatchOutput::Error(error) => return Err(error),
                };
                if self.registry.is_terminating(&entry) {
                    self.empty_and_release(entry.name()).await?;
                }
            }
        }
        Ok(())
    }

    async fn empty_and_release(&self, namespace: &str) -> Result<(), ApiError> {
        let mut left = self.empty(namespace).await?;
        while left > 0 {
            tracing::info!(namespace, left, "a namespace being deleted still has content that finalizers hold");
            tokio::time::sleep(RETRY).await;
            left = self.empty(namespace).await?;
        }
        match self.registry.finalize_namespace(namespace).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes everything in the namespace, pods first; returns how many objects are still there afterwards.
    async fn empty(&self, namespace: &str) -> Result<usize, ApiError> {
        let options = DeleteOptions::default();
        let everything = ListOptions::parse(&Query::parse(""), false)?;
        let mut left = 0;
        for target in contents(namespace) {
            let (_, deleted) = self.registry.delete_collection(&target, &everything, &options).await?;
            if !deleted.is_empty() {
                left += self.registry.count(&target).await?;
            }
        }
        Ok(left)
    }
}

/// Everything that a namespace can hold: each stored collection once, pods first because they hold on to the rest.
fn contents(namespace: &str) -> Vec<Target> {
    let stored = Catalogue::builtin().collections().iter().filter(|collection| collection.namespaced);
    let mut targets: Vec<Target> = stored
        .filter_map(|collection| {
            let resource = *collection.resources.first()?;
            let version = resource.versions.iter().find(|version| version.allows(Verb::DeleteCollection))?;
            Some(Target { resource, version, subresource: None, namespace: Some(namespace.to_owned()), name: None })
        })
        .collect();
    targets.sort_by_key(|target| target.resource.plural != "pods");
    targets
}
