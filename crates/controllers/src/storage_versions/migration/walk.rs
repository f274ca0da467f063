//! The walk of a migration: what the cache knows to lie in the store in another encoding is written anew, a chunk at a time.
//!
//! What was written by a walk that was cut off is known as such by every cache, so that the next one, on this server or another, goes on
//! with what is left. Between two chunks it is seen whether the servers still agree, and whether somebody still wants the migration.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use keelson_cache::Entry;
use keelson_meta::ApiError;
use keelson_storage::StoreKey;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::objects::{has_ended, say_progress};
use super::{Request, StorageVersionMigrator, Subject};

/// How many objects are written between two looks at the agreement: a millisecond's work or two, so that a client's request that comes
/// meanwhile hardly waits for longer than it takes itself.
const CHUNK: usize = 32;
/// How many of them at once: enough to share commits, few enough to be a small part of a commit that clients wait for, too.
const AT_ONCE: usize = 16;
/// How long a walk rests after each chunk, in times of what that took: three quarters of the server's time are left to others.
const REST: u32 = 3;
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// How often a migration says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How many objects that can't be written end a walk early: then it is not a matter of each of them.
const MOST_FAILURES: usize = 2048;

/// Has all walks of a server together keep to the share of one.
#[derive(Default)]
pub(super) struct Pace(Mutex<()>);

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

/// What could not be written.
#[derive(Default)]
pub(super) struct Failures {
    count: usize,
    first: Option<(StoreKey, ApiError)>,
}

impl Failures {
    fn note(&mut self, key: &str, error: ApiError) {
        self.count += 1;
        self.first.get_or_insert_with(|| (StoreKey::new(key), error));
    }

    /// What keeps a migration from ending; `None` where nothing does.
    pub(super) fn hindrance(&self, unreadable: usize) -> Option<String> {
        let unwritten = self.first.as_ref().map(|(key, error)| {
            format!(
                "{} objects could not be written and are tried again, such as {}: {error}",
                self.count,
                key.as_str()
            )
        });
        let unread = (unreadable > 0).then(|| format!("{unreadable} stored values can't be read"));
        let all: Vec<String> = unwritten.into_iter().chain(unread).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
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
            let turn = self.pace.0.lock().await;
            let begun = Instant::now();
            let page = self.registry.stale(&subject.stored, &subject.kind, &start, CHUNK);
            let is_walked = !page.keys.is_empty();
            self.write_anew(subject, page.keys, &mut failures).await;
            if is_walked {
                tokio::time::sleep((begun.elapsed() * REST).min(LONGEST_REST)).await;
            } else {
                tokio::task::yield_now().await;
            }
            drop(turn);
            from = page.next.filter(|_| failures.count < MOST_FAILURES);
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
        if subject.stored.cached.is_removed() {
            return Some(Walked::Replaced);
        }
        self.known_disagreement(subject).map(Walked::Disagreed)
    }

    async fn write_anew(&self, subject: &Subject, keys: Vec<Arc<str>>, failures: &mut Failures) {
        let mut written = stream::iter(keys)
            .map(|key| async move {
                let (namespace, name) = key.rsplit_once('/').map_or((None, &*key), |(space, name)| (Some(space), name));
                let target = subject.target.clone().in_namespace(namespace);
                let done = self.registry.rewrite(&target, name, self.client.caller()).await;
                (key.clone(), done)
            })
            .buffer_unordered(AT_ONCE);
        while let Some((key, done)) = written.next().await {
            match done {
                Ok(()) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => failures.note(&key, error),
            }
        }
    }

    async fn tell_progress(&self, request: &Request, subject: &Subject) -> Result<(), ApiError> {
        if request.total == 0 {
            return Ok(());
        }
        let left = subject.stale().min(request.total);
        let change = |migration: &mut _| say_progress(migration, request.total - left, request.total);
        self.edit(&self.migrations.clone().named(&request.name), request, change, Vec::new()).await.map(drop)
    }
}
