//! The callers of lists over several sources, before a source has named them.
//!
//! Each list asks every source about its caller. Unknown callers have a limit of their own, which they fill for each other
//! only: a caller whose credentials a source has accepted before does not count for it.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};

use http::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use keelson_http::filters::ClientConnection;
use keelson_http::proxy::CLUSTER_TOKEN_PREFIX;
use keelson_meta::ApiError;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The largest number of requests of unknown callers at the same time.
const UNKNOWN: usize = 256;
/// The number of credentials that are remembered: at least the newest ones, and at most twice as many.
const REMEMBERED: usize = 4_096;

/// The callers.
pub(super) struct Callers {
    unknown: Semaphore,
    hashes: RandomState,
    accepted: Mutex<Accepted>,
}

/// Hashes of accepted credentials. The older half goes when the newer one is full.
#[derive(Default)]
struct Accepted {
    newer: HashSet<u64>,
    older: HashSet<u64>,
}

/// The caller of one request.
pub(super) struct Caller<'c> {
    callers: &'c Callers,
    credentials: Option<u64>,
    _slot: Option<SemaphorePermit<'c>>,
}

impl Default for Callers {
    fn default() -> Self {
        Self { unknown: Semaphore::new(UNKNOWN), hashes: RandomState::new(), accepted: Mutex::default() }
    }
}

impl Callers {
    /// Lets a request in.
    ///
    /// # Errors
    /// 429 if there are too many unknown callers, and this is another.
    pub(super) fn enter(&self, client: &dyn ClientConnection, headers: &HeaderMap) -> Result<Caller<'_>, ApiError> {
        let credentials = self.credentials(client, headers);
        let is_accepted = credentials.is_some_and(|hash| self.accepted.lock().contains(hash));
        let slot = match is_accepted {
            true => None,
            false => {
                Some(self.unknown.try_acquire().map_err(|_| ApiError::TooManyRequests { retry_after_seconds: 1 })?)
            }
        };
        Ok(Caller { callers: self, credentials, _slot: slot })
    }

    /// A hash of the credentials of a request; `None` if it has none.
    fn credentials(&self, client: &dyn ClientConnection, headers: &HeaderMap) -> Option<u64> {
        let mut hasher = self.hashes.build_hasher();
        let mut has_any = false;
        for (name, value) in headers {
            if *name == AUTHORIZATION
                || *name == SEC_WEBSOCKET_PROTOCOL
                || name.as_str().starts_with(CLUSTER_TOKEN_PREFIX)
            {
                (name.as_str(), value.as_bytes()).hash(&mut hasher);
                has_any = true;
            }
        }
        if let Some(identity) = client.identity()
            && let Some(name) = identity.user_name()
        {
            name.hash(&mut hasher);
            has_any = true;
        }
        has_any.then(|| hasher.finish())
    }
}

impl Caller<'_> {
    /// Remembers the credentials, which a source has accepted.
    pub(super) fn remember(&self) {
        if let Some(hash) = self.credentials {
            self.callers.accepted.lock().add(hash);
        }
    }
}

impl Accepted {
    fn contains(&self, hash: u64) -> bool {
        self.newer.contains(&hash) || self.older.contains(&hash)
    }

    fn add(&mut self, hash: u64) {
        self.newer.insert(hash);
        if self.newer.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_credentials_are_remembered_for_a_time() {
        let mut accepted = Accepted::default();
        for hash in 0..2 * REMEMBERED as u64 + 1 {
            accepted.add(hash);
            assert!(accepted.contains(hash) && accepted.newer.len() < REMEMBERED);
        }
        assert!(!accepted.contains(0) && accepted.contains(REMEMBERED as u64));
    }
}
