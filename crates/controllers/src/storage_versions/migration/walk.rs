//! The walk of a migration: what the cache knows to lie in the store in another encoding is written anew, a chunk at a time.
//!
//! What was written by a walk that was cut off is known as such by every cache, so that the next one, on this server or another, goes on
//! with what is left. Between two chunks it is seen whether the servers still agree, and whether somebody still wants the migration.

use std::time::Duration;

use keelson_cache::Entry;
use keelson_meta::ApiError;
use tokio::time::Instant;

use super::objects::{has_ended, say_progress};
use super::rewriter::Failures;
use super::{Request, StorageVersionMigrator, Subject};

/// How often a migration says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How a walk ended.
pub(super) enum Walked {
    /// Everything was looked at, and this could not be written.
    Through(Failures),
    /// The servers no longer agree, and why.
    Disagreed(String),
    /// Nobody wants the migration any more.
    Unwanted,
    /// The collection was made anew meanwhile, as when its definition changes.
    Replaced,
}

impl StorageVersionMigrator {
    /// Writes anew what is stale, once through the collection.
    ///
    /// # Errors
    /// Those of looking at the migration itself.
    pub(super) async fn walk(&self, request: &Request, subject: &Subject) -> Result<Walked, ApiError> {
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
        Ok(self.look_up(request, subject).unwrap_or(Walked::Through(failures)))
    }

    /// What ends a walk early, if something does; looked up in the cache alone.
    fn look_up(&self, request: &Request, subject: &Subject) -> Option<Walked> {
        let migrations = self.migrations.collection().ok()?;
        let is_open =
            |entry: &Entry| entry.object.uid() == request.uid && !has_ended(&entry.object.decode(entry.revision));
        if !migrations.get(&request.name).is_some_and(|entry| is_open(&entry)) {
            return Some(Walked::Unwanted);
        }
        if subject.is_removed() {
            return Some(Walked::Replaced);
        }
        self.known_disagreement(subject).map(Walked::Disagreed)
    }

    async fn tell_progress(&self, request: &Request, subject: &Subject) -> Result<(), ApiError> {
        if request.total == 0 {
            return Ok(());
        }
        let left = self.registry.count_rewritable(&subject.stored, &subject.kind).min(request.total);
        let change = |migration: &mut _| say_progress(migration, request.total - left, request.total);
        self.edit(&self.migrations.clone().named(&request.name), request, change, Vec::new()).await.map(drop)
    }
}
