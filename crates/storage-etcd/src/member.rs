//! A member of etcd: its connections and its health.
//!
//! A dead member breaks its connection. A member that hangs does not. So a caller that waits long requests the member's
//! status, which a working member answers at once, even while the call itself takes long. If a member does not answer
//! this request, or has no leader for too long, it is given up, and all its callers fail at that moment.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keelson_supervision::warn_repeated;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use crate::connect::Connector;

/// The time without an answer after which a member's status is requested, and the interval of further requests.
const SUSPECT: Duration = Duration::from_secs(1);
/// The maximum age of a status that concurrent callers share.
const FRESH: Duration = Duration::from_millis(900);
/// The time limit of a call after the leader has changed since it was sent. etcd itself waits seven seconds for the
/// answer of a lost leader.
const GRACE: Duration = Duration::from_millis(700);
/// The maximum number of consecutive statuses without a leader. An election takes one or two seconds. An isolated
/// member never gets a leader.
const ELECTION: u32 = 4;

/// The health of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The member has a leader in this term.
    Well { term: u64 },
    /// The member answers, but has no leader.
    Leaderless,
    /// The member does not answer.
    Gone,
}

/// The reason for which a call will not be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The member was given up.
    Member,
    /// The leader may have been lost.
    Leader,
}

/// The connections to a member. Watches have a separate one, so that a large response does not delay their events.
#[derive(Clone)]
struct Connections {
    calls: Channel,
    watches: Channel,
}

pub(crate) struct Member {
    pub(crate) endpoint: String,
    connector: Connector,
    connections: RwLock<Connections>,
    /// The last status with its time. Locked during a request, so that one request serves all callers.
    looked: tokio::sync::Mutex<Option<(Instant, Health)>>,
    /// The number of consecutive statuses without a leader.
    leaderless: AtomicU32,
    /// The number of times that the member was given up.
    given_up: watch::Sender<u64>,
    /// The last failure, for the error that no member answers.
    complaint: Mutex<Option<String>>,
}

impl Member {
    pub(crate) fn new(endpoint: String, connector: Connector) -> Self {
        let connections = Connections { calls: connector.connect(), watches: connector.connect() };
        Self {
            endpoint,
            connector,
            connections: RwLock::new(connections),
            looked: tokio::sync::Mutex::default(),
            leaderless: AtomicU32::new(0),
            given_up: watch::Sender::new(0),
            complaint: Mutex::default(),
        }
    }

    pub(crate) fn calls(&self) -> Channel {
        self.connections.read().calls.clone()
    }

    pub(crate) fn watches(&self) -> Channel {
        self.connections.read().watches.clone()
    }

    /// Records the failure of a call.
    pub(crate) fn complain(&self, cause: &str) {
        *self.complaint.lock() = Some(cause.to_owned());
    }

    /// The last failure.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.complaint.lock().clone()
    }

    /// A receiver that changes when the member is given up.
    pub(crate) fn life(&self) -> watch::Receiver<u64> {
        self.given_up.subscribe()
    }

    /// Returns when a call that starts now will not be answered, according to repeated results of `look`.
    pub(crate) async fn until_lost<F: Future<Output = Health>>(&self, look: impl Fn() -> F) -> Lost {
        let mut life = self.life();
        let doubt = async {
            let (mut term, mut was_leaderless) = (None, false);
            loop {
                sleep(SUSPECT).await;
                match self.is_of_use(&look).await {
                    Some(Health::Well { term: now }) if was_leaderless || *term.get_or_insert(now) != now => {
                        sleep(GRACE).await;
                        return Lost::Leader;
                    }
                    Some(health) => was_leaderless |= health == Health::Leaderless,
                    None => {
                        self.give_up();
                        return Lost::Member;
                    }
                }
            }
        };
        tokio::select! {
            // ORDER: a member that was given up is checked first, so that its status is not requested again.
            biased;
            _ = life.changed() => Lost::Member,
            lost = doubt => lost,
        }
    }

    /// Opens a new connection at the next watch, possibly to another address of the same name.
    pub(crate) fn renew_watches(&self) {
        self.connections.write().watches = self.connector.connect();
    }

    /// Returns the member's health. `None` if the member must be given up.
    async fn is_of_use<F: Future<Output = Health>>(&self, look: &impl Fn() -> F) -> Option<Health> {
        let mut looked = self.looked.lock().await;
        if let Some((when, health)) = *looked
            && when.elapsed() < FRESH
        {
            return Some(health);
        }
        let health = look().await;
        match health {
            Health::Well { .. } => self.leaderless.store(0, Ordering::Relaxed),
            Health::Leaderless if self.leaderless.fetch_add(1, Ordering::Relaxed) + 1 < ELECTION => {}
            Health::Leaderless | Health::Gone => return None,
        }
        *looked = Some((Instant::now(), health));
        Some(health)
    }

    /// Drops the connections with all their calls, since they may not reach the member any more.
    fn give_up(&self) {
        warn_repeated!(&self.endpoint; endpoint = %self.endpoint, "an etcd member hangs, or has lost the others");
        self.leaderless.store(0, Ordering::Relaxed);
        // ORDER: the connections are replaced first, since waiting callers retry at once and must use the new ones.
        *self.connections.write() = Connections { calls: self.connector.connect(), watches: self.connector.connect() };
        self.given_up.send_modify(|times| *times += 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::time::timeout;

    use super::*;
    use crate::EtcdConfig;

    fn member() -> Member {
        crate::connect::members(&EtcdConfig::new(["127.0.0.1:1"]), &std::sync::Arc::default()).unwrap().remove(0)
    }

    /// Runs 50 callers on a member with this health. Returns their result, their wait (at most half a minute), and the
    /// number of status requests.
    async fn wait(found: impl Fn(usize) -> Health) -> (Option<Lost>, Duration, usize) {
        let (member, looked) = (member(), AtomicUsize::new(0));
        let look = || async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            found(looked.fetch_add(1, Ordering::Relaxed))
        };
        let begun = Instant::now();
        let waits = futures::future::join_all((0..50).map(|_| member.until_lost(look)));
        let lost = timeout(Duration::from_secs(30), waits).await.ok();
        let first = lost.map(|lost| lost[0]);
        (first, begun.elapsed(), looked.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_check_of_a_lost_member() {
        let waited = wait(|_| Health::Gone).await;
        assert_eq!(waited, (Some(Lost::Member), SUSPECT + Duration::from_millis(100), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_lives_may_take_its_time() {
        let (lost, _, looked) = wait(|_| Health::Well { term: 5 }).await;
        assert!(lost.is_none() && (25..=30).contains(&looked), "{lost:?} {looked}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_to_a_lost_leader_are_not_awaited() {
        for changed in [
            |looked: usize| Health::Well { term: if looked < 2 { 5 } else { 6 } },
            |looked: usize| if looked < 2 { Health::Leaderless } else { Health::Well { term: 6 } },
        ] {
            let (lost, waited, looked) = wait(changed).await;
            assert!(
                lost == Some(Lost::Leader) && waited < Duration::from_secs(5) && looked == 3,
                "{waited:?} {looked}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_stays_without_a_leader_is_left() {
        let (lost, waited, looked) = wait(|_| Health::Leaderless).await;
        assert!(lost == Some(Lost::Member) && waited < Duration::from_secs(6) && looked == 4, "{waited:?} {looked}");
    }
}
