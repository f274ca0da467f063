//! Leases that still change: all that a server can know of others without comparing its clock with theirs.
//!
//! As in the leader election of Kubernetes' clients, a lease stands as long as it was seen to change within its time, by
//! the own monotonic clock; when its holder says that it was renewed is not looked at. Time counts only while somebody
//! looks: what happened in a longer pause, of this server or of the store, is not held against anybody.

use std::collections::HashMap;
use std::mem;
use std::time::Duration;

use keelson_meta::Revision;
use tokio::time::Instant;

use crate::client::Stored;

/// The longest time between two looks after which the first is still good for something: looks are 10 seconds apart.
const LONGEST_PAUSE: Duration = Duration::from_secs(25);

/// What was seen of leases so far.
#[derive(Default)]
pub(crate) struct Observations {
    seen: HashMap<String, Seen>,
    looked: Option<Instant>,
}

/// A lease as it is now, and what was seen of it.
pub(crate) struct Observed {
    pub(crate) lease: Stored,
    /// How long it has been seen to stay as it is.
    pub(crate) unchanged: Duration,
    /// Whether it was seen to change or to appear, ever.
    pub(crate) moved: bool,
}

#[derive(Clone, Copy)]
struct Seen {
    revision: Revision,
    since: Instant,
    moved: bool,
}

impl Observations {
    /// Takes in what the leases are now.
    pub(crate) fn look(&mut self, leases: Vec<Stored>) -> Vec<Observed> {
        let now = Instant::now();
        let paused = self.looked.replace(now).is_none_or(|looked| now - looked > LONGEST_PAUSE);
        let before = mem::take(&mut self.seen);
        let mut observed = Vec::with_capacity(leases.len());
        for lease in leases {
            let name = lease.object.name().to_owned();
            let fresh = |moved| Seen { revision: lease.revision, since: now, moved };
            let seen = match before.get(&name) {
                Some(known) if known.revision != lease.revision => fresh(true),
                Some(known) if !paused => *known,
                Some(_) => fresh(false),
                None => fresh(!paused),
            };
            observed.push(Observed { lease, unchanged: now - seen.since, moved: seen.moved });
            self.seen.insert(name, seen);
        }
        observed
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::Object;
    use keelson_meta::json::json;

    use super::*;

    /// Looks at leases of these names and revisions, and tells of each whether it was seen to move and for how many seconds
    /// it has not.
    fn check(observations: &mut Observations, leases: &[(&str, u64)], expect: &[(bool, u64)]) {
        let stored = |(name, revision): &(&str, u64)| {
            let object = Object::from_value(json!({"metadata": {"name": name}})).unwrap();
            Stored { object, revision: Revision::new(*revision) }
        };
        let observed = observations.look(leases.iter().map(stored).collect());
        let found: Vec<_> = observed.iter().map(|lease| (lease.moved, lease.unchanged.as_secs())).collect();
        assert_eq!(found, expect);
    }

    async fn seconds(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_as_old_as_it_was_seen_to_stay_the_same() {
        let mut seen = Observations::default();
        check(&mut seen, &[("a", 1), ("b", 2)], &[(false, 0), (false, 0)]);
        seconds(10).await;
        check(&mut seen, &[("a", 1), ("b", 3), ("c", 4)], &[(false, 10), (true, 0), (true, 0)]);
        seconds(10).await;
        check(&mut seen, &[("a", 1), ("b", 3), ("c", 5)], &[(false, 20), (true, 10), (true, 0)]);
        check(&mut seen, &[("c", 5)], &[(true, 0)]);
        check(&mut seen, &[("a", 1), ("c", 5)], &[(true, 0), (true, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_looked_at_has_not_aged() {
        let mut seen = Observations::default();
        check(&mut seen, &[("a", 1), ("b", 2)], &[(false, 0), (false, 0)]);
        seconds(10).await;
        check(&mut seen, &[("a", 1), ("b", 3)], &[(false, 10), (true, 0)]);
        seconds(3600).await;
        check(&mut seen, &[("a", 4), ("b", 3), ("c", 5)], &[(true, 0), (false, 0), (false, 0)]);
    }
}
