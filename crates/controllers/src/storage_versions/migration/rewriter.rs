//! Rewrites objects whose stored form is outdated, in steps so small that clients hardly wait.
//!
//! A consistent read waits until the cache has all earlier commits, so each commit should be small. The number of
//! concurrent writes grows only if the store's commits are slow in any case. Other tasks get a turn between two
//! objects.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use keelson_meta::ApiError;
use keelson_registry::{Caller, Registry};
use keelson_storage::StoreKey;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::subject::Subject;

/// The number of objects written between two pauses and checks of the agreement.
const CHUNK: usize = 64;
/// Limits of the number of concurrent writes, and the commit time that allows one more. More concurrent writes make
/// commits longer.
const FEWEST_AT_ONCE: usize = 5;
const MOST_AT_ONCE: usize = 16;
const TIME_FOR_EACH: Duration = Duration::from_micros(250);
/// The pause after each chunk, as a multiple of its duration, so that two fifths of the time are left to others. Short
/// pauses with few concurrent writes delay clients less than long pauses with many, since a client waits for the length
/// of one commit.
const REST: f64 = 0.7;
/// The longest pause.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The number of failed objects at which a walk ends early. So many failures have a common cause.
const MOST_FAILURES: usize = 2048;

/// Rewrites objects, one resource at a time.
pub struct Rewriter {
    registry: Arc<Registry>,
    caller: Caller,
    /// The number of concurrent writes. A step holds the lock, so that resources take turns.
    at_once: Mutex<usize>,
}

/// The objects that could not be written.
#[derive(Debug, Default)]
pub struct Failures {
    count: usize,
    first: Option<(StoreKey, ApiError)>,
}

impl Failures {
    fn note(&mut self, key: &str, error: ApiError) {
        self.count += 1;
        self.first.get_or_insert_with(|| (StoreKey::new(key), error));
    }

    /// The reason why a migration can't succeed, given the number of unreadable objects; `None` if it can.
    pub fn hindrance(&self, unreadable: usize) -> Option<String> {
        let unwritten = self.first.as_ref().map(|(key, error)| {
            format!("writing {} objects failed and is retried, such as {}: {error}", self.count, key.as_str())
        });
        let unread = (unreadable > 0).then(|| format!("{unreadable} stored values can't be read"));
        let all: Vec<String> = unwritten.into_iter().chain(unread).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Rewriter {
    /// Creates a rewriter with this identity.
    pub fn new(registry: Arc<Registry>, caller: Caller) -> Self {
        Self { registry, caller, at_once: Mutex::new(FEWEST_AT_ONCE) }
    }

    /// Rewrites the next chunk of stale objects of a resource, starting at a key, then pauses. Returns the key to
    /// continue at; `None` at the end. Cancel safe.
    pub async fn step(&self, subject: &Subject, from: &str, failures: &mut Failures) -> Option<String> {
        let mut at_once = self.at_once.lock().await;
        let begun = Instant::now();
        let page = self.registry.stale(&subject.stored, &subject.kind, from, CHUNK);
        if page.keys.is_empty() {
            tokio::task::yield_now().await;
            return page.next;
        }
        let mut keys = page.keys;
        while !keys.is_empty() {
            let rest = keys.split_off(keys.len().min(*at_once));
            let begun = Instant::now();
            self.write(subject, keys, failures).await;
            *at_once = at_once_after(begun.elapsed());
            keys = rest;
        }
        tokio::time::sleep(begun.elapsed().mul_f64(REST).min(LONGEST_REST)).await;
        page.next.filter(|_| failures.count < MOST_FAILURES)
    }

    async fn write(&self, subject: &Subject, keys: Vec<Arc<str>>, failures: &mut Failures) {
        let count = keys.len();
        let written = stream::iter(keys)
            .then(|key| async move {
                tokio::task::yield_now().await;
                key
            })
            .map(|key| async move {
                let (namespace, name) = key.rsplit_once('/').map_or((None, &*key), |(space, name)| (Some(space), name));
                let target = subject.target.clone().in_namespace(namespace);
                let done = self.registry.rewrite(&target, name, &self.caller).await;
                (key.clone(), done)
            })
            .buffer_unordered(count);
        let mut written = pin!(written);
        while let Some((key, done)) = written.next().await {
            match done {
                Ok(()) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => failures.note(&key, error),
            }
        }
    }
}

/// The concurrency for the next objects, from the duration of the last ones.
fn at_once_after(took: Duration) -> usize {
    let fitting = took.as_micros() / TIME_FOR_EACH.as_micros();
    usize::try_from(fitting).unwrap_or(MOST_AT_ONCE).clamp(FEWEST_AT_ONCE, MOST_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_commits_take_the_more_objects_share_one_within_bounds() {
        for (took, expected) in [(0, 5), (900, 5), (1_500, 6), (4_000, 16), (600_000, 16)] {
            assert_eq!(at_once_after(Duration::from_micros(took)), expected, "{took} us");
        }
    }

    #[test]
    fn migration_failures_name_an_object_and_the_number_of_objects() {
        let mut failures = Failures::default();
        assert_eq!(failures.hindrance(0), None);
        assert_eq!(failures.hindrance(2).as_deref(), Some("2 stored values can't be read"));
        failures.note("a/b", ApiError::Internal("why".to_owned()));
        failures.note("a/c", ApiError::Internal("other".to_owned()));
        let said = failures.hindrance(0).unwrap();
        assert!(said.starts_with("writing 2 objects failed") && said.contains("a/b") && said.contains("why"), "{said}");
    }
}
