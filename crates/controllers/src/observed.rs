//! Observes when the leases and records of other servers change. A server decides about other servers only by these
//! observations, since clocks differ.
//!
//! As in the leader election of Kubernetes' clients, a lease is valid while it changes within its duration, measured by
//! the observer's monotonic clock. Its renewal time is ignored. Times in which the observer or the store paused don't
//! count towards the duration.

use std::collections::HashMap;
use std::mem;
use std::time::Duration;

use keelson_meta::Revision;
use tokio::time::Instant;

/// The observations of leases so far.
#[derive(Debug)]
pub struct Observations {
    /// The longest time between two reads that still counts. After a longer one, observation starts again.
    longest_pause: Duration,
    known: HashMap<String, Observation>,
    looked: Option<Instant>,
}

/// The observations of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseObservations {
    /// The observed time since the last change.
    pub unchanged: Duration,
    /// True if the lease was seen to appear or to change.
    pub moved: bool,
}

#[derive(Clone, Copy, Debug)]
struct Observation {
    revision: Revision,
    since: Instant,
    moved: bool,
}

impl Observations {
    /// Creates observations for an observer that reads the leases at least every `longest_pause`.
    pub fn new(longest_pause: Duration) -> Self {
        Self { longest_pause, known: HashMap::new(), looked: None }
    }

    /// Records the current leases by name and revision. Returns an observation for each, in the same order.
    pub fn look<'n>(&mut self, leases: impl IntoIterator<Item = (&'n str, Revision)>) -> Vec<LeaseObservations> {
        let now = Instant::now();
        let paused = self.looked.replace(now).is_none_or(|looked| now - looked > self.longest_pause);
        let before = mem::take(&mut self.known);
        let mut seen = Vec::new();
        for (name, revision) in leases {
            let fresh = |moved| Observation { revision, since: now, moved };
            let known = match before.get(name) {
                Some(known) if known.revision != revision => fresh(true),
                Some(known) if !paused => *known,
                Some(_) => fresh(false),
                None => fresh(!paused),
            };
            seen.push(LeaseObservations { unchanged: now - known.since, moved: known.moved });
            self.known.insert(name.to_owned(), known);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observations() -> Observations {
        Observations::new(Duration::from_secs(25))
    }

    /// Records leases with these names and revisions. For each, compares the flag `moved` and the seconds without a
    /// change.
    fn check(observations: &mut Observations, leases: &[(&str, u64)], expect: &[(bool, u64)]) {
        let seen = observations.look(leases.iter().map(|(name, revision)| (*name, Revision::new(*revision))));
        let found: Vec<_> = seen.iter().map(|seen| (seen.moved, seen.unchanged.as_secs())).collect();
        assert_eq!(found, expect);
    }

    async fn seconds(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_age_of_a_lease_counts_from_its_last_change() {
        let mut seen = observations();
        check(&mut seen, &[("a", 1), ("b", 2)], &[(false, 0), (false, 0)]);
        seconds(10).await;
        check(&mut seen, &[("a", 1), ("b", 3), ("c", 4)], &[(false, 10), (true, 0), (true, 0)]);
        seconds(10).await;
        check(&mut seen, &[("a", 1), ("b", 3), ("c", 5)], &[(false, 20), (true, 10), (true, 0)]);
        check(&mut seen, &[("c", 5)], &[(true, 0)]);
        check(&mut seen, &[("a", 1), ("c", 5)], &[(true, 0), (true, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn unobserved_leases_do_not_age() {
        let mut seen = observations();
        check(&mut seen, &[("a", 1), ("b", 2)], &[(false, 0), (false, 0)]);
        seconds(10).await;
        check(&mut seen, &[("a", 1), ("b", 3)], &[(false, 10), (true, 0)]);
        seconds(3600).await;
        check(&mut seen, &[("a", 4), ("b", 3), ("c", 5)], &[(true, 0), (false, 0), (false, 0)]);
    }
}
