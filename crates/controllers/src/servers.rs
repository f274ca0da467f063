//! The servers of a store as one of them observes them: their identity leases, and the observed changes of these
//! leases.
//!
//! Clocks of different servers are never compared. A server that has just started reports the others as unknown.

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

use crate::client::{Client, RevisedObject, SERVER_MANAGER};
use crate::identity::{
    AGGREGATED_IDENTITY, CLIENT_ADDRESS_ANNOTATION, IDENTITY_LABEL, IDENTITY_VALUE, LEAVING_ANNOTATION,
    PEER_ADDRESS_ANNOTATION,
};
use crate::leases;
use crate::observed::{LeaseObservations, Observations};

/// The number of missed renewals after which clients are no longer sent to a server.
const MISSED_RENEWALS: u32 = 3;
/// The number of renewal intervals after which a renewal is late. The extra half allows for the time between two reads.
const LATE_AFTER: f32 = 1.5;
/// The maximum time between two reads of the leases. After a longer time, for example of a suspended machine,
/// observation starts again. Reads are 10 seconds apart.
const LONGEST_PAUSE: Duration = Duration::from_secs(25);
/// The longest interval between searches for leases of dead servers. It must be shorter than a pause: after a pause
/// observation starts again, so no lease would ever be seen unchanged for long enough.
const COLLECTION_INTERVAL: Duration = Duration::from_secs(10);

/// The registered servers.
pub struct RegisteredServers {
    client: Client,
    /// This server's own address, if other hosts can reach it. It counts as live until the server leaves.
    own: Option<SocketAddr>,
    /// Cancelled when this server is about to stop.
    leaving: CancellationToken,
    /// The renewal interval of each server.
    interval: Duration,
    seen: Mutex<Observations>,
}

/// A registered server, from its lease.
#[derive(Clone, Debug)]
pub struct RegisteredServer {
    /// Its name.
    pub id: String,
    /// The holder identity of its process.
    pub holder: String,
    /// The address for clients.
    pub address: Option<SocketAddr>,
    /// The address for other servers.
    pub peer_address: Option<SocketAddr>,
    /// The annotations of its lease.
    pub annotations: BTreeMap<String, String>,
    /// The revision of the lease's last write.
    pub revision: Revision,
    /// The state of the server as observed.
    pub life: ServerState,
}

/// The state of a server as observed by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// The lease was seen to change, and the next renewal is not due yet.
    Live,
    /// The lease was seen to change, but the next renewal is late.
    Late,
    /// The lease was not seen to change, but has not been observed for long enough.
    Unknown,
    /// The lease was not renewed in time.
    Dead,
}

impl ServerState {
    /// The state of a server from its lease's observations.
    fn new(moved: bool, unchanged: Duration, interval: Duration) -> Self {
        match moved {
            _ if unchanged >= interval * MISSED_RENEWALS => Self::Dead,
            false => Self::Unknown,
            true if unchanged >= interval.mul_f32(LATE_AFTER) => Self::Late,
            true => Self::Live,
        }
    }

    /// Returns true if the server was seen running and may still be.
    pub const fn was_seen(self) -> bool {
        matches!(self, Self::Live | Self::Late)
    }
}

/// Addresses of servers.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Addresses of live servers.
    pub(crate) live: Vec<SocketAddr>,
    /// Addresses of servers that may be dead. Addresses in use are kept, others are never added.
    pub(crate) doubtful: Vec<SocketAddr>,
}

impl RegisteredServers {
    /// Creates the view of servers that renew their leases every `interval`. `own` is this server's address, if other
    /// hosts can reach it.
    pub fn new(registry: Arc<Registry>, own: Option<SocketAddr>, interval: Duration) -> Self {
        let seen = Mutex::new(Observations::new(LONGEST_PAUSE));
        let client = Client::of_server(registry, SERVER_MANAGER);
        Self { client, own, leaving: CancellationToken::new(), interval, seen }
    }

    /// Sends no further clients to this server, which is about to stop.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    /// Cancelled by [`leave`](Self::leave).
    pub const fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    /// Returns all servers with a lease.
    ///
    /// # Errors
    /// Errors of a list.
    pub async fn all(&self) -> Result<Vec<RegisteredServer>, ApiError> {
        let is_main = |(lease, _): &&(RevisedObject, LeaseObservations)| {
            lease.object.labels().any(|label| label == (IDENTITY_LABEL, IDENTITY_VALUE))
        };
        Ok(self.look().await?.iter().filter(is_main).map(|(lease, seen)| self.read(lease, *seen)).collect())
    }

    pub(crate) const fn own(&self) -> Option<SocketAddr> {
        self.own
    }

    pub(crate) async fn addresses(&self) -> Result<Addresses, ApiError> {
        let own = self.own.filter(|_| !self.leaving.is_cancelled());
        let mut found = Addresses { live: own.into_iter().collect(), doubtful: Vec::new() };
        for server in self.all().await? {
            if server.annotations.contains_key(LEAVING_ANNOTATION) {
                continue;
            }
            // Other hosts can't use a loopback address.
            let Some(address) = server.address.filter(|address| !address.ip().is_loopback()) else { continue };
            match server.life {
                ServerState::Live => found.live.push(address),
                ServerState::Late | ServerState::Unknown => found.doubtful.push(address),
                ServerState::Dead => {}
            }
        }
        Ok(found)
    }

    /// The leases of main and aggregated servers, each with its observation.
    async fn look(&self) -> Result<Vec<(RevisedObject, LeaseObservations)>, ApiError> {
        let identities =
            LabelSelector::everything().and_label_in(IDENTITY_LABEL, [IDENTITY_VALUE, AGGREGATED_IDENTITY]);
        let found = self.client.list(&leases::collection(&self.client)?, identities).await?;
        let seen = self.seen.lock().look(found.iter().map(|lease| (lease.object.name(), lease.revision)));
        Ok(found.into_iter().zip(seen).collect())
    }

    fn read(&self, lease: &RevisedObject, seen: LeaseObservations) -> RegisteredServer {
        let annotations = lease.object.annotations().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let annotations: BTreeMap<String, String> = annotations.collect();
        let address = |name: &str| annotations.get(name).and_then(|address| address.parse().ok());
        let peer_address = address(PEER_ADDRESS_ANNOTATION);
        let address = address(CLIENT_ADDRESS_ANNOTATION).or(peer_address);
        let life = ServerState::new(seen.moved, seen.unchanged, self.interval);
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

/// Deletes the identity leases of servers that died without releasing them.
pub struct IdentityCollection {
    client: Client,
    servers: Arc<RegisteredServers>,
    interval: Duration,
}

impl IdentityCollection {
    /// Creates a controller for leases of this duration. The observations in `servers` are shared with other users, and
    /// remain when this controller stops.
    pub fn new(registry: Arc<Registry>, servers: Arc<RegisteredServers>, duration: Duration) -> Self {
        Self {
            client: Client::of_server(registry, SERVER_MANAGER),
            servers,
            interval: duration.min(COLLECTION_INTERVAL),
        }
    }

    /// Runs until cancelled.
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
                warn_repeated!(""; %error, "deleting the leases of stopped servers failed; retrying");
            }
        }
    }

    async fn collect(&self) -> Result<(), ApiError> {
        let collection = leases::collection(&self.client)?;
        for (lease, seen) in self.servers.look().await? {
            // A lease without a duration was not written by a server.
            if leases::duration(&lease.object).is_some_and(|duration| seen.unchanged < duration) {
                continue;
            }
            // The delete requires the revision that was read, so a server that came back meanwhile keeps its lease.
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

    fn check(moved: bool, unchanged: u64, expect: ServerState) {
        let life = ServerState::new(moved, Duration::from_secs(unchanged), Duration::from_secs(10));
        assert_eq!(life, expect, "moved: {moved}, unchanged for {unchanged} seconds");
    }

    #[test]
    fn a_server_that_misses_renewals_is_late_before_it_is_dead() {
        for (unchanged, expect) in [
            (0, ServerState::Live),
            (14, ServerState::Live),
            (15, ServerState::Late),
            (29, ServerState::Late),
            (30, ServerState::Dead),
        ] {
            check(true, unchanged, expect);
        }
        for (unchanged, expect) in [(0, ServerState::Unknown), (29, ServerState::Unknown), (30, ServerState::Dead)] {
            check(false, unchanged, expect);
        }
    }
}
