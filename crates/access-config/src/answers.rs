//! A cache of responses from remote servers. The keys are hashes of the requests.
//!
//! Concurrent equal requests share one call and its result, even a failure, so a slow server gets one call for all of
//! them. The number of cached responses is limited, and secrets are not stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The hash of a request.
pub type AnswerKey = [u8; 32];

/// The hash of a list of texts. Lengths are hashed too, so that different lists have different hashes.
pub fn answer_key<'t>(texts: impl IntoIterator<Item = &'t [u8]>) -> AnswerKey {
    let mut hash = Context::new(&SHA256);
    for text in texts {
        hash.update(&(text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    let mut key = [0; 32];
    key.copy_from_slice(hash.finish().as_ref());
    key
}

/// The cached responses, by request.
#[derive(Debug)]
pub struct Answers<V> {
    slots: Mutex<HashMap<AnswerKey, Arc<Slot<V>>>>,
    most: usize,
}

/// The response to one request. The task that holds the lock makes the call.
type Slot<V> = tokio::sync::Mutex<Option<CachedResponse<V>>>;

#[derive(Debug)]
struct CachedResponse<V> {
    answer: V,
    at: Instant,
    until: Instant,
}

impl<V: Clone> Answers<V> {
    /// Creates a cache for at most `most` responses.
    pub fn new(most: usize) -> Self {
        Self { slots: Mutex::default(), most }
    }

    /// Returns the cached response, or calls `ask`. `ask` returns the response, and the time for which it may be
    /// cached.
    pub async fn get(&self, key: AnswerKey, ask: impl Future<Output = (V, Duration)>) -> V {
        let came = Instant::now();
        let slot = self.slot(key, came);
        let mut last = slot.lock().await;
        if let Some(answered) = &*last
            && (answered.until > Instant::now() || answered.at >= came)
        {
            return answered.answer.clone();
        }
        let (answer, keep) = ask.await;
        let at = Instant::now();
        *last = Some(CachedResponse { answer: answer.clone(), at, until: at + keep });
        if keep.is_zero() {
            // Callers that already wait for the lock still get the response.
            self.slots.lock().remove(&key);
        }
        answer
    }

    /// Drops the responses that are no longer valid.
    pub fn drop_expired(&self) {
        let now = Instant::now();
        self.slots.lock().retain(|_, slot| is_needed(slot, now));
    }

    fn slot(&self, key: AnswerKey, now: Instant) -> Arc<Slot<V>> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&key) {
            return slot.clone();
        }
        if slots.len() >= self.most {
            slots.retain(|_, slot| is_needed(slot, now));
            // If all responses are valid, an arbitrary quarter is evicted, so that this does not run for each new
            // response.
            let mut left = self.most - self.most / 4;
            slots.retain(|_, _| {
                left = left.saturating_sub(1);
                left > 0
            });
        }
        slots.entry(key).or_default().clone()
    }
}

/// Returns true for a valid response, and for a call that has not ended.
fn is_needed<V>(slot: &Arc<Slot<V>>, now: Instant) -> bool {
    slot.try_lock().ok().is_none_or(|last| last.as_ref().is_some_and(|answered| answered.until > now))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const KEEP: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_cached_for_its_duration() {
        let answers = Answers::new(10);
        let asked = AtomicUsize::new(0);
        let get = async |name: &str, keep: Duration| {
            let ask = async { (asked.fetch_add(1, Ordering::Relaxed), keep) };
            answers.get(answer_key([name.as_bytes()]), ask).await
        };
        assert_eq!((get("a", KEEP).await, get("a", KEEP).await, get("b", KEEP).await), (0, 0, 1));
        tokio::time::advance(KEEP).await;
        assert_eq!(get("a", Duration::ZERO).await, 2);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(get("a", KEEP).await, 3, "it was not to be kept");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_equal_requests_share_one_call() {
        let answers = Answers::new(10);
        let asked = AtomicUsize::new(0);
        let get = || {
            answers.get(answer_key([&b"a"[..]]), async {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                (number, Duration::ZERO)
            })
        };
        assert_eq!(futures::future::join_all((0..20).map(|_| get())).await, vec![0; 20]);
        tokio::time::advance(Duration::from_millis(1)).await;
        // A caller that is cancelled does not disturb the others.
        assert!(tokio::time::timeout(Duration::from_millis(100), get()).await.is_err());
        assert_eq!(get().await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_of_answers_is_bounded() {
        let answers = Answers::new(8);
        for number in 0..100_u32 {
            let keep = if number % 2 == 0 { KEEP } else { Duration::ZERO };
            answers.get(answer_key([&number.to_be_bytes()[..]]), async { ((), keep) }).await;
            assert!(answers.slots.lock().len() <= 8);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn expired_answers_are_dropped_on_request() {
        let answers = Answers::new(8);
        for (name, keep) in [("short", KEEP), ("long", KEEP * 2)] {
            answers.get(answer_key([name.as_bytes()]), async { ((), keep) }).await;
        }
        tokio::time::advance(KEEP).await;
        answers.drop_expired();
        assert_eq!(answers.slots.lock().len(), 1);
    }

    #[test]
    fn answer_keys_distinguish_equal_concatenations() {
        assert_ne!(answer_key([&b"ab"[..], b"c"]), answer_key([&b"a"[..], b"bc"]));
    }
}
