//! Leader election: of the servers on one store, one runs the controllers.
//!
//! A lease in `kube-system` names the leader, which renews it. A leader that fails to renew stops its controllers
//! before another server may take the lease. A leader that stops releases the lease, so the next leader need not wait.
//! The times are those of the reference controllers.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::Registry;
use keelson_supervision::warn_repeated;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, RevisedObject, clean_up};
use crate::leases;

/// The name of the lease.
const LEASE: &str = "keelson-controllers";
/// The field manager of the lease.
const MANAGER: &str = "keelson-leader-election";
/// The most immediate attempts to write a lease after conflicts.
const ATTEMPTS: usize = 4;

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadershipTimes {
    /// The validity of a lease without a renewal, unless the lease states another. Whole seconds count.
    pub lease: Duration,
    /// The time limit of a leader's renewal attempts. Shorter than `lease`, so two servers never lead at once.
    pub renewal: Duration,
    /// The interval between renewals, and between checks by other servers.
    pub interval: Duration,
}

impl Default for LeadershipTimes {
    fn default() -> Self {
        let [lease, renewal, interval] = [15, 10, 2].map(Duration::from_secs);
        Self { lease, renewal, interval }
    }
}

/// A lease that this process has written.
struct HeldLease {
    lease: RevisedObject,
    /// The start of the write.
    attempt: Instant,
}

/// Takes part in the election for one server.
pub struct Leadership {
    client: Client,
    server_id: String,
    /// The holder identity of this process in the lease.
    holder: String,
    times: LeadershipTimes,
    /// The holder that the lease named when this process first read it.
    first_seen: OnceLock<String>,
}

impl Leadership {
    /// Creates a candidate. `server_id` is the same after a restart, and `holder` names this process. A restarted
    /// server takes the lease of its earlier process at once. That process can't lead any longer, since the server has
    /// registered again.
    pub fn new(registry: Arc<Registry>, server_id: impl Into<String>, holder: impl Into<String>) -> Self {
        let client = Client::of_upkeep(registry, MANAGER);
        let times = LeadershipTimes::default();
        Self { client, server_id: server_id.into(), holder: holder.into(), times, first_seen: OnceLock::new() }
    }

    /// Sets the times of the election.
    #[must_use]
    pub fn with_times(self, times: LeadershipTimes) -> Self {
        Self { times, ..self }
    }

    /// Runs `lead` while this server leads, until the server stops. `lead` must end soon after its token is cancelled.
    pub async fn run<L: Future<Output = ()>>(self, stopping: CancellationToken, lead: impl Fn(CancellationToken) -> L) {
        while !stopping.is_cancelled() {
            let Some(acquired) = stopping.run_until_cancelled(self.acquire()).await else { return };
            if acquired.attempt.elapsed() >= self.times.renewal {
                tracing::warn!(server_id = self.server_id, "the store answered too late to lead; trying again");
                continue;
            }
            tracing::info!(server_id = self.server_id, "this server leads: it runs the controllers");
            let leading = stopping.child_token();
            let (lease, ()) = tokio::join!(self.keep(acquired, &leading), lead(leading.clone()));
            if let Some(lease) = lease {
                self.release(lease).await;
            }
        }
    }

    /// Waits until this server holds the lease.
    async fn acquire(&self) -> HeldLease {
        let mut observed: Option<(RevisedObject, Instant)> = None;
        loop {
            match self.try_acquire(&mut observed).await {
                Ok(Some(lease)) => return lease,
                Ok(None) | Err(ApiError::Conflict { .. } | ApiError::AlreadyExists { .. }) => {}
                Err(error) => warn_repeated!(""; %error, "reading the lease of the leader failed; retrying"),
            }
            tokio::time::sleep(self.times.interval).await;
        }
    }

    /// Takes the lease if possible, and returns it. A lease of another server is free once it has not changed for its
    /// whole duration by this server's own clock, since clocks differ.
    async fn try_acquire(
        &self,
        observed: &mut Option<(RevisedObject, Instant)>,
    ) -> Result<Option<HeldLease>, ApiError> {
        let leases = leases::collection(&self.client)?;
        let now = self.client.now();
        let found = self.client.get(&leases, LEASE).await?;
        let first_seen = self.first_seen.get_or_init(|| found.as_ref().map_or("", stated_holder).to_owned());
        let Some(found) = found else {
            let attempt = Instant::now();
            let created = self.client.create(&leases, self.lease(now)).await?;
            return Ok(Some(HeldLease { lease: created.read(), attempt }));
        };
        let holder = stated_holder(&found);
        if !holder.is_empty() && holder != self.holder && !(holder == first_seen && self.is_namesake(holder)) {
            let since = match observed {
                Some((last, since)) if last.revision == found.revision => *since,
                _ => observed.insert((found.clone(), Instant::now())).1,
            };
            if since.elapsed() < leases::duration(&found.object).unwrap_or(self.times.lease) {
                return Ok(None);
            }
        }
        let attempt = Instant::now();
        let taken = self.client.update(&leases, self.taken_over(found.object, now)).await?;
        Ok(Some(HeldLease { lease: taken.read(), attempt }))
    }

    /// Returns true if the holder is a process of this server. Earlier releases wrote only the server's name as the
    /// holder.
    fn is_namesake(&self, holder: &str) -> bool {
        holder == self.server_id || holder.starts_with(&leases::holder_prefix(&self.server_id))
    }

    /// Renews the lease until cancelled, and then returns it if this process still holds it. Cancels `leading` when a
    /// renewal misses its deadline, or another process holds the lease.
    ///
    /// ORDER: the deadline counts from the start of the last successful write, since other servers may have seen the
    /// lease long before its answer arrived here.
    async fn keep(&self, acquired: HeldLease, leading: &CancellationToken) -> Option<RevisedObject> {
        let HeldLease { mut lease, attempt: mut renewed } = acquired;
        loop {
            if leading.run_until_cancelled(tokio::time::sleep(self.times.interval)).await.is_none() {
                return Some(lease);
            }
            let attempt = Instant::now();
            match tokio::time::timeout_at(renewed + self.times.renewal, self.renew(&lease)).await {
                Ok(Ok(Some(next))) => (lease, renewed) = (next, attempt),
                Ok(Ok(None)) => break,
                Ok(Err(error)) if renewed.elapsed() < self.times.renewal => {
                    warn_repeated!(""; %error, "renewing the lease of the leader failed");
                }
                Ok(Err(_)) | Err(_) => break,
            }
        }
        tracing::error!(server_id = self.server_id, "this server no longer leads");
        leading.cancel();
        None
    }

    /// Renews the lease; `None` when another process holds it.
    async fn renew(&self, lease: &RevisedObject) -> Result<Option<RevisedObject>, ApiError> {
        self.rewrite(lease, |lease| leases::set(lease, [("renewTime", leases::micro_time(self.client.now()))])).await
    }

    /// Releases the lease if this process still holds it.
    async fn release(&self, lease: RevisedObject) {
        let free = |lease: &mut Object| {
            leases::set(lease, [("holderIdentity", json!("")), ("leaseDurationSeconds", json!(1))]);
        };
        let released = async { self.rewrite(&lease, free).await.map(|_| ()) };
        clean_up(released, "releasing the lease of the leader failed; it expires").await;
    }

    /// Changes the lease while this process holds it, even if another client has written it. Returns `None` once
    /// another process holds it.
    ///
    /// A write is repeated even if the conflict came from this process's own earlier write, whose response was lost.
    /// Other servers count from the write that they saw, so counting from the first attempt would be too early.
    async fn rewrite(
        &self,
        lease: &RevisedObject,
        change: impl Fn(&mut Object),
    ) -> Result<Option<RevisedObject>, ApiError> {
        let leases = leases::collection(&self.client)?;
        let mut next = lease.object.clone();
        for _ in 1..ATTEMPTS {
            change(&mut next);
            match self.client.update(&leases, next).await {
                Ok(written) => return Ok(Some(written.read())),
                Err(ApiError::NotFound { .. }) => return Ok(None),
                Err(ApiError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
            match self.client.get(&leases, LEASE).await?.filter(|found| leases::holder(&found.object) == self.holder) {
                Some(found) => next = found.object,
                None => return Ok(None),
            }
        }
        change(&mut next);
        self.client.update(&leases, next).await.map(|lease| Some(lease.read()))
    }

    fn lease(&self, now: SystemTime) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": leases::NAMESPACE},
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.times.lease.as_secs(),
                "acquireTime": leases::micro_time(now),
                "renewTime": leases::micro_time(now),
                "leaseTransitions": 0,
            },
        })
    }

    fn taken_over(&self, mut lease: Object, now: SystemTime) -> Object {
        let transitions = lease.get(&["spec", "leaseTransitions"]).and_then(Value::as_i64).unwrap_or_default();
        let changed = leases::holder(&lease) != self.holder;
        leases::set(
            &mut lease,
            [
                ("holderIdentity", json!(self.holder)),
                ("leaseDurationSeconds", json!(self.times.lease.as_secs())),
                ("acquireTime", leases::micro_time(now)),
                ("renewTime", leases::micro_time(now)),
                ("leaseTransitions", json!(transitions + i64::from(changed))),
            ],
        );
        lease
    }
}

fn stated_holder(lease: &RevisedObject) -> &str {
    leases::holder(&lease.object)
}
