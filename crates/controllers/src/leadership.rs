//! Leader election: of the servers on one store, one runs the controllers.
//!
//! A lease in `kube-system` says who. The leader renews it; when it has not for so long that another may have taken it, it
//! stops its controllers first. Who leads and stops gives the lease up, so that the next need not wait. The times are those
//! of the reference controllers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_meta::{ApiError, Object};
use keelson_registry::Registry;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Stored, farewell};
use crate::leases;

/// The name of the lease.
const LEASE: &str = "keelson-controllers";
/// The name by which an elected server owns its fields.
const MANAGER: &str = "keelson-leader-election";
/// How long a lease stands without a renewal.
const DURATION: Duration = Duration::from_secs(15);
/// How long a leader tries to renew before it stops leading: less than [`DURATION`], so that there never are two.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often it is renewed, and how often others look.
const INTERVAL: Duration = Duration::from_secs(2);

/// Takes part in the election for one server.
pub struct Leadership {
    client: Client,
    server_id: String,
}

impl Leadership {
    /// A candidate. `server_id` is stable over restarts: a server that comes back takes its own lease up again at once.
    pub fn new(registry: Arc<Registry>, server_id: impl Into<String>) -> Self {
        Self { client: Client::new(registry, MANAGER), server_id: server_id.into() }
    }

    /// Runs `lead` whenever this server leads, until the server stops. `lead` ends soon after its token is cancelled.
    pub async fn run<L: Future<Output = ()>>(self, stopping: CancellationToken, lead: impl Fn(CancellationToken) -> L) {
        while !stopping.is_cancelled() {
            let Some(lease) = stopping.run_until_cancelled(self.acquire()).await else { return };
            tracing::info!(server_id = self.server_id, "this server leads: it runs the controllers");
            let leading = stopping.child_token();
            let (lease, ()) = tokio::join!(self.keep(lease, &leading), lead(leading.clone()));
            if let Some(lease) = lease {
                self.release(lease).await;
            }
        }
    }

    /// Waits until the lease is this server's.
    async fn acquire(&self) -> Stored {
        let mut observed: Option<(Stored, Instant)> = None;
        loop {
            match self.try_acquire(&mut observed).await {
                Ok(Some(lease)) => return lease,
                Ok(None) | Err(ApiError::Conflict { .. } | ApiError::AlreadyExists { .. }) => {}
                Err(error) => tracing::warn!(%error, "looking for who leads failed; it is tried again"),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// The lease, if it could be taken. Another's is taken when it has not changed for as long as it stands, by this
    /// server's own clock: clocks of servers differ.
    async fn try_acquire(&self, observed: &mut Option<(Stored, Instant)>) -> Result<Option<Stored>, ApiError> {
        let leases = leases::collection()?;
        let now = self.client.now();
        let Some(found) = self.client.get(&leases, LEASE).await? else {
            return self.client.create(&leases, self.lease(now)).await.map(Some);
        };
        let holder = leases::holder(&found.object);
        if !holder.is_empty() && holder != self.server_id {
            let since = match observed {
                Some((last, since)) if last.revision == found.revision => *since,
                _ => observed.insert((found.clone(), Instant::now())).1,
            };
            if since.elapsed() < DURATION {
                return Ok(None);
            }
        }
        self.client.update(&leases, self.taken_over(found.object, now)).await.map(Some)
    }

    /// Renews the lease until told to stop; then, and only while it is still held, returns it. Cancels `leading` when it
    /// could not be renewed in time.
    async fn keep(&self, mut lease: Stored, leading: &CancellationToken) -> Option<Stored> {
        let mut renewed = Instant::now();
        loop {
            if leading.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
                return Some(lease);
            }
            let attempt = Instant::now();
            match tokio::time::timeout_at(renewed + RENEW_DEADLINE, self.renew(&lease)).await {
                Ok(Ok(Some(next))) => (lease, renewed) = (next, attempt),
                Ok(Ok(None)) => break,
                Ok(Err(error)) if renewed.elapsed() < RENEW_DEADLINE => {
                    tracing::warn!(%error, "the lead was not renewed");
                }
                Ok(Err(_)) | Err(_) => break,
            }
        }
        tracing::error!(server_id = self.server_id, "this server no longer leads");
        leading.cancel();
        None
    }

    /// `None` when it is no longer this server's.
    async fn renew(&self, lease: &Stored) -> Result<Option<Stored>, ApiError> {
        let leases = leases::collection()?;
        let mut next = lease.object.clone();
        leases::set(&mut next, [("renewTime", leases::micro_time(self.client.now()))]);
        match self.client.update(&leases, next).await {
            Ok(written) => Ok(Some(written)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(ApiError::Conflict { .. }) => {
                let found = self.client.get(&leases, LEASE).await?;
                Ok(found.filter(|found| leases::holder(&found.object) == self.server_id))
            }
            Err(error) => Err(error),
        }
    }

    async fn release(&self, lease: Stored) {
        let mut free = lease.object;
        leases::set(&mut free, [("holderIdentity", json!("")), ("leaseDurationSeconds", json!(1))]);
        let released = async { self.client.update(&leases::collection()?, free).await.map(|_| ()) };
        farewell(released, "the lead was not given up; it ends by itself").await;
    }

    fn lease(&self, now: SystemTime) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": leases::NAMESPACE},
            "spec": {
                "holderIdentity": self.server_id,
                "leaseDurationSeconds": DURATION.as_secs(),
                "acquireTime": leases::micro_time(now),
                "renewTime": leases::micro_time(now),
                "leaseTransitions": 0,
            },
        })
    }

    fn taken_over(&self, mut lease: Object, now: SystemTime) -> Object {
        let transitions = lease.get(&["spec", "leaseTransitions"]).and_then(Value::as_i64).unwrap_or_default();
        let changed = leases::holder(&lease) != self.server_id;
        leases::set(
            &mut lease,
            [
                ("holderIdentity", json!(self.server_id)),
                ("leaseDurationSeconds", json!(DURATION.as_secs())),
                ("acquireTime", leases::micro_time(now)),
                ("renewTime", leases::micro_time(now)),
                ("leaseTransitions", json!(transitions + i64::from(changed))),
            ],
        );
        lease
    }
}
