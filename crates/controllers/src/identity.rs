//! The server's identity: a lease in `kube-system` that it renews while it runs (KEP-1965).
//!
//! A server registers before it accepts requests, and writes only while its lease is valid: every transaction compares
//! the lease (the fence). If its lease is deleted or expires, its writes are refused until it has registered again. Of
//! two processes with the same name, the later one takes the lease, and the earlier one stops writing for good. A
//! server that stops deletes its lease. `servers` collects the leases of dead servers.
//!
//! A store that answers but refuses puts does not keep a server from starting. The server registers once the store
//! accepts puts again.

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

use crate::client::{Client, RevisedObject, SERVER_MANAGER, clean_up};
use crate::conflicts::retry_conflicts;
use crate::leases;

/// The label that marks leases of servers.
pub const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
/// The label's value for an API server.
pub const IDENTITY_VALUE: &str = "kube-apiserver";
/// The label's value for an aggregated server, which publishes its storage versions at the main server.
pub const AGGREGATED_IDENTITY: &str = "keelson-apiserver";
/// The label with the name of the server's host.
const HOST_LABEL: &str = "kubernetes.io/hostname";
/// The annotation with the address for requests from other servers.
pub(crate) const PEER_ADDRESS_ANNOTATION: &str = "kubernetes.io/peer-advertise-address";
/// The annotation with the address for clients, where it differs.
pub(crate) const CLIENT_ADDRESS_ANNOTATION: &str = "keelson.io/advertise-address";
/// The annotation of a server that publishes no storage versions. Versions that it published before no longer count.
pub const UNPUBLISHED_ANNOTATION: &str = "keelson.io/storage-versions-unpublished";
/// The annotation of a server that is about to stop, so that clients are no longer sent to it.
pub(crate) const LEAVING_ANNOTATION: &str = "keelson.io/leaving";
/// The prefix of annotations that only the server itself writes.
const OWN_ANNOTATIONS: &str = "keelson.io/";
/// The delay before a failed registration or renewal is retried.
const RETRY: Duration = Duration::from_secs(1);
/// The number of immediate attempts to register while other processes write the same lease.
const TAKE_ATTEMPTS: usize = 4;

/// Configuration of a server's identity.
#[derive(Clone, Debug)]
pub struct IdentityConfig {
    /// The server's name: a DNS subdomain, different for each server of a store.
    pub server_id: String,
    /// The name of its host.
    pub host: String,
    /// The address and port for clients.
    pub address: SocketAddr,
    /// The address and port for other servers.
    pub peer_address: SocketAddr,
    /// Further annotations of the lease. A changed value is written at once.
    pub annotations: watch::Receiver<BTreeMap<String, String>>,
    /// The time for which the lease is valid without a renewal, in whole seconds.
    pub duration: Duration,
    /// The interval between renewals.
    pub interval: Duration,
}

impl IdentityConfig {
    /// The default validity, as in kube-apiserver.
    pub const DURATION: Duration = Duration::from_secs(3600);
    /// The default renewal interval, as in kube-apiserver.
    pub const INTERVAL: Duration = Duration::from_secs(10);
}

/// Keeps the identity of this server.
pub struct IdentityLease {
    client: Client,
    fence: Arc<Fence>,
    config: IdentityConfig,
    /// The holder identity of this process in the lease.
    holder: String,
    /// The store key of the lease.
    key: StoreKey,
    /// The number of the registration that wrote the held lease.
    registration: u64,
    held: Option<RevisedObject>,
    /// Cancelled when the server is about to stop.
    leaving: CancellationToken,
    /// True once the end of `leaving` was noticed.
    has_left: bool,
}

impl IdentityLease {
    /// Writes the lease of this server, in place of the lease of an earlier process with its name. If the store refuses
    /// puts, [`run`](Self::run) registers later.
    ///
    /// # Errors
    /// 503 when the store does not answer. A lease that was nevertheless written is deleted if the store answers again
    /// in time.
    pub async fn register(
        registry: Arc<Registry>,
        fence: Arc<Fence>,
        random: &dyn Random,
        config: IdentityConfig,
    ) -> Result<Self, ApiError> {
        let client = Client::of_upkeep(registry, SERVER_MANAGER);
        let key = identity_key(&config.server_id);
        let holder = format!("{}{}", leases::holder_prefix(&config.server_id), random.uuid());
        let leaving = CancellationToken::new();
        let mut lease =
            Self { client, fence, config, holder, key, registration: 0, held: None, leaving, has_left: false };
        let Err(error) = lease.take(NameConflict::Replace).await else { return Ok(lease) };
        let Some(why) = lease.fence.refusal() else {
            lease.withdraw().await;
            return Err(error);
        };
        lease.fence.lose();
        tracing::error!(
            server_id = lease.config.server_id,
            why,
            "the store refuses the identity lease of this server: only reads and deletes are served"
        );
        Ok(lease)
    }

    /// Announces in the lease that the server is about to stop, once this token is cancelled.
    #[must_use]
    pub fn announcing(self, leaving: CancellationToken) -> Self {
        Self { leaving, ..self }
    }

    /// The holder identity that distinguishes this process from others of its name.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The revision of the lease's last write.
    pub fn revision(&self) -> Option<Revision> {
        self.held.as_ref().map(|held| held.revision)
    }

    /// Renews the lease until the server stops, and registers again after a loss. If another process of this name holds
    /// the lease, it closes the fence instead, so that this process writes no more.
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
                () = self.leaving.cancelled(), if !self.has_left => self.has_left = true,
            }
            if let Err(error) = self.step().await {
                warn_repeated!(&self.config.server_id; server_id = self.config.server_id, %error, "renewing the identity lease failed; retrying");
                tokio::select! {
                    () = stopping.cancelled() => return,
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
    }

    /// Deletes the lease of a server that stops, so that other servers need not wait for its expiry.
    pub async fn release(mut self) {
        let Some(held) = self.held.take() else { return };
        self.fence.lose();
        let released = async { self.client.delete(&leases::collection(&self.client)?, &held).await };
        clean_up(released, "deleting the identity lease failed; it expires").await;
    }

    /// Deletes a lease that a registration without a response may have written.
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
        clean_up(withdrawn, "withdrawing the identity lease failed; it expires if it was written").await;
    }

    async fn step(&mut self) -> Result<(), ApiError> {
        let Some(held) = self.held.clone() else {
            // Before the first registration the lease may belong to an earlier process, if that lease could not be
            // replaced at start.
            let namesake = if self.registration == 0 { NameConflict::Replace } else { NameConflict::GiveWay };
            return self.take(namesake).await;
        };
        let now = self.client.now();
        if leases::end(&held.object).is_none_or(|end| end <= now) {
            return self.lost("the lease was not renewed in time").await;
        }
        let mut renewed = held.object.clone();
        leases::set(&mut renewed, [("renewTime", leases::micro_time(now))]);
        let annotations = self.annotations();
        if !is_told(&held.object, &annotations) {
            renewed.set_meta("annotations", json!(annotations));
        }
        match self.client.update(&leases::collection(&self.client)?, renewed).await {
            Ok(written) => {
                self.hold(written.read());
                Ok(())
            }
            Err(ApiError::NotFound { .. }) => self.lost("its lease was deleted").await,
            Err(ApiError::Conflict { .. }) => self.look().await,
            Err(error) => Err(error),
        }
    }

    /// Reads the lease after a conflict: another writer changed it, or this server's earlier renewal succeeded but its
    /// response was lost.
    async fn look(&mut self) -> Result<(), ApiError> {
        match self.client.get(&leases::collection(&self.client)?, &self.config.server_id).await? {
            Some(found) if leases::holder(&found.object) == self.holder => {
                self.hold(found);
                Ok(())
            }
            Some(_) => self.lost("another process holds the lease").await,
            None => self.lost("its lease was deleted").await,
        }
    }

    async fn lost(&mut self, why: &str) -> Result<(), ApiError> {
        self.fence.lose();
        self.held = None;
        tracing::error!(server_id = self.config.server_id, why, "this server lost its lease and registers again");
        // ORDER: before the registration, since other servers may have removed the published versions.
        self.client.registry().close_encodings().await;
        self.take(NameConflict::GiveWay).await
    }

    async fn take(&mut self, namesake: NameConflict) -> Result<(), ApiError> {
        // An earlier process of this name may write the lease once more while it stops.
        match retry_conflicts(TAKE_ATTEMPTS, || self.try_take(namesake)).await? {
            Some(lease) => {
                self.registration += 1;
                self.hold(lease);
            }
            None => self.give_way(),
        }
        Ok(())
    }

    /// Registers once. Returns `None` when another process of this name keeps the lease.
    async fn try_take(&self, namesake: NameConflict) -> Result<Option<RevisedObject>, ApiError> {
        let leases = leases::collection(&self.client)?;
        let lease = self.lease(self.client.now());
        let Some(mut found) = self.client.get(&leases, &self.config.server_id).await? else {
            return self.client.create(&leases, lease).await.map(|lease| Some(lease.read()));
        };
        let holder = leases::holder(&found.object);
        // A holder of another form was written by hand and is replaced.
        let is_namesake = holder != self.holder && holder.starts_with(&leases::holder_prefix(&self.config.server_id));
        if is_namesake && namesake == NameConflict::GiveWay {
            return Ok(None);
        }
        for field in ["labels", "annotations"] {
            found.object.set_meta(field, lease["metadata"][field].clone());
        }
        found.object.0.insert("spec", lease["spec"].clone());
        self.client.update(&leases, found.object).await.map(|lease| Some(lease.read()))
    }

    /// Closes the fence, because a process of the same name started later.
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

    /// The annotations of the lease.
    fn annotations(&self) -> BTreeMap<String, String> {
        let IdentityConfig { address, peer_address, annotations, .. } = &self.config;
        let mut annotations = annotations.borrow().clone();
        annotations.insert(PEER_ADDRESS_ANNOTATION.to_owned(), peer_address.to_string());
        if address != peer_address {
            annotations.insert(CLIENT_ADDRESS_ANNOTATION.to_owned(), address.to_string());
        }
        if self.leaving.is_cancelled() {
            annotations.insert(LEAVING_ANNOTATION.to_owned(), "true".to_owned());
        }
        annotations
    }

    /// The lease of a new registration.
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

    /// ORDER: the lease is written before the fence accepts it. A transaction that the fence lets through therefore
    /// compares with a written lease.
    fn hold(&mut self, lease: RevisedObject) {
        let until = leases::end(&lease.object).unwrap_or(SystemTime::UNIX_EPOCH);
        let (key, registration) = (self.key.clone(), self.registration);
        self.fence.hold(Identity { key, revision: lease.revision, until, registration });
        self.held = Some(lease);
    }
}

/// The treatment of another process of this server's name that holds the lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameConflict {
    /// This process takes the lease. The other process is dead, or will stop writing.
    Replace,
    /// The other process started later, so this one stops writing.
    GiveWay,
}

/// Returns true if the lease has these annotations, and no other ones with the server's own prefix.
fn is_told(lease: &Object, annotations: &BTreeMap<String, String>) -> bool {
    let told: BTreeMap<&str, &str> = lease.annotations().collect();
    let is_stale = |name: &&str| name.starts_with(OWN_ANNOTATIONS) && !annotations.contains_key(*name);
    annotations.iter().all(|(name, value)| told.get(name.as_str()) == Some(&value.as_str()))
        && !told.keys().any(is_stale)
}

/// The store key of a server's lease.
pub fn identity_key(server_id: &str) -> StoreKey {
    StoreKey::new(leases::key_prefix() + server_id)
}
