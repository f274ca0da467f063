//! The identity of a server among others: a lease in `kube-system` that it renews as long as it lives (KEP-1965).
//!
//! A server registers before it takes requests, and writes only as long as its lease stands: the fence in front of the store
//! compares it in every transaction. A server that finds its lease gone or too old registers anew; what it was about to write
//! meanwhile is refused. Of two processes of one name the later holds the lease: the earlier finds it so, and gives way for
//! good. The lease of a server that stops is deleted at once; those of servers that died are collected (`servers`).
//!
//! A store that answers and takes no puts keeps no server from starting: it registers as soon as there is room, and serves until then.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use keelson_meta::json::{Value, json};
use keelson_meta::names::label_value_faults;
use keelson_meta::{ApiError, Object, Random, Revision};
use keelson_registry::Registry;
use keelson_storage::{Fence, Identity, StoreKey};
use keelson_supervision::warn_repeated;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, SERVER_MANAGER, Stored, clean_up};
use crate::conflicts::retry_conflicts;
use crate::leases;

/// The label by which the leases of servers are found.
pub const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
/// What that label says for an API server.
pub const IDENTITY_VALUE: &str = "kube-apiserver";
/// What it says of an aggregated server, which publishes its storage versions at the main server.
pub const AGGREGATED_IDENTITY: &str = "keelson-apiserver";
/// The label with a server's host name.
const HOST_LABEL: &str = "kubernetes.io/hostname";
/// The annotation with the address at which other servers reach this one.
pub(crate) const PEER_ADDRESS_ANNOTATION: &str = "kubernetes.io/peer-advertise-address";
/// The annotation with the address at which clients do, where that is another one.
pub(crate) const CLIENT_ADDRESS_ANNOTATION: &str = "keelson.io/advertise-address";
/// The annotation of a server that publishes no storage versions, by which what it published before is known to be void.
pub const UNPUBLISHED_ANNOTATION: &str = "keelson.io/storage-versions-unpublished";
/// What the names of annotations begin with that only a server itself writes.
const OWN_ANNOTATIONS: &str = "keelson.io/";
/// How long after a failure a registration or renewal is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How often a registration is tried at once when others write the same lease.
const TAKE_ATTEMPTS: usize = 4;

/// What a server says of itself.
#[derive(Clone, Debug)]
pub struct IdentityConfig {
    /// Its name: a DNS subdomain, different for each server on a store.
    pub server_id: String,
    /// The name of its host.
    pub host: String,
    /// The address, with its port, at which clients reach it.
    pub address: SocketAddr,
    /// The one at which other servers do.
    pub peer_address: SocketAddr,
    /// What else it tells others, in the annotations of its lease. They are told at once when that changes.
    pub annotations: watch::Receiver<BTreeMap<String, String>>,
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
    config: IdentityConfig,
    /// By what the lease says that it is this process's.
    holder: String,
    /// Where the lease is stored.
    key: StoreKey,
    /// Which registration the lease that is held belongs to.
    registration: u64,
    held: Option<Stored>,
}

impl IdentityLease {
    /// Writes the identity of this server, in place of that of an earlier process of its name, be it dead or not. Where the store
    /// takes no puts, that is left to [`run`](Self::run).
    ///
    /// # Errors
    /// 503 when the store is away; no lease is left behind then, unless it stays away.
    pub async fn register(
        registry: Arc<Registry>,
        fence: Arc<Fence>,
        random: &dyn Random,
        config: IdentityConfig,
    ) -> Result<Self, ApiError> {
        let client = Client::of_upkeep(registry, SERVER_MANAGER);
        let key = identity_key(&config.server_id);
        let holder = format!("{}{}", leases::holder_prefix(&config.server_id), random.uuid());
        let mut lease = Self { client, fence, config, holder, key, registration: 0, held: None };
        let Err(error) = lease.take(Namesake::Replace).await else { return Ok(lease) };
        let Some(why) = lease.fence.refusal() else {
            lease.withdraw().await;
            return Err(error);
        };
        lease.fence.lose();
        tracing::error!(
            server_id = lease.config.server_id,
            why,
            "this server starts without its identity, which the store does not take: it serves reads, and passes on what only deletes"
        );
        Ok(lease)
    }

    /// By what this process is told from others of its name.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The revision that wrote the lease last.
    pub fn revision(&self) -> Option<Revision> {
        self.held.as_ref().map(|held| held.revision)
    }

    /// Renews the identity until the server stops, and registers anew whenever it is lost, unless another process of this
    /// name has it: then the fence is closed.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, Self> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(mut self, stopping: CancellationToken) -> Self {
        let fence = self.fence.clone();
        tokio::select! {
            () = self.keep(&stopping) => {}
            _ = fence.closed() => stopping.cancelled().await,
        }
        self
    }

    async fn keep(&mut self, stopping: &CancellationToken) {
        loop {
            let wait = if self.held.is_some() { self.config.interval } else { RETRY };
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                () = self.fence.doubted() => {}
                Ok(()) = self.config.annotations.changed() => {}
            }
            if let Err(error) = self.step().await {
                warn_repeated!(&self.config.server_id; server_id = self.config.server_id, %error, "the identity lease was not renewed; it is tried again");
                tokio::select! {
                    () = stopping.cancelled() => return,
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
    }

    /// Deletes the identity of a server that stops, so that others need not wait for its end.
    pub async fn release(mut self) {
        let Some(held) = self.held.take() else { return };
        self.fence.lose();
        let released = async { self.client.delete(&leases::collection(&self.client)?, &held).await };
        clean_up(released, "the identity lease was left behind; it ends by itself").await;
    }

    /// Deletes what a registration has written all the same whose outcome was not heard.
    async fn withdraw(&self) {
        let withdrawn = async {
            let leases = leases::collection(&self.client)?;
            match self.client.get(&leases, &self.config.server_id).await? {
                Some(found) if leases::holder(&found.object) == self.holder => {
                    self.client.delete(&leases, &found).await
                }
                _ => Ok(()),
            }
        };
        clean_up(withdrawn, "whether the identity lease was written is not known; it ends by itself").await;
    }

    async fn step(&mut self) -> Result<(), ApiError> {
        let Some(held) = self.held.clone() else {
            // An earlier process of this name may have left a lease that could not be written over.
            let namesake = if self.registration == 0 { Namesake::Replace } else { Namesake::GiveWay };
            return self.take(namesake).await;
        };
        let now = self.client.now();
        if leases::end(&held.object).is_none_or(|end| end <= now) {
            return self.lost("it was not renewed in time").await;
        }
        let mut renewed = held.object.clone();
        leases::set(&mut renewed, [("renewTime", leases::micro_time(now))]);
        let annotations = self.annotations();
        if !is_told(&held.object, &annotations) {
            renewed.set_meta("annotations", json!(annotations));
        }
        match self.client.update(&leases::collection(&self.client)?, renewed).await {
            Ok(written) => {
                self.hold(written);
                Ok(())
            }
            Err(ApiError::NotFound { .. }) => self.lost("its lease was deleted").await,
            Err(ApiError::Conflict { .. }) => self.look().await,
            Err(error) => Err(error),
        }
    }

    /// Somebody else has written the lease, or the answer to an earlier renewal was lost.
    async fn look(&mut self) -> Result<(), ApiError> {
        match self.client.get(&leases::collection(&self.client)?, &self.config.server_id).await? {
            Some(found) if leases::holder(&found.object) == self.holder => {
                self.hold(found);
                Ok(())
            }
            Some(_) => self.lost("its lease is held by somebody else").await,
            None => self.lost("its lease was deleted").await,
        }
    }

    async fn lost(&mut self, why: &str) -> Result<(), ApiError> {
        self.fence.lose();
        self.held = None;
        tracing::error!(server_id = self.config.server_id, why, "this server lost its identity; it registers anew");
        // ORDER: before it registers, since what it had published may be collected.
        self.client.registry().close_encodings().await;
        self.take(Namesake::GiveWay).await
    }

    async fn take(&mut self, namesake: Namesake) -> Result<(), ApiError> {
        // A server of the same name that is just stopping writes it too.
        match retry_conflicts(TAKE_ATTEMPTS, || self.try_take(namesake)).await? {
            Some(lease) => {
                self.registration += 1;
                self.hold(lease);
            }
            None => self.give_way(),
        }
        Ok(())
    }

    /// `None` when another process of this name has the lease, and it is to keep it.
    async fn try_take(&self, namesake: Namesake) -> Result<Option<Stored>, ApiError> {
        let leases = leases::collection(&self.client)?;
        let lease = self.lease(self.client.now());
        let Some(mut found) = self.client.get(&leases, &self.config.server_id).await? else {
            return self.client.create(&leases, lease).await.map(Some);
        };
        let holder = leases::holder(&found.object);
        // What is not held as processes of this name hold it was written by hand, and is put right.
        let is_namesake = holder != self.holder && holder.starts_with(&leases::holder_prefix(&self.config.server_id));
        if is_namesake && namesake == Namesake::GiveWay {
            return Ok(None);
        }
        for field in ["labels", "annotations"] {
            found.object.set_meta(field, lease["metadata"][field].clone());
        }
        found.object.0.insert("spec", lease["spec"].clone());
        self.client.update(&leases, found.object).await.map(Some)
    }

    /// Leaves the name to a process that has started later.
    fn give_way(&mut self) {
        let IdentityConfig { server_id, .. } = &self.config;
        let why = format!(
            "another process has started as the server {server_id} and takes its place: give each server on a store a \
             --server-id of its own, or a --data-dir from which one follows"
        );
        tracing::error!(server_id, "{why}");
        self.fence.close(why);
        self.held = None;
    }

    /// What it tells others.
    fn annotations(&self) -> BTreeMap<String, String> {
        let IdentityConfig { address, peer_address, annotations, .. } = &self.config;
        let mut annotations = annotations.borrow().clone();
        annotations.insert(PEER_ADDRESS_ANNOTATION.to_owned(), peer_address.to_string());
        if address != peer_address {
            annotations.insert(CLIENT_ADDRESS_ANNOTATION.to_owned(), address.to_string());
        }
        annotations
    }

    /// The lease of a registration that begins now.
    fn lease(&self, now: SystemTime) -> Value {
        let IdentityConfig { server_id, host, duration, .. } = &self.config;
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
                "annotations": self.annotations(),
            },
            "spec": {
                "holderIdentity": self.holder,
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

/// What becomes of another process of this server's name that holds the lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Namesake {
    /// It is replaced: this process starts, and the other is dead or has to give way.
    Replace,
    /// It has started later, so this process gives way.
    GiveWay,
}

/// Whether a lease tells this, and nothing of the kind that holds no longer.
fn is_told(lease: &Object, annotations: &BTreeMap<String, String>) -> bool {
    let told: BTreeMap<&str, &str> = lease.annotations().collect();
    let is_stale = |name: &&str| name.starts_with(OWN_ANNOTATIONS) && !annotations.contains_key(*name);
    annotations.iter().all(|(name, value)| told.get(name.as_str()) == Some(&value.as_str()))
        && !told.keys().any(is_stale)
}

/// Where the identity of a server is stored.
pub fn identity_key(server_id: &str) -> StoreKey {
    StoreKey::new(leases::key_prefix() + server_id)
}
