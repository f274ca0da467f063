//! One member of etcd: the connections to it, and whether it is still of use.
//!
//! A member that has died says so, by a connection that breaks. One that hangs says nothing: whoever waits for it asks after a
//! while what it is, which a member that lives tells at once, however long the question itself takes. One that does not
//! tell, or tells for too long that it has no leader, is given up, and everybody who waits for it learns so at that moment.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::transport::Channel;

use crate::connect::Connector;

/// How long a member may leave everything unanswered before it is asked how it is, and then asked again.
const SUSPECT: Duration = Duration::from_secs(1);
/// How often in a row it may have no leader. An election takes one or two seconds; who is cut off from the others waits for ever.
const ELECTION: u32 = 4;

/// How a member says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Well,
    /// It lives, but does not know who leads.
    Leaderless,
    /// It does not answer.
    Gone,
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
    /// When it last answered a call.
    heard: Mutex<Instant>,
    /// Held while it is asked whether it lives, so that one asks for all.
    asking: tokio::sync::Mutex<()>,
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
            heard: Mutex::new(Instant::now()),
            asking: tokio::sync::Mutex::default(),
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

    /// Notes that it has answered a call.
    pub(crate) fn has_answered(&self) {
        self.leaderless.store(0, Ordering::Relaxed);
        *self.heard.lock() = Instant::now();
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

    /// Ends when the member is given up, which this does itself when it must after what `look` finds.
    pub(crate) async fn until_given_up<F: Future<Output = Health>>(&self, look: impl Fn() -> F) {
        let mut life = self.life();
        let doubt = async {
            let mut since = Instant::now();
            loop {
                let heard = *self.heard.lock();
                sleep_until(heard.max(since) + SUSPECT).await;
                if self.is_silent() && !self.is_of_use(&look).await {
                    return self.give_up();
                }
                since = Instant::now();
            }
        };
        tokio::select! {
            // ORDER: who is told that it is given up does not ask any more.
            biased;
            _ = life.changed() => {}
            () = doubt => {}
        }
    }

    /// Connects anew, perhaps to another address of the same name, when it is next used for watches.
    pub(crate) fn renew_watches(&self) {
        self.connections.write().watches = self.connector.connect();
    }

    async fn is_of_use<F: Future<Output = Health>>(&self, look: &impl Fn() -> F) -> bool {
        let _one = self.asking.lock().await;
        // Another may have looked meanwhile.
        if !self.is_silent() {
            return true;
        }
        match look().await {
            Health::Well => self.leaderless.store(0, Ordering::Relaxed),
            Health::Leaderless if self.leaderless.fetch_add(1, Ordering::Relaxed) + 1 < ELECTION => {}
            Health::Leaderless | Health::Gone => return false,
        }
        *self.heard.lock() = Instant::now();
        true
    }

    fn is_silent(&self) -> bool {
        self.heard.lock().elapsed() >= SUSPECT
    }

    /// Whatever is under way on its connections is lost, and so are they: they may lead nowhere.
    fn give_up(&self) {
        tracing::warn!(endpoint = %self.endpoint, "an etcd member hangs, or has lost the others");
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
        crate::connect::members(&EtcdConfig::new(["127.0.0.1:1"])).unwrap().remove(0)
    }

    /// How long fifty wait for a member that is found like this, at the most half a minute, and how often one of them looked.
    async fn wait(found: impl Fn(usize) -> Health) -> (Duration, usize) {
        let (member, looked) = (member(), AtomicUsize::new(0));
        let look = || async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            found(looked.fetch_add(1, Ordering::Relaxed))
        };
        let begun = Instant::now();
        let waits = futures::future::join_all((0..50).map(|_| member.until_given_up(look)));
        let _ = timeout(Duration::from_secs(30), waits).await;
        (begun.elapsed(), looked.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_look_once_and_learn_together_that_a_member_is_gone() {
        assert_eq!(wait(|_| Health::Gone).await, (SUSPECT + Duration::from_millis(100), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_lives_may_take_its_time() {
        let (waited, looked) = wait(|_| Health::Well).await;
        assert!(waited == Duration::from_secs(30) && (15..=30).contains(&looked), "{waited:?} {looked}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_election_is_waited_for_and_a_member_that_is_cut_off_is_not() {
        let (waited, _) = wait(|looked| if looked % 4 < 3 { Health::Leaderless } else { Health::Well }).await;
        assert_eq!(waited, Duration::from_secs(30));
        let (waited, looked) = wait(|_| Health::Leaderless).await;
        assert!(waited < Duration::from_secs(6) && looked == 4, "{waited:?} {looked}");
    }
}
