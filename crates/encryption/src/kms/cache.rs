//! Data keys in memory, by their encrypted form.
//!
//! A data key is decrypted once by its service and then serves all values that it encrypts, also while the service is away. Readers that
//! miss the same key wait for one call, and a call that failed is not repeated at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::error::TransformError;

/// The most data keys that are kept.
const MOST: usize = 10_000;
/// The time after which an unused data key is evicted when another is cached.
const LIFETIME: Duration = Duration::from_hours(24);
/// The time for which a failed call answers for further ones.
const FAILURE: Duration = Duration::from_secs(3);

type CacheKey = [u8; 32];
type Attempt = Arc<AsyncMutex<Option<(Instant, TransformError)>>>;

/// The data keys of one provider.
pub(super) struct DataKeys<K> {
    kept: Mutex<HashMap<CacheKey, (Arc<K>, Instant)>>,
    attempts: Mutex<HashMap<CacheKey, Attempt>>,
    most: usize,
}

impl<K> Default for DataKeys<K> {
    fn default() -> Self {
        Self::of_at_most(MOST)
    }
}

impl<K> DataKeys<K> {
    /// A cache of so many keys; none keeps nothing.
    pub(super) fn of_at_most(most: usize) -> Self {
        Self { kept: Mutex::default(), attempts: Mutex::default(), most }
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.kept.lock().len()
    }

    /// A key that is kept.
    fn get(&self, key: &CacheKey) -> Option<Arc<K>> {
        self.kept.lock().get(key).map(|(found, _)| found.clone())
    }

    /// Keeps a key.
    pub(super) fn put(&self, key: CacheKey, data_key: Arc<K>) {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        if self.most == 0 {
            return;
        }
        if !kept.contains_key(&key) {
            kept.retain(|_, (_, put)| now.duration_since(*put) < LIFETIME);
            if kept.len() >= self.most
                && let Some(oldest) = kept.iter().min_by_key(|(_, (_, put))| *put).map(|(key, _)| *key)
            {
                kept.remove(&oldest);
            }
        }
        kept.insert(key, (data_key, now));
    }

    /// Forgets failed calls, so that the next reader calls again.
    pub(super) fn forget_failures(&self) {
        self.attempts.lock().clear();
    }

    /// A key that is kept, or else the one that `fetch` brings, which is called by one reader at a time.
    pub(super) async fn get_or_fetch<F>(
        &self,
        key: CacheKey,
        fetch: impl FnOnce() -> F,
    ) -> Result<Arc<K>, TransformError>
    where
        F: Future<Output = Result<K, TransformError>>,
    {
        if let Some(found) = self.get(&key) {
            return Ok(found);
        }
        let attempt = {
            let mut attempts = self.attempts.lock();
            if attempts.len() >= MOST {
                attempts.retain(|_, attempt| Arc::strong_count(attempt) > 1);
            }
            attempts.entry(key).or_default().clone()
        };
        let mut last_failure = attempt.lock().await;
        if let Some(found) = self.get(&key) {
            return Ok(found);
        }
        if let Some((at, failure)) = &*last_failure
            && at.elapsed() < FAILURE
        {
            return Err(failure.clone());
        }
        match fetch().await {
            Ok(fetched) => {
                let fetched = Arc::new(fetched);
                self.put(key, fetched.clone());
                *last_failure = None;
                self.attempts.lock().remove(&key);
                Ok(fetched)
            }
            Err(failure) => {
                *last_failure = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn readers_share_one_call_and_its_failure() {
        let (keys, calls) = (DataKeys::<u8>::default(), AtomicUsize::new(0));
        let failing = || {
            calls.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err(TransformError::new("away"))
            }
        };
        let (a, b) = tokio::join!(keys.get_or_fetch([0; 32], failing), keys.get_or_fetch([0; 32], failing));
        assert!(a.is_err() && b.is_err());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        tokio::time::sleep(FAILURE).await;
        let working = || {
            calls.fetch_add(1, Ordering::Relaxed);
            async { Ok(7) }
        };
        assert_eq!(*keys.get_or_fetch([0; 32], working).await.unwrap(), 7);
        assert_eq!(*keys.get_or_fetch([0; 32], working).await.unwrap(), 7);
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        assert!(keys.get_or_fetch([1; 32], failing).await.is_err());
        keys.forget_failures();
        assert_eq!(*keys.get_or_fetch([1; 32], working).await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded() {
        let keys = DataKeys::of_at_most(2);
        for number in 0..5 {
            keys.put([number; 32], Arc::new(number));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!((keys.len(), keys.get(&[4; 32]).map(|key| *key), keys.get(&[2; 32])), (2, Some(4), None));
        let none = DataKeys::of_at_most(0);
        none.put([0; 32], Arc::new(0));
        assert_eq!(none.len(), 0);
    }
}
