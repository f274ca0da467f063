//! Limits the space of the store that each user takes.
//!
//! A user may take as much space as is left: half of the free space. Another user may then take half of the rest, and
//! so on, so that no user fills the store for all others. The bytes of a user count half after each hour, and deletions
//! subtract bytes.
//!
//! All service accounts of a namespace count as one user. Administrators and the server itself have no limit. Steps of
//! deletions and leases have none either. A server that starts has counted nothing yet.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use keelson_access::User;
use keelson_access::user::MASTERS;
use keelson_meta::ApiError;
use parking_lot::Mutex;

use super::commit::{Content, Plan};
use crate::registry::Registry;

/// The half-life of the bytes that a user has taken.
const HALF_LIFE: Duration = Duration::from_secs(60 * 60);
/// The largest number of users with a count. Users with the fewest bytes are dropped first.
const MOST_USERS: usize = 4096;
/// The `Retry-After` of a refused write, in seconds.
const RETRY_SECONDS: u32 = 60;

/// The bytes that users have added, minus the bytes that they have removed.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    users: Mutex<HashMap<String, Recent>>,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    bytes: u64,
    /// The beginning of the current half-life.
    since: SystemTime,
}

impl Recent {
    fn at(self, now: SystemTime) -> Self {
        let passed = now.duration_since(self.since).unwrap_or_default();
        let halvings = u32::try_from(passed.as_secs() / HALF_LIFE.as_secs()).unwrap_or(u32::MAX);
        let bytes = self.bytes.checked_shr(halvings).unwrap_or_default();
        let since = if bytes == 0 { now } else { self.since + HALF_LIFE * halvings };
        Self { bytes, since }
    }
}

impl Registry {
    /// Checks that the user of a write may add its bytes.
    ///
    /// # Errors
    /// 429 if the user has taken as much as is left.
    pub(super) fn check_growth(&self, plan: &Plan<'_>) -> Result<(), ApiError> {
        let caller = plan.request.caller;
        let (before, after) = sizes(plan);
        match self.store().free_bytes() {
            // A full store refuses the write itself.
            Some(free) if free > 0 && after > before && !caller.is_server() => {
                self.growth.check(caller.user(), after - before, free, self.now())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Counts the bytes that a write has added or removed.
    pub(super) fn note_growth(&self, plan: &Plan<'_>) {
        let (before, after) = sizes(plan);
        if before != after && self.store().free_bytes().is_some() {
            self.growth.note(plan.request.caller.user(), before, after, self.now());
        }
    }
}

/// The size of the object in bytes before and after a write.
fn sizes(plan: &Plan<'_>) -> (usize, usize) {
    let after = if let Content::Put(new) = &plan.content { new.object().size() } else { 0 };
    (plan.live.map_or(0, |live| live.object.size()), after)
}

impl Growth {
    /// Checks that a user may add `bytes` when `free` bytes are free.
    ///
    /// # Errors
    /// 429 if the user has taken as much as is left.
    fn check(&self, user: &User, bytes: usize, free: u64, now: SystemTime) -> Result<(), ApiError> {
        let taken = self.users.lock().get(user.share_name()).map_or(0, |recent| recent.at(now).bytes);
        if taken.saturating_add(bytes as u64) <= free || user.is_in(MASTERS) {
            return Ok(());
        }
        let message = format!(
            "too much of the store: the user has added {taken} bytes within the last hours, and {free} bytes are left for all; \
             delete objects, or ask an administrator for room"
        );
        Err(ApiError::ShareExceeded { message, retry_after_seconds: RETRY_SECONDS })
    }

    /// Counts a write of a user that changes the size of an object from `before` to `after` bytes.
    fn note(&self, user: &User, before: usize, after: usize, now: SystemTime) {
        let mut users = self.users.lock();
        if let Some(recent) = users.get_mut(user.share_name()) {
            let Recent { bytes, since } = recent.at(now);
            let bytes = (bytes + after as u64).saturating_sub(before as u64);
            *recent = Recent { bytes, since };
        } else if after > before {
            if users.len() >= MOST_USERS {
                let mut all: Vec<u64> = users.values().map(|recent| recent.at(now).bytes).collect();
                let middle = MOST_USERS / 2;
                let (_, median, _) = all.select_nth_unstable(middle);
                let median = *median;
                users.retain(|_, recent| recent.at(now).bytes > median);
            }
            users.insert(user.share_name().to_owned(), Recent { bytes: (after - before) as u64, since: now });
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
    fn a_user_takes_half_of_the_room_and_gets_more_when_time_passes_or_objects_go() {
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
        add(&user("root", &[MASTERS]), start).unwrap();
        // 100 bytes are left. After three hours, fewer of the taken bytes count.
        assert!(add(&ann, start + 2 * HALF_LIFE).is_err());
        let account = |name: &str| growth.check(&user(name, &[]), 60, 100, start);
        growth.note(&user("system:serviceaccount:web:a", &[]), 0, 60, start);
        assert!(account("system:serviceaccount:web:b").is_err() && account("system:serviceaccount:webs:a").is_ok());
        growth.note(&ann, 200, 0, start + 2 * HALF_LIFE);
        assert!(growth.check(&ann, 100, 100, start + 2 * HALF_LIFE).is_ok(), "what was deleted counts no more");
        assert!(growth.check(&bob, 50, 100, start + 3 * HALF_LIFE).is_ok());
    }

    #[test]
    fn of_many_users_those_who_took_most_are_known() {
        let growth = Growth::default();
        let now = SystemTime::UNIX_EPOCH;
        for number in 0..=MOST_USERS {
            growth.note(&user(&format!("user-{number}"), &[]), 0, number + 1, now);
        }
        let users = growth.users.lock();
        assert!(users.len() <= MOST_USERS / 2 + 1 && users.contains_key(&format!("user-{}", MOST_USERS - 1)));
    }
}
