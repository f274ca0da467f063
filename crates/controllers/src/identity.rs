//! The identity of a server among others: a lease in `kube-system` that it renews as long as it lives (KEP-1965).
//!
//! A server registers before it takes requests, and writes only as long as its lease stands: the fence in front of the store
//! compares it in every transaction. A server that finds its lease gone, or held by another, registers anew; what it was
//! about to write meanwhile is refused. The lease of a server that stops is deleted at once; those of servers that died
//! are collected by whoever leads, when their time is over.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use keelson_meta::names::label_value_faults;
use keelson_meta::{ApiError, Random};
use keelson_registry::Registry;
use keelson_storage::{Fence, Identity, StoreKey};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Stored, farewell};
use crate::kubernetes_service::LiveServers;
use crate::leases;

/// The label by which the leases of servers are found.
pub const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
/// What that label says for an API server.
pub const IDENTITY_VALUE: &str = "kube-apiserver";
/// The label with a server's host name.
const HOST_LABEL: &str = "kubernetes.io/hostname";
/// The annotation with the address at which other servers reach this one.
const ADDRESS_ANNOTATION: &str = "kubernetes.io/peer-advertise-address";
/// The name by which an API server owns fields.
const MANAGER: &str = "kube-apiserver";
/// How long after a failure a registration or renewal is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How often a registration is tried at once when others write the same lease.
const TAKE_ATTEMPTS: usize = 4;
/// How many renewals a server may miss before it is taken to be gone, as far as clients are sent to it.
const MISSED_RENEWALS: u32 = 3;
/// How often the leases of dead servers are looked for at the least.
const COLLECTION_INTERVAL: Duration = Duration::from_secs(60);

/// What a server says of itself.
#[derive(Clone, Debug)]
pub struct IdentityConfig {
    /// Its name: a DNS subdomain, different for each server on a store.
    pub server_id: String,
    /// The name of its host.
    pub host: String,
    /// The address, with its port, at which other servers reach it.
    pub address: String,
    /// How long its lease stands without a renewal; whole seconds count.
    pub duration: Duration,
    /// How often it is renewed.
    pub interval: Duration,
}

impl IdentityConfig {
    /// How long a lease stands unless configured, as in the reference server.
    pub const DURATION: Duration = Duration::from_secs(3600);
    /// How often it is renewed unless configured, as in the reference server.
    pub const INTERVAL: Duration = Duration::from_secs(10);
}

/// Keeps the identity of this server.
pub struct IdentityLease {
    client: Client,
    fence: Arc<Fence>,
    random: Arc<dyn Random>,
    config: IdentityConfig,
    /// Where the lease is stored.
    key: StoreKey,
    /// Which registration the lease that is held belongs to.
    registration: u64,
    held: Option<Stored>,
}

impl IdentityLease {
    /// Writes the identity of this server, in place of one that an earlier server of its name left behind.
    ///
    /// # Errors
    /// 503 when the store can't be written.
    pub async fn register(
        registry: Arc<Registry>,
        fence: Arc<Fence>,
        random: Arc<dyn Random>,
        config: IdentityConfig,
    ) -> Result<Self, ApiError> {
        let client = Client::new(registry, MANAGER);
        let key = StoreKey::new(leases::key_prefix()? + &config.server_id);
        let mut lease = Self { client, fence, random, config, key, registration: 0, held: None };
        lease.take().await?;
        Ok(lease)
    }

    /// Renews the identity until the server stops, and registers anew whenever it is lost.
    pub async fn run(mut self, stopping: CancellationToken) -> Self {
        loop {
            let wait = if self.held.is_some() { self.config.interval } else { RETRY };
            tokio::select! {
                () = stopping.cancelled() => return self,
                () = tokio::time::sleep(wait) => {}
                () = self.fence.doubted() => {}
            }
            if let Err(error) = self.step().await {
                tracing::warn!(server_id = self.config.server_id, %error, "the identity lease was not renewed; it is tried again");
                tokio::select! {
                    () = stopping.cancelled() => return self,
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
    }

    /// Deletes the identity of a server that stops, so that others need not wait for its end.
    pub async fn release(mut self) {
        let Some(held) = self.held.take() else { return };
        self.fence.lose();
        let released = async { self.client.delete(&leases::collection()?, &held).await };
        farewell(released, "the identity lease was left behind; it ends by itself").await;
    }

    async fn step(&mut self) -> Result<(), ApiError> {
        let Some(held) = self.held.clone() else { return self.take().await };
        let now = self.client.now();
        if leases::end(&held.object).is_none_or(|end| end <= now) {
            return self.lost("it was not renewed in time").await;
        }
        let mut renewed = held.object.clone();
        leases::set(&mut renewed, [("renewTime", leases::micro_time(now))]);
        match self.client.update(&leases::collection()?, renewed).await {
            Ok(written) => {
                self.hold(written);
                Ok(())
            }
            Err(ApiError::NotFound { .. }) => self.lost("its lease was deleted").await,
            Err(ApiError::Conflict { .. }) => self.look().await,
            Err(error) => Err(error),
        }
    }

    /// Somebody else has written the lease.
    async fn look(&mut self) -> Result<(), ApiError> {
        let found = self.client.get(&leases::collection()?, &self.config.server_id).await?;
        match (found, &self.held) {
            (Some(found), Some(held)) if leases::holder(&found.object) == leases::holder(&held.object) => {
                self.hold(found);
                Ok(())
            }
            (Some(_), _) => self.lost("another server took its name; give each server a --server-id of its own").await,
            (None, _) => self.lost("its lease was deleted").await,
        }
    }

    async fn lost(&mut self, why: &str) -> Result<(), ApiError> {
        tracing::error!(server_id = self.config.server_id, why, "this server lost its identity; it registers anew");
        self.fence.lose();
        self.held = None;
        self.take().await
    }

    async fn take(&mut self) -> Result<(), ApiError> {
        let mut taken = self.try_take().await;
        for _ in 1..TAKE_ATTEMPTS {
            // A server of the same name that is just stopping writes it too.
            let Err(ApiError::Conflict { .. } | ApiError::AlreadyExists { .. } | ApiError::NotFound { .. }) = taken
            else {
                break;
            };
            taken = self.try_take().await;
        }
        self.registration += 1;
        self.hold(taken?);
        Ok(())
    }

    async fn try_take(&self) -> Result<Stored, ApiError> {
        let leases = leases::collection()?;
        let lease = self.lease(self.client.now());
        let Some(mut found) = self.client.get(&leases, &self.config.server_id).await? else {
            return self.client.create(&leases, lease).await;
        };
        for field in ["labels", "annotations"] {
            found.object.set_meta(field, lease["metadata"][field].clone());
        }
        found.object.0.insert("spec".to_owned(), lease["spec"].clone());
        self.client.update(&leases, found.object).await
    }

    /// The lease of a registration that begins now.
    fn lease(&self, now: SystemTime) -> Value {
        let IdentityConfig { server_id, host, address, duration, .. } = &self.config;
        let mut labels = json!({IDENTITY_LABEL: IDENTITY_VALUE});
        if label_value_faults(host).is_empty() {
            labels[HOST_LABEL] = json!(host);
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": server_id,
                "namespace": leases::NAMESPACE,
                "labels": labels,
                "annotations": {ADDRESS_ANNOTATION: address},
            },
            "spec": {
                "holderIdentity": format!("{server_id}_{}", self.random.uuid()),
                "leaseDurationSeconds": duration.as_secs(),
                "renewTime": leases::micro_time(now),
            },
        })
    }

    /// ORDER: the lease is written before the fence is told, so that what passes the fence was compared with it.
    fn hold(&mut self, lease: Stored) {
        let until = leases::end(&lease.object).unwrap_or(SystemTime::UNIX_EPOCH);
        let (key, registration) = (self.key.clone(), self.registration);
        self.fence.hold(Identity { key, revision: lease.revision, until, registration });
        self.held = Some(lease);
    }
}

/// The servers that have renewed their identity lately, by the addresses that they state there.
pub struct RegisteredServers {
    client: Client,
    /// This server's own address, which is known to live.
    own: Option<IpAddr>,
    /// How long after its last renewal a server is taken to live.
    patience: Duration,
}

impl RegisteredServers {
    /// The servers that renew their leases every `interval`, and this one.
    pub fn new(registry: Arc<Registry>, own: Option<IpAddr>, interval: Duration) -> Self {
        Self { client: Client::new(registry, MANAGER), own, patience: interval * MISSED_RENEWALS }
    }

    async fn live(&self) -> Result<Vec<IpAddr>, ApiError> {
        let now = self.client.now();
        let found = identities(&self.client).await?;
        let live = found
            .iter()
            .filter(|lease| leases::renewed(&lease.object).is_some_and(|renewed| now < renewed + self.patience));
        let stated = live.filter_map(|lease| {
            let mut annotations = lease.object.annotations();
            let (_, address) = annotations.find(|(name, _)| *name == ADDRESS_ANNOTATION)?;
            address.parse::<SocketAddr>().ok().map(|address| address.ip())
        });
        // Nobody but the server itself gets anywhere by a loopback address.
        Ok(stated.filter(|address| !address.is_loopback()).chain(self.own).collect())
    }
}

impl LiveServers for RegisteredServers {
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<IpAddr>, ApiError>> {
        Box::pin(self.live())
    }
}

async fn identities(client: &Client) -> Result<Vec<Stored>, ApiError> {
    client.list(&leases::collection()?, &format!("{IDENTITY_LABEL}={IDENTITY_VALUE}")).await
}

/// Deletes the identity leases of servers that died without a word.
pub struct IdentityCollection {
    client: Client,
    interval: Duration,
}

impl IdentityCollection {
    /// A controller over a registry, for leases that stand for `duration`.
    pub fn new(registry: Arc<Registry>, duration: Duration) -> Self {
        Self { client: Client::new(registry, MANAGER), interval: duration.min(COLLECTION_INTERVAL) }
    }

    /// Runs until told to stop.
    pub async fn run(self, stopping: CancellationToken) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.collect().await {
                tracing::warn!(%error, "leases of dead servers were not collected; it is tried again");
            }
        }
    }

    async fn collect(&self) -> Result<(), ApiError> {
        let leases = leases::collection()?;
        let now = self.client.now();
        for lease in identities(&self.client).await? {
            if leases::end(&lease.object).is_some_and(|end| now < end) {
                continue;
            }
            // Only if it still is as it was read: a server that came back meanwhile keeps its lease.
            match self.client.delete(&leases, &lease).await {
                Ok(()) => tracing::warn!(server_id = lease.object.name(), "collected the lease of a dead server"),
                Err(ApiError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
