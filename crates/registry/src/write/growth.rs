//! Limits the space of the store that each user takes, and its part of the history.
//!
//! A user may take as much space as is left: half of the free space. Another user may then take half of the rest, and
//! so on, so that no user fills the store for all others. The bytes of a user count half after each hour, and deletions
//! subtract bytes.
//!
//! A user may replace half of the bytes that the history keeps, in about a minute, so that it lasts for others. Service
//! accounts of a namespace count as one user. Administrators and the server itself have no limit. Deletions and leases
//! are never refused. A server that starts has counted nothing yet.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use keelson_access::User;
use keelson_access::user::MASTERS;
use keelson_meta::ApiError;
use keelson_storage::Relief;
use parking_lot::Mutex;

use super::commit::{Content, Plan};
use super::room;
use crate::registry::Registry;

/// The half-life of the bytes that a user has added.
const ADDED_HALF_LIFE: Duration = Duration::from_secs(60 * 60);
/// The half-life of the bytes that a user has replaced.
const REPLACED_HALF_LIFE: Duration = Duration::from_secs(60);
/// A user may replace one in this many parts of the history.
const HISTORY_PART: u64 = 2;
/// The bytes that a user may replace in a small history.
const LEAST_HISTORY: u64 = 64 << 20;
/// The largest number of users with a count. Users with the fewest bytes are dropped first.
const MOST_USERS: usize = 4096;
/// The `Retry-After` of a refused write, in seconds.
const RETRY_SECONDS: u32 = 60;

/// The bytes that users have added, minus the bytes that they have removed, and the bytes that they have replaced or
/// removed.
#[derive(Debug)]
pub(crate) struct Growth {
    added: Counts,
    replaced: Counts,
}

impl Default for Growth {
    fn default() -> Self {
        let counts = |half_life| Counts { half_life, users: Mutex::default() };
        Self { added: counts(ADDED_HALF_LIFE), replaced: counts(REPLACED_HALF_LIFE) }
    }
}

/// The recent bytes of users.
#[derive(Debug)]
struct Counts {
    half_life: Duration,
    users: Mutex<HashMap<String, Recent>>,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    bytes: u64,
    /// The beginning of the current half-life.
    since: SystemTime,
}

impl Recent {
    fn at(self, now: SystemTime, half_life: Duration) -> Self {
        let passed = now.duration_since(self.since).unwrap_or_default();
        let halvings = u32::try_from(passed.as_secs() / half_life.as_secs()).unwrap_or(u32::MAX);
        let bytes = self.bytes.checked_shr(halvings).unwrap_or_default();
        let since = if bytes == 0 { now } else { self.since + half_life * halvings };
        Self { bytes, since }
    }
}

impl Registry {
    /// Checks that the user of a write may add its bytes.
    ///
    /// # Errors
    /// 429 if the user has taken as much as is left.
    pub(super) fn check_growth(&self, plan: &Plan<'_>, relief: Relief) -> Result<(), ApiError> {
        let caller = plan.request.caller;
        let (before, after) = sizes(plan);
        // An object that only gets a little smaller frees no room, and its former version goes into the history.
        let is_small_relief = relief == Relief::Upkeep && before > room::SMALL_BYTES && after > before / 2;
        if (relief != Relief::None && !is_small_relief) || caller.is_server() || caller.user().is_in(MASTERS) {
            return Ok(());
        }
        if let Some(limit) = self.store().history_limit() {
            self.growth.check_replaced(caller.user(), limit, self.now())?;
        }
        match self.store().free_bytes() {
            // A full store refuses the write itself.
            Some(free) if free > 0 && after > before => {
                self.growth.check(caller.user(), after - before, free, self.now())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Counts the bytes that a write has added, replaced or removed.
    pub(super) fn note_growth(&self, plan: &Plan<'_>) {
        let (before, after) = sizes(plan);
        let user = plan.request.caller.user();
        if before > 0 && self.store().history_limit().is_some() {
            self.growth.replaced.change(user, before, 0, self.now());
        }
        if before != after && self.store().free_bytes().is_some() {
            self.growth.note(user, before, after, self.now());
        }
    }
}

/// The size of the object in bytes before and after a write.
fn sizes(plan: &Plan<'_>) -> (usize, usize) {
    let after = if let Content::Put(new) = &plan.content { new.object().size() } else { 0 };
    (plan.live.map_or(0, |live| live.size()), after)
}

impl Growth {
    /// Checks that a user may add `bytes` when `free` bytes are free.
    ///
    /// # Errors
    /// 429 if the user has taken as much as is left.
    fn check(&self, user: &User, bytes: usize, free: u64, now: SystemTime) -> Result<(), ApiError> {
        let taken = self.added.count(user, now);
        if taken.saturating_add(bytes as u64) <= free {
            return Ok(());
        }
        let message = format!(
            "too much of the store: the user has added {taken} bytes within the last hours, and {free} bytes are left for all; \
             delete objects, or ask an administrator for room"
        );
        Err(ApiError::ShareExceeded { message, retry_after_seconds: RETRY_SECONDS })
    }

    /// Checks that a user may replace more bytes of a history that keeps `limit` bytes.
    ///
    /// # Errors
    /// 429 if the user has replaced its part.
    fn check_replaced(&self, user: &User, limit: u64, now: SystemTime) -> Result<(), ApiError> {
        let (replaced, most) = (self.replaced.count(user, now), (limit / HISTORY_PART).max(LEAST_HISTORY));
        if replaced <= most {
            return Ok(());
        }
        let message = format!(
            "too much of the history: the user has replaced {replaced} bytes within the last minutes, of {most} bytes that one \
             user may replace; write less often, or ask an administrator for a larger --store-history-bytes"
        );
        Err(ApiError::ShareExceeded { message, retry_after_seconds: RETRY_SECONDS })
    }

    /// Counts a write of a user that changes the size of an object from `before` to `after` bytes.
    fn note(&self, user: &User, before: usize, after: usize, now: SystemTime) {
        self.added.change(user, after, before, now);
    }
}

impl Counts {
    fn count(&self, user: &User, now: SystemTime) -> u64 {
        self.users.lock().get(user.share_name()).map_or(0, |recent| recent.at(now, self.half_life).bytes)
    }

    /// Adds and subtracts bytes.
    fn change(&self, user: &User, plus: usize, minus: usize, now: SystemTime) {
        let at = |recent: &Recent| recent.at(now, self.half_life);
        let mut users = self.users.lock();
        if let Some(recent) = users.get_mut(user.share_name()) {
            let Recent { bytes, since } = at(recent);
            let bytes = (bytes + plus as u64).saturating_sub(minus as u64);
            *recent = Recent { bytes, since };
        } else if plus > minus {
            if users.len() >= MOST_USERS {
                let mut all: Vec<u64> = users.values().map(|recent| at(recent).bytes).collect();
                let middle = MOST_USERS / 2;
                let (_, median, _) = all.select_nth_unstable(middle);
                let median = *median;
                users.retain(|_, recent| at(recent).bytes > median);
            }
            users.insert(user.share_name().to_owned(), Recent { bytes: (plus - minus) as u64, since: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(ToString::to_string).collect();
        User { name: name.to_owned(), groups, ..User::default() }
    }

    #[test]
    fn the_space_share_of_a_user_recovers_over_time() {
        let (growth, ann, bob) = (Growth::default(), user("ann", &[]), user("bob", &[]));
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let mut free = 1000;
        let mut add = |user: &User, now: SystemTime| {
            growth.check(user, 100, free, now)?;
            growth.note(user, 0, 100, now);
            free -= 100;
            Ok::<_, ApiError>(())
        };
        (0..5).for_each(|_| add(&ann, start).unwrap());
        let refused = add(&ann, start).unwrap_err();
        assert_eq!(refused.code(), 429);
        assert!(refused.to_string().contains("added 500 bytes"), "{refused}");
        (0..3).for_each(|_| add(&bob, start).unwrap());
        assert!(add(&bob, start).is_err());
        // 200 bytes are left. After three hours, fewer of the taken bytes count.
        assert!(growth.check(&ann, 100, 100, start + 2 * ADDED_HALF_LIFE).is_err());
        let account = |name: &str| growth.check(&user(name, &[]), 60, 100, start);
        growth.note(&user("system:serviceaccount:web:a", &[]), 0, 60, start);
        assert!(account("system:serviceaccount:web:b").is_err() && account("system:serviceaccount:webs:a").is_ok());
        growth.note(&ann, 200, 0, start + 2 * ADDED_HALF_LIFE);
        assert!(growth.check(&ann, 100, 100, start + 2 * ADDED_HALF_LIFE).is_ok(), "what was deleted counts no more");
        assert!(growth.check(&bob, 50, 100, start + 3 * ADDED_HALF_LIFE).is_ok());
    }

    #[test]
    fn a_user_replaces_a_part_of_the_history_in_a_minute() {
        let (growth, ann) = (Growth::default(), user("ann", &[]));
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let limit = 4 * LEAST_HISTORY;
        let megabytes = |count: usize| growth.replaced.change(&ann, count << 20, 0, start);
        megabytes(128);
        assert!(growth.check_replaced(&ann, limit, start).is_ok());
        assert!(growth.check_replaced(&ann, 1, start).is_err(), "a small history");
        megabytes(1);
        let refused = growth.check_replaced(&ann, limit, start).unwrap_err();
        assert_eq!(refused.code(), 429);
        assert!(growth.check_replaced(&user("bob", &[]), limit, start).is_ok());
        assert!(growth.check_replaced(&ann, limit, start + REPLACED_HALF_LIFE).is_ok());
    }

    #[test]
    fn growth_keeps_the_users_with_the_most_bytes() {
        let growth = Growth::default();
        let now = SystemTime::UNIX_EPOCH;
        for number in 0..=MOST_USERS {
            growth.note(&user(&format!("user-{number}"), &[]), 0, number + 1, now);
        }
        let users = growth.added.users.lock();
        assert!(users.len() <= MOST_USERS / 2 + 1 && users.contains_key(&format!("user-{}", MOST_USERS - 1)));
    }
}
