//! Coordinated leader election (KEP-4355): elects the holders of leases among candidates.
//!
//! A candidate is a LeaseCandidate, which its component renews. An election asks all candidates of a lease for a
//! renewal (`pingTime`), and then writes the best one into the lease. A valid lease of another holder gets it as
//! `preferredHolder`. Its state is in these objects alone, so any server can continue it. `election` has the rules.

mod election;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use keelson_meta::json::{Value, json};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};
use keelson_supervision::warn_repeated;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::election::{Candidate, HeldLease, Step, step};
use crate::client::{Client, RevisedObject, SERVER_MANAGER};
use crate::leases;

const GROUP: &str = "coordination.k8s.io";
/// The versions of LeaseCandidate, the preferred one first.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha2"];
const CANDIDATES: &str = "leasecandidates";
/// The interval at which candidates and leases are read. Candidates are in the cache, and few.
const INTERVAL: Duration = Duration::from_secs(1);
/// The number of elections that are continued concurrently.
const AT_ONCE: usize = 16;
/// The duration of a new lease in seconds, until its holder renews it.
const LEASE_SECONDS: i64 = 5;

/// The controller.
pub struct CoordinatedElection {
    client: Client,
    candidates: Target,
    leases: Target,
}

/// A lease by namespace and name.
type LeaseName = (String, String);

impl CoordinatedElection {
    /// Creates the controller. `None` if no version of LeaseCandidate is served.
    ///
    /// # Errors
    /// 500 when leases are not served.
    pub fn new(registry: Arc<Registry>) -> Result<Option<Self>, ApiError> {
        let client = Client::of_server(registry, SERVER_MANAGER);
        let leases = client.collection(GROUP, "v1", "leases", None)?;
        let candidates = VERSIONS.iter().find_map(|version| client.collection(GROUP, version, CANDIDATES, None).ok());
        Ok(candidates.map(|candidates| Self { client, candidates, leases }))
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let passes = async {
                loop {
                    if let Err(error) = self.pass().await {
                        warn_repeated!(""; %error, "candidates of leases could not be read; trying again");
                    }
                    sleep(INTERVAL).await;
                }
            };
            stopping.run_until_cancelled(passes).await;
        })
    }

    /// Continues all elections by one step.
    async fn pass(&self) -> Result<(), ApiError> {
        let now = self.client.now();
        let mut elections: BTreeMap<LeaseName, Vec<RevisedObject>> = BTreeMap::new();
        for candidate in self.client.list(&self.candidates, LabelSelector::everything()).await? {
            if Candidate::of(&candidate.object).is_expired(now) {
                self.remove(&candidate).await;
                continue;
            }
            let lease = candidate.object.get(&["spec", "leaseName"]).and_then(Value::as_str).unwrap_or_default();
            let namespace = candidate.object.namespace();
            elections.entry((namespace.to_owned(), lease.to_owned())).or_default().push(candidate);
        }
        let elections = stream::iter(elections).map(|(lease, candidates)| async move {
            if let Err(error) = self.continue_election(&lease, candidates).await {
                let (namespace, name) = &lease;
                warn_repeated!(&format!("{namespace}/{name}"); namespace, name, error, "the holder of a lease could not be elected");
            }
        });
        elections.buffer_unordered(AT_ONCE).collect::<()>().await;
        Ok(())
    }

    /// Removes a candidate that was not renewed for half an hour.
    async fn remove(&self, candidate: &RevisedObject) {
        let target = self.candidates.clone().in_namespace(Some(candidate.object.namespace()));
        match self.client.delete(&target, candidate).await {
            // It was renewed or deleted meanwhile.
            Ok(()) | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
            Err(error) => warn_repeated!(""; %error, "an expired candidate of a lease could not be deleted"),
        }
    }

    async fn continue_election(
        &self,
        (namespace, name): &LeaseName,
        candidates: Vec<RevisedObject>,
    ) -> Result<(), String> {
        let leases = self.leases.clone().in_namespace(Some(namespace));
        let lease = self.client.get(&leases, name).await.map_err(|error| error.to_string())?;
        let read: Vec<Candidate> = candidates.iter().map(|candidate| Candidate::of(&candidate.object)).collect();
        let held = lease.as_ref().map(|lease| HeldLease::of(&lease.object));
        let written = match step(&read, held.as_ref(), self.client.now())? {
            Step::Nothing => Ok(()),
            Step::Ping(asked) => self.ping(asked.into_iter().filter_map(|number| candidates.get(number))).await,
            Step::Elect { holder, strategy } => self.elect(&leases, name, lease, (holder, &strategy)).await,
        };
        match written {
            // Another client wrote meanwhile. The next pass reads the result.
            Ok(()) | Err(ApiError::Conflict { .. } | ApiError::AlreadyExists { .. } | ApiError::NotFound { .. }) => {
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Asks candidates for a renewal.
    async fn ping(&self, candidates: impl Iterator<Item = &RevisedObject>) -> Result<(), ApiError> {
        for candidate in candidates {
            let target = self.candidates.clone().in_namespace(Some(candidate.object.namespace()));
            let mut asked = candidate.object.clone();
            leases::set(&mut asked, [("pingTime", leases::micro_time(self.client.now()))]);
            let _ = self.client.update(&target, asked).await?;
        }
        Ok(())
    }

    /// Writes the result of an election. A lease with another valid holder keeps it until the holder gives it up.
    async fn elect(
        &self,
        target: &Target,
        name: &str,
        lease: Option<RevisedObject>,
        (holder, strategy): (Option<String>, &str),
    ) -> Result<(), ApiError> {
        let now = self.client.now();
        let begin = leases::micro_time(now);
        let Some(RevisedObject { object: known, .. }) = lease else {
            let mut spec = json!({ "strategy": strategy, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": begin });
            if let (Some(holder), Some(spec)) = (&holder, spec.as_object_mut()) {
                spec.insert("holderIdentity", json!(holder));
            }
            let namespace = target.namespace.as_deref().unwrap_or_default();
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": name, "namespace": namespace }, "spec": spec,
            });
            let _ = self.client.create(target, lease).await?;
            tracing::info!(namespace, lease = name, ?holder, "the holder of a lease is elected");
            return Ok(());
        };
        let mut next = known.clone();
        elected(&mut next, &HeldLease::of(&known), (holder.as_deref(), strategy), (begin, now));
        if next.get(&["spec"]) != known.get(&["spec"]) {
            let _ = self.client.update(target, next).await?;
            tracing::info!(lease = name, ?holder, "the holder of a lease is elected");
        }
        Ok(())
    }
}

/// Changes a lease for the result of an election.
fn elected(
    lease: &mut Object,
    held: &HeldLease,
    (holder, strategy): (Option<&str>, &str),
    (begin, now): (Value, std::time::SystemTime),
) {
    leases::set(lease, [("strategy", json!(strategy))]);
    let Some(holder) = holder else { return };
    let is_other = held.holder.as_deref() != Some(holder);
    if held.holder.is_none() || (held.is_expired(now) && is_other) {
        let fields =
            [("holderIdentity", json!(holder)), ("renewTime", begin), ("leaseDurationSeconds", json!(LEASE_SECONDS))];
        leases::set(lease, fields);
        leases::remove(lease, ["preferredHolder", "acquireTime"]);
    } else if is_other {
        leases::set(lease, [("preferredHolder", json!(holder))]);
    }
}
