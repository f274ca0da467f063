//! Times to live: all keys with the same second of expiry share a lease, whose number encodes that second.
//!
//! [`expire`] revokes due leases, which deletes their keys in one revision. When a key is written again, etcd detaches
//! it from its old lease, so the earlier expiry has no effect. Every lease also ends by itself some time after its
//! second. So keys expire even if no server runs, and slow servers do not race with etcd's clock.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use keelson_meta::Clock;
use keelson_storage::store::unix_seconds;
use parking_lot::Mutex;

use crate::client::{Client, LEASE_GRANT, LEASE_LEASES, LEASE_REVOKE, LEASE_TIME_TO_LIVE};
use crate::error::{Failure, plain};
use crate::proto::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};

/// The time between a lease's second and the end that etcd itself enforces.
const GRACE: Duration = Duration::from_secs(60);
/// The maximum time to live of a lease in etcd, in seconds.
const LONGEST: u64 = 9_000_000_000;
/// The maximum number of leases that are remembered. Older ones are requested again, and etcd answers at once that they
/// exist.
const MOST_GRANTED: usize = 16_384;

/// A lease's number has, from the top: a zero bit, this mark in 15 bits, a hash of the prefix in 14, the second in 34.
/// This distinguishes it from the leases of other programs and of other stores in the same etcd.
const MARK: u64 = 0x6b65;
const MARK_BITS: u32 = 48;
const HASH_BITS: u32 = 14;
const SECOND_BITS: u32 = 34;

/// The leases of one store.
#[derive(Debug)]
pub(crate) struct Leases {
    hash: u64,
    /// The seconds whose lease is known to exist.
    granted: Mutex<BTreeSet<u64>>,
}

impl Leases {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { hash: hash(prefix), granted: Mutex::default() }
    }

    /// Returns the lease of keys that expire at this time. Creates it if necessary.
    pub(crate) async fn lease_for(
        &self,
        expires: SystemTime,
        client: &Client,
        clock: &dyn Clock,
    ) -> Result<i64, Failure> {
        let second = unix_seconds(expires).min((1 << SECOND_BITS) - 1);
        let id = self.encode(second);
        if self.granted.lock().contains(&second) {
            return Ok(id);
        }
        let left = second.saturating_sub(unix_seconds(clock.now())).min(LONGEST);
        let ttl = i64::try_from(left + GRACE.as_secs()).unwrap_or(i64::MAX);
        match client.call::<_, LeaseGrantResponse>(LEASE_GRANT, LeaseGrantRequest { ttl, id }).await {
            Ok(answer) if !answer.error.is_empty() => return Err(Failure::Refused(plain(&answer.error).to_owned())),
            Ok(_) | Err(Failure::LeaseExists) => {}
            Err(failure) => return Err(failure),
        }
        let mut granted = self.granted.lock();
        granted.insert(second);
        if granted.len() > MOST_GRANTED {
            granted.pop_first();
        }
        Ok(id)
    }

    /// Clears the known leases, after one of them has ended.
    pub(crate) fn forget(&self) {
        self.granted.lock().clear();
    }

    /// Deletes the keys that expire at or before `now`. Returns their number.
    pub(crate) async fn expire(&self, now: SystemTime, client: &Client) -> Result<usize, Failure> {
        let now = unix_seconds(now);
        let mut count = 0;
        for second in self.due(now, client).await? {
            let id = self.encode(second);
            let request = LeaseTimeToLiveRequest { id, keys: true };
            let lease: LeaseTimeToLiveResponse = match client.call(LEASE_TIME_TO_LIVE, request).await {
                Err(Failure::LeaseNotFound) => continue,
                other => other?,
            };
            match client.call::<_, LeaseRevokeResponse>(LEASE_REVOKE, LeaseRevokeRequest { id }).await {
                Ok(_) => count += lease.keys.len(),
                // Another server was faster, or this is the second answer to a repeated call.
                Err(Failure::LeaseNotFound) => {}
                Err(failure) => return Err(failure),
            }
            self.granted.lock().remove(&second);
        }
        Ok(count)
    }

    /// The seconds of due leases, ascending.
    async fn due(&self, now: u64, client: &Client) -> Result<BTreeSet<u64>, Failure> {
        let mut due: BTreeSet<u64> = self.granted.lock().range(..=now).copied().collect();
        match client.call::<_, LeaseLeasesResponse>(LEASE_LEASES, LeaseLeasesRequest {}).await {
            Ok(all) => due.extend(all.leases.iter().filter_map(|lease| self.decode(lease.id)).filter(|at| *at <= now)),
            // A user without permission to list leases can't find leases of other servers. etcd ends those by itself.
            Err(Failure::Refused(_)) => {}
            Err(failure) => return Err(failure),
        }
        Ok(due)
    }

    fn encode(&self, second: u64) -> i64 {
        let id = (MARK << MARK_BITS) | (self.hash << SECOND_BITS) | second;
        i64::try_from(id).expect("the mark leaves the highest bit alone")
    }

    /// Returns the second of a lease if it belongs to this store.
    fn decode(&self, id: i64) -> Option<u64> {
        let id = u64::try_from(id).ok()?;
        let (own, second) = (id >> SECOND_BITS, id & ((1 << SECOND_BITS) - 1));
        (own == ((MARK << HASH_BITS) | self.hash)).then_some(second)
    }
}

/// FNV-1a, reduced to the bits in a lease's number. It must never change, since servers of all releases share leases.
fn hash(prefix: &str) -> u64 {
    let whole = keelson_meta::fnv1a(prefix);
    (whole ^ (whole >> HASH_BITS) ^ (whole >> (2 * HASH_BITS))) & ((1 << HASH_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_ids_decode_only_in_their_own_store() {
        let (ours, other) = (Leases::new("/registry"), Leases::new("/clusters/two"));
        for second in [0, 1, 1_700_000_000, (1 << 34) - 1] {
            let id = ours.encode(second);
            assert!(id > 0);
            assert_eq!(ours.decode(id), Some(second));
            assert_eq!(other.decode(id), None);
        }
        for foreign in [0, 1, -1, 7_587_861_234_567_890_123, i64::MAX, i64::MIN] {
            assert_eq!(ours.decode(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn numbers_are_the_same_in_every_version() {
        assert_eq!(Leases::new("/registry").encode(1_700_000_000), 7_738_731_449_260_699_904);
    }
}
