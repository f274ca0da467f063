//! The walk of a migration: it rewrites the stale objects in the cache, chunk by chunk.
//!
//! After an interruption, the next walk, on any server, continues with the remaining stale objects, since every cache
//! sees which objects have been rewritten. Between two chunks the walk checks that the servers still agree and that the
//! migration still exists.

use std::time::Duration;

use keelson_cache::Entry;
use keelson_meta::ApiError;
use tokio::time::Instant;

use super::objects::{has_ended, say_progress};
use super::rewriter::Failures;
use super::{Request, StorageVersionMigrator, Subject};

/// The interval between progress updates.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// The outcome of one pass over the stored objects.
pub(super) enum WalkOutcome {
    /// All objects were visited, with these failures.
    Through(Failures),
    /// The servers no longer agree, with the reason.
    Disagreed(String),
    /// The migration was deleted or ended.
    Unwanted,
    /// The collection was replaced meanwhile, for example after a change of its definition.
    Replaced,
}

impl StorageVersionMigrator {
    /// Rewrites the stale objects in one pass through the collection.
    ///
    /// # Errors
    /// Errors of reading the migration.
    pub(super) async fn walk(&self, request: &Request, subject: &Subject) -> Result<WalkOutcome, ApiError> {
        let (mut failures, mut told) = (Failures::default(), Instant::now());
        let mut from = Some(String::new());
        while let Some(start) = from {
            if let Some(ended) = self.look_up(request, subject) {
                return Ok(ended);
            }
            if told.elapsed() >= PROGRESS_INTERVAL {
                told = Instant::now();
                self.tell_progress(request, subject).await?;
            }
            from = self.rewriter.step(subject, &start, &mut failures).await;
        }
        self.tell_progress(request, subject).await?;
        Ok(self.look_up(request, subject).unwrap_or(WalkOutcome::Through(failures)))
    }

    /// The reason to end a walk early, if there is one. Reads only the cache.
    fn look_up(&self, request: &Request, subject: &Subject) -> Option<WalkOutcome> {
        let migrations = self.migrations.collection().ok()?;
        let is_open =
            |entry: &Entry| entry.object().uid() == request.uid && !has_ended(&entry.object().decode(entry.revision));
        if !migrations.get(&request.name).is_some_and(|entry| is_open(&entry)) {
            return Some(WalkOutcome::Unwanted);
        }
        if subject.is_removed() {
            return Some(WalkOutcome::Replaced);
        }
        self.known_disagreement(subject).map(WalkOutcome::Disagreed)
    }

    /// Writes the number of rewritten objects. Returns true if the migration still exists.
    pub(super) async fn tell_progress(&self, request: &Request, subject: &Subject) -> Result<bool, ApiError> {
        if request.total == 0 {
            return Ok(true);
        }
        let left = self.registry.count_rewritable(&subject.stored, &subject.kind).min(request.total);
        let change = |migration: &mut _| say_progress(migration, request.total - left, request.total);
        self.edit(&self.migrations.clone().named(&request.name), request, change, Vec::new()).await
    }
}
