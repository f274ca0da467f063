//! The servers on a store as one of them sees the others: by their identity leases, and by whether these still change.
//!
//! Nobody's clock is compared with another's. A server that has just started does not know yet who lives, and says so.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, Revision};
use keelson_registry::Registry;
use keelson_supervision::warn_repeated;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, SERVER_MANAGER, Stored};
use crate::identity::{
    AGGREGATED_IDENTITY, CLIENT_ADDRESS_ANNOTATION, IDENTITY_LABEL, IDENTITY_VALUE, PEER_ADDRESS_ANNOTATION,
};
use crate::leases;
use crate::observed::{Observations, Seen};

/// How many renewals a server may miss before it is taken to be gone, as far as clients are sent to it.
const MISSED_RENEWALS: u32 = 3;
/// After how many of its intervals a renewal is late: half of one more is for the time between two looks.
const LATE_AFTER: f32 = 1.5;
/// The longest time between two looks at the leases that was no pause: looks are 10 seconds apart.
const LONGEST_PAUSE: Duration = Duration::from_secs(25);
/// How often the leases of dead servers are looked for at the least: more often than what was no pause, or none would be seen to stand
/// still where nobody else looks.
const COLLECTION_INTERVAL: Duration = Duration::from_secs(10);

/// The servers that have registered.
pub struct RegisteredServers {
    client: Client,
    /// This server's own address, if others can reach it: it is known to live.
    own: Option<SocketAddr>,
    /// How often each renews its lease.
    interval: Duration,
    seen: Mutex<Observations>,
}

/// A server that has registered, as its lease tells.
#[derive(Clone, Debug)]
pub struct RegisteredServer {
    /// Its name.
    pub id: String,
    /// By what its process is told from others of its name.
    pub holder: String,
    /// The address at which clients reach it.
    pub address: Option<SocketAddr>,
    /// The one at which other servers do.
    pub peer_address: Option<SocketAddr>,
    /// All that it says of itself.
    pub annotations: BTreeMap<String, String>,
    /// The revision that wrote its lease last.
    pub revision: Revision,
    /// Whether it runs.
    pub life: Life,
}

/// Whether a server runs, as far as another can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It was seen to renew its lease, and the next renewal is not due yet.
    Live,
    /// It was seen to renew its lease, but the next renewal is late.
    Late,
    /// It was not seen to renew its lease, but it was not watched for long enough.
    Unknown,
    /// It has not renewed its lease in time.
    Dead,
}

impl Life {
    /// That of a server whose lease was seen to change or not, and then to stay as it is for a time.
    fn of(moved: bool, unchanged: Duration, interval: Duration) -> Self {
        match moved {
            _ if unchanged >= interval * MISSED_RENEWALS => Self::Dead,
            false => Self::Unknown,
            true if unchanged >= interval.mul_f32(LATE_AFTER) => Self::Late,
            true => Self::Live,
        }
    }

    /// Whether it was seen to run and may still.
    pub const fn was_seen(self) -> bool {
        matches!(self, Self::Live | Self::Late)
    }
}

/// Where servers can be reached.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Of servers that are known to live.
    pub(crate) live: Vec<SocketAddr>,
    /// Of servers that may live or not: who is led to them goes on to be, and nobody begins.
    pub(crate) doubtful: Vec<SocketAddr>,
}

impl RegisteredServers {
    /// The servers that renew their leases every `interval`, and this one, at `own` if others can reach it.
    pub fn new(registry: Arc<Registry>, own: Option<SocketAddr>, interval: Duration) -> Self {
        let seen = Mutex::new(Observations::new(LONGEST_PAUSE));
        let client = Client::of_server(registry, SERVER_MANAGER);
        Self { client, own, interval, seen }
    }

    /// All servers that have a lease.
    ///
    /// # Errors
    /// Those of a list.
    pub async fn all(&self) -> Result<Vec<RegisteredServer>, ApiError> {
        let is_main =
            |(lease, _): &&(Stored, Seen)| lease.object.labels().any(|label| label == (IDENTITY_LABEL, IDENTITY_VALUE));
        Ok(self.look().await?.iter().filter(is_main).map(|(lease, seen)| self.read(lease, *seen)).collect())
    }

    pub(crate) const fn own(&self) -> Option<SocketAddr> {
        self.own
    }

    pub(crate) async fn addresses(&self) -> Result<Addresses, ApiError> {
        let mut found = Addresses { live: self.own.into_iter().collect(), doubtful: Vec::new() };
        for server in self.all().await? {
            // Nobody but the server itself gets anywhere by a loopback address.
            let Some(address) = server.address.filter(|address| !address.ip().is_loopback()) else { continue };
            match server.life {
                Life::Live => found.live.push(address),
                Life::Late | Life::Unknown => found.doubtful.push(address),
                Life::Dead => {}
            }
        }
        Ok(found)
    }

    /// The leases of servers, those behind this one among them.
    async fn look(&self) -> Result<Vec<(Stored, Seen)>, ApiError> {
        let identities =
            LabelSelector::everything().and_label_in(IDENTITY_LABEL, [IDENTITY_VALUE, AGGREGATED_IDENTITY]);
        let found = self.client.list(&leases::collection(&self.client)?, identities).await?;
        let seen = self.seen.lock().look(found.iter().map(|lease| (lease.object.name(), lease.revision)));
        Ok(found.into_iter().zip(seen).collect())
    }

    fn read(&self, lease: &Stored, seen: Seen) -> RegisteredServer {
        let annotations = lease.object.annotations().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let annotations: BTreeMap<String, String> = annotations.collect();
        let address = |name: &str| annotations.get(name).and_then(|address| address.parse().ok());
        let peer_address = address(PEER_ADDRESS_ANNOTATION);
        let address = address(CLIENT_ADDRESS_ANNOTATION).or(peer_address);
        let life = Life::of(seen.moved, seen.unchanged, self.interval);
        RegisteredServer {
            id: lease.object.name().to_owned(),
            holder: leases::holder(&lease.object).to_owned(),
            address,
            peer_address,
            annotations,
            revision: lease.revision,
            life,
        }
    }
}

/// Deletes the identity leases of servers that died without a word.
pub struct IdentityCollection {
    client: Client,
    servers: Arc<RegisteredServers>,
    interval: Duration,
}

impl IdentityCollection {
    /// A controller over a registry, for leases that stand for `duration`. It shares what is known of `servers`, which
    /// outlives its turns.
    pub fn new(registry: Arc<Registry>, servers: Arc<RegisteredServers>, duration: Duration) -> Self {
        Self {
            client: Client::of_server(registry, SERVER_MANAGER),
            servers,
            interval: duration.min(COLLECTION_INTERVAL),
        }
    }

    /// Runs until told to stop.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.collect().await {
                warn_repeated!(""; %error, "leases of dead servers were not collected; it is tried again");
            }
        }
    }

    async fn collect(&self) -> Result<(), ApiError> {
        let collection = leases::collection(&self.client)?;
        for (lease, seen) in self.servers.look().await? {
            // One that does not say how long it stands is no server's.
            if leases::duration(&lease.object).is_some_and(|duration| seen.unchanged < duration) {
                continue;
            }
            // Only if it still is as it was read: a server that came back meanwhile keeps its lease.
            match self.client.delete(&collection, &lease).await {
                Ok(()) => tracing::warn!(server_id = lease.object.name(), "collected the lease of a dead server"),
                Err(ApiError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(moved: bool, unchanged: u64, expect: Life) {
        let life = Life::of(moved, Duration::from_secs(unchanged), Duration::from_secs(10));
        assert_eq!(life, expect, "moved: {moved}, unchanged for {unchanged} seconds");
    }

    #[test]
    fn a_server_that_misses_renewals_is_late_before_it_is_dead() {
        for (unchanged, expect) in
            [(0, Life::Live), (14, Life::Live), (15, Life::Late), (29, Life::Late), (30, Life::Dead)]
        {
            check(true, unchanged, expect);
        }
        for (unchanged, expect) in [(0, Life::Unknown), (29, Life::Unknown), (30, Life::Dead)] {
            check(false, unchanged, expect);
        }
    }
}
