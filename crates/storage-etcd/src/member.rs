//! One member of etcd: the connections to it, and whether it is still of use.
//!
//! A member that has died says so, by a connection that breaks. One that hangs says nothing: whoever waits for it asks after a
//! while what it is, which a member that lives tells at once, however long the question itself takes. One that does not
//! tell, or tells for too long that it has no leader, is given up, and everybody who waits for it learns so at that moment.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keelson_supervision::warn_repeated;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use crate::connect::Connector;

/// How long a member may leave a question unanswered before it is asked how it is, and then asked again.
const SUSPECT: Duration = Duration::from_secs(1);
/// How old what it has said may be, for many who wait at the same time.
const FRESH: Duration = Duration::from_millis(900);
/// How long a question may take once there is another leader than when it was put. etcd itself waits for seven seconds for
/// the answer of a leader that is gone.
const GRACE: Duration = Duration::from_millis(700);
/// How often in a row it may have no leader. An election takes one or two seconds; who is cut off from the others waits for ever.
const ELECTION: u32 = 4;

/// How a member says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It follows or leads in this term.
    Well { term: u64 },
    /// It lives, but does not know who leads.
    Leaderless,
    /// It does not answer.
    Gone,
}

/// Why a question will not be answered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// With the member, which is given up.
    Member,
    /// Perhaps, with a leader that there is no more.
    Leader,
}

/// The connections to one member. A watch has its own, so that a long answer does not stand before its events.
#[derive(Clone)]
struct Connections {
    calls: Channel,
    watches: Channel,
}

pub(crate) struct Member {
    pub(crate) endpoint: String,
    connector: Connector,
    connections: RwLock<Connections>,
    /// How it last said that it is, and when. Held while it is asked, so that one asks for all.
    looked: tokio::sync::Mutex<Option<(Instant, Health)>>,
    /// How often in a row it had no leader.
    leaderless: AtomicU32,
    /// How often it was given up.
    given_up: watch::Sender<u64>,
    /// Why the last call failed, for whoever finds no member that answers.
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

    /// Notes why a call has failed.
    pub(crate) fn complain(&self, cause: &str) {
        *self.complaint.lock() = Some(cause.to_owned());
    }

    /// Why the last call that failed did so.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.complaint.lock().clone()
    }

    /// Tells whoever holds it when the member is given up.
    pub(crate) fn life(&self) -> watch::Receiver<u64> {
        self.given_up.subscribe()
    }

    /// Ends when what is asked of the member now will not be answered any more, after what `look` finds again and again.
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
            // ORDER: who is told that it is given up does not ask any more.
            biased;
            _ = life.changed() => Lost::Member,
            lost = doubt => lost,
        }
    }

    /// Connects anew, perhaps to another address of the same name, when it is next used for watches.
    pub(crate) fn renew_watches(&self) {
        self.connections.write().watches = self.connector.connect();
    }

    /// How the member is, or none when it is of no use any more.
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

    /// Whatever is under way on its connections is lost, and so are they: they may lead nowhere.
    fn give_up(&self) {
        warn_repeated!(&self.endpoint; endpoint = %self.endpoint, "an etcd member hangs, or has lost the others");
        self.leaderless.store(0, Ordering::Relaxed);
        // ORDER: who is told tries again at once, and must find the new connections.
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

    /// What fifty learn who wait for a member that is found like this, how long they wait, at the most half a minute, and how
    /// often one of them looked.
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
    async fn many_who_wait_look_once_and_learn_together_that_a_member_is_gone() {
        let waited = wait(|_| Health::Gone).await;
        assert_eq!(waited, (Some(Lost::Member), SUSPECT + Duration::from_millis(100), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_lives_may_take_its_time() {
        let (lost, _, looked) = wait(|_| Health::Well { term: 5 }).await;
        assert!(lost.is_none() && (25..=30).contains(&looked), "{lost:?} {looked}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_of_a_leader_that_is_gone_is_not_waited_for() {
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
