//! Writes objects anew that are stored otherwise than they would be written now, in steps so small that clients' requests hardly wait for
//! them.
//!
//! A read waits until the cache has what was committed before it came. So what is committed together is little, unless commits take so long
//! that they are what everybody waits for; and between two objects whatever else the server has to do gets its turn.

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

/// How many objects are written between two rests and two looks at the agreement.
const CHUNK: usize = 64;
/// How many of them at once: the more, the longer commits take, by so many for each of these times.
const FEWEST_AT_ONCE: usize = 5;
const MOST_AT_ONCE: usize = 16;
const TIME_FOR_EACH: Duration = Duration::from_micros(250);
/// How long a walk rests after each chunk, in times of what that took: two fifths of the server's time are left to others
/// alone. Less rest with fewer objects at once delays others less than more of both: what they wait for is the length of one commit.
const REST: f64 = 0.7;
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// How many objects that can't be written end a walk early: then it is not a matter of each of them.
const MOST_FAILURES: usize = 2048;

/// Writes objects anew, those of one resource at a time.
pub struct Rewriter {
    registry: Arc<Registry>,
    caller: Caller,
    /// How many are written at once: whoever holds this has the turn.
    at_once: Mutex<usize>,
}

/// What could not be written.
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

    /// What keeps a migration from ending, where so many objects can't be read; `None` where nothing does.
    pub fn hindrance(&self, unreadable: usize) -> Option<String> {
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

impl Rewriter {
    /// One that writes as this caller.
    pub fn new(registry: Arc<Registry>, caller: Caller) -> Self {
        Self { registry, caller, at_once: Mutex::new(FEWEST_AT_ONCE) }
    }

    /// Writes the next stale objects of a resource anew, from a key on, and rests; where to go on, if there is anything to look at.
    /// It may be dropped at any point.
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

/// How many objects are written at once when the last ones took so long.
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
    fn what_keeps_a_migration_from_ending_names_an_object_and_how_many_there_are() {
        let mut failures = Failures::default();
        assert_eq!(failures.hindrance(0), None);
        assert_eq!(failures.hindrance(2).as_deref(), Some("2 stored values can't be read"));
        failures.note("a/b", ApiError::Internal("why".to_owned()));
        failures.note("a/c", ApiError::Internal("other".to_owned()));
        let said = failures.hindrance(0).unwrap();
        assert!(
            said.starts_with("2 objects could not be written") && said.contains("a/b") && said.contains("why"),
            "{said}"
        );
    }
}
