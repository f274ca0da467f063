//! Empties namespaces that are being deleted and lets them go when nothing is left.
//!
//! The finalizer `kubernetes` in a namespace's `spec` stands for "content is left". Nothing can be created in a namespace
//! once it is marked, so a pass that finds nothing is final. Following the namespaces and emptying them are apart, and
//! each namespace has its own turns, so that content that is held in one holds up no other.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use keelson_cache::Entry;
use keelson_meta::ApiError;
use keelson_meta::options::{DeleteOptions, GetOptions, ListOptions, Query};
use keelson_registry::{Registry, Target, WatchOutput};
use keelson_resources::{Catalogue, Verb};
use tokio_util::sync::CancellationToken;

use crate::queue::{Backoff, Outcome, Queue};

/// How many namespaces are emptied at once.
const AT_ONCE: usize = 8;
/// How many deletes are under way at once in each: enough to share commits, few enough to leave room for clients.
const IN_FLIGHT: usize = 32;
/// How long a namespace whose content is held by finalizers is left alone before it is looked at again.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(2) };
/// How long after a failure the namespaces are followed anew.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// The controller.
pub struct NamespaceDeletion {
    registry: Arc<Registry>,
    namespaces: Target,
    /// The names of namespaces that are being deleted.
    queue: Queue<String>,
}

impl NamespaceDeletion {
    /// A controller over a registry.
    ///
    /// # Errors
    /// 500 when the catalogue has no namespaces.
    pub fn new(registry: Arc<Registry>) -> Result<Self, ApiError> {
        let namespaces = keelson_registry::namespaces_target()?;
        Ok(Self { registry, namespaces, queue: Queue::new(BACKOFF) })
    }

    /// Runs until the server stops.
    pub async fn run(self, stopping: CancellationToken) {
        let empty = self.queue.run(AT_ONCE, |namespace| self.turn(namespace));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = self.follow() => match never {},
            never = empty => match never {},
        }
    }

    /// Follows the namespaces, anew whenever a watch ends.
    async fn follow(&self) -> std::convert::Infallible {
        loop {
            if let Err(error) = self.watch().await {
                tracing::warn!(%error, "following namespaces failed and is begun anew");
                tokio::time::sleep(FOLLOW_AGAIN).await;
            }
        }
    }

    async fn watch(&self) -> Result<(), ApiError> {
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
                    self.queue.add(entry.name().to_owned());
                }
            }
        }
        Ok(())
    }

    async fn turn(&self, namespace: String) -> Outcome {
        match self.empty_and_release(&namespace).await {
            Ok(0) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            Ok(left) => {
                tracing::info!(namespace, left, "a namespace being deleted still has content that finalizers hold");
                Outcome::Again
            }
            Err(error) => {
                tracing::warn!(namespace, %error, "emptying a namespace failed and is tried again");
                Outcome::Again
            }
        }
    }

    /// Empties a namespace as far as nobody holds its content, and lets it go if that is all; returns how many objects are
    /// left.
    async fn empty_and_release(&self, name: &str) -> Result<usize, ApiError> {
        let namespace = self.registry.get(&self.namespaces, name, &GetOptions::default()).await?;
        let uid = namespace.object.summary(&[]).map(|summary| summary.uid).unwrap_or_default();
        if !self.registry.is_terminating(&namespace) {
            return Ok(0);
        }
        let left = self.empty(name).await?;
        if left == 0 {
            self.registry.finalize_namespace(name, &uid).await?;
        }
        Ok(left)
    }

    /// Deletes everything in the namespace, pods first; returns how many objects are still there afterwards. What can't be
    /// deleted of one kind does not keep the others.
    async fn empty(&self, namespace: &str) -> Result<usize, ApiError> {
        let everything = ListOptions::parse(&Query::parse(""), false)?;
        let mut left = 0;
        let mut failure = None;
        for target in contents(namespace) {
            match self.empty_one(&target, &everything).await {
                Ok(held) => left += held,
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(left), Err)
    }

    /// Deletes every object of one kind that is not being deleted already; returns how many are left afterwards.
    async fn empty_one(&self, target: &Target, everything: &ListOptions) -> Result<usize, ApiError> {
        let found = self.registry.list(target, everything).await?.items.into_entries().await?;
        if found.is_empty() {
            return Ok(0);
        }
        stream::iter(found.into_iter().filter(|entry| !self.registry.is_terminating(entry)))
            .map(|entry| self.delete(target, entry))
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<()>()
            .await?;
        self.registry.count(target).await
    }

    async fn delete(&self, target: &Target, entry: Arc<Entry>) -> Result<(), ApiError> {
        match self.registry.delete(target, entry.name(), &DeleteOptions::default()).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
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
