//! One member of etcd: the connections to it, and whether it still lives.
//!
//! A member that has died says so, by a connection that breaks. One that hangs, or is cut off, says nothing: whoever waits for
//! it asks after a while what it is, which a member that lives tells at once, however long the question itself takes. One
//! that does not tell is given up, and everybody who waits for it learns so at the same moment.

use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::transport::Channel;

use crate::connect::Connector;

/// How long a member may leave everything unanswered before it is asked whether it lives.
const SUSPECT: Duration = Duration::from_secs(1);

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

    /// Ends when the member is given up, which this does itself when `lives` says that it does not.
    pub(crate) async fn until_given_up<F: Future<Output = bool>>(&self, lives: impl Fn() -> F) {
        let mut life = self.life();
        let doubt = async {
            let mut since = Instant::now();
            loop {
                let heard = *self.heard.lock();
                sleep_until(heard.max(since) + SUSPECT).await;
                if self.is_silent() && !self.ask(&lives).await {
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

    async fn ask<F: Future<Output = bool>>(&self, lives: &impl Fn() -> F) -> bool {
        let _one = self.asking.lock().await;
        // Another may have asked meanwhile.
        if self.is_silent() && !lives().await {
            return false;
        }
        self.has_answered();
        true
    }

    fn is_silent(&self) -> bool {
        self.heard.lock().elapsed() >= SUSPECT
    }

    /// Whatever is under way on its connections is lost, and so are they: they may lead nowhere.
    fn give_up(&self) {
        tracing::warn!(endpoint = %self.endpoint, "an etcd member has stopped answering");
        // ORDER: who is told tries again at once, and must find the new connections.
        *self.connections.write() = Connections { calls: self.connector.connect(), watches: self.connector.connect() };
        self.given_up.send_modify(|times| *times += 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{Duration, timeout};

    use super::*;
    use crate::EtcdConfig;

    fn member() -> Member {
        crate::connect::members(&EtcdConfig::new(["127.0.0.1:1"])).unwrap().remove(0)
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_ask_once_and_learn_together_that_a_member_is_gone() {
        let (member, asked) = (member(), AtomicUsize::new(0));
        let lives = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
            false
        };
        let begun = Instant::now();
        futures::future::join_all((0..50).map(|_| member.until_given_up(lives))).await;
        assert_eq!((asked.load(Ordering::Relaxed), begun.elapsed()), (1, SUSPECT + Duration::from_millis(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_lives_may_take_its_time() {
        let (member, asked) = (member(), AtomicUsize::new(0));
        let lives = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            true
        };
        let waits = futures::future::join_all((0..50).map(|_| member.until_given_up(lives)));
        assert!(timeout(SUSPECT * 10, waits).await.is_err());
        assert!((5..=10).contains(&asked.load(Ordering::Relaxed)), "{asked:?}");
    }
}
