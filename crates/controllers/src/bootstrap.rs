//! Creates the objects of every cluster: the `kubernetes` service, priority classes, roles and bindings, flow control
//! levels, and the APIServices of built-in groups. Runs in the background at start, while the server answers requests.
//!
//! An existing object belongs to the operator and is not changed, with two exceptions. `flow_objects.rs` maintains the
//! objects of flow control. Roles and bindings get missing rules and subjects, unless
//! `rbac.authorization.kubernetes.io/autoupdate` is `"false"`. None are removed.
//!
//! No authorizer, webhook or policy is called. An object can still be refused, for example by a quota or because the
//! stored one can't be read. The bootstrap retries it with backoff and creates the others meanwhile, and the server
//! becomes ready. Only a store that does not answer delays readiness.

mod policy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use keelson_fairness::defaults;
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};
use keelson_supervision::{Backoff, Pace, info_repeated, warn_repeated};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::authentication_info::AuthenticationPublication;
use crate::client::{Client, SERVER_MANAGER};
use crate::cluster_role_aggregation::ClusterRoleAggregation;
use crate::flow_configuration::FlowApplication;
use crate::flow_schema_status::FlowSchemaStatus;
use crate::kubernetes_service::KubernetesService;
use policy::{PolicyExtensions, PolicyObject};

/// The number of objects created concurrently: enough for a few commits to hold them all.
const AT_ONCE: usize = 64;
/// The backoff before a failed step is tried again.
const AGAIN: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(30) };
/// The longest wait until flow control uses the created objects.
const FLOW_PATIENCE: Duration = Duration::from_secs(5);
/// The number of attempts in a row to write a role or binding that other writers change.
const ATTEMPTS: usize = 8;

const RBAC: &str = "rbac.authorization.k8s.io";
/// A binding, and the binding that it was split from.
const INHERITED: [(&str, &str); 1] = [("system:public-info-viewer", "system:discovery")];
const LEGACY_TOKENS: &str = "kube-apiserver-legacy-service-account-token-tracking";
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The hooks, by the names of their health checks in kube-apiserver.
const HOOKS: [(&str, Hook); 8] = [
    ("poststarthook/start-cluster-authentication-info-controller", Hook::AuthenticationInfo),
    ("poststarthook/start-kubernetes-service-cidr-controller", Hook::ServiceRange),
    ("poststarthook/bootstrap-controller", Hook::KubernetesService),
    ("poststarthook/scheduling/bootstrap-system-priority-classes", Hook::PriorityClasses),
    ("poststarthook/rbac/bootstrap-roles", Hook::Roles),
    ("poststarthook/priority-and-fairness-config-producer", Hook::FlowControl),
    ("poststarthook/start-legacy-token-tracking-controller", Hook::LegacyTokens),
    ("autoregister-completion", Hook::ApiServices),
];

#[derive(Clone, Copy)]
enum Hook {
    AuthenticationInfo,
    ServiceRange,
    KubernetesService,
    PriorityClasses,
    Roles,
    FlowControl,
    LegacyTokens,
    ApiServices,
}

/// Creates the objects of every cluster.
pub struct Bootstrap {
    client: Client,
    authentication: Arc<AuthenticationPublication>,
    service: Arc<KubernetesService>,
    aggregation: Option<Arc<ClusterRoleAggregation>>,
    api_services: Vec<Value>,
    /// The application of flow schemas and priority levels.
    flow: Option<FlowApplication>,
    progress: Arc<Progress>,
}

/// The progress of the bootstrap.
pub struct Progress {
    done: [AtomicBool; HOOKS.len()],
    finished: watch::Sender<bool>,
}

/// The config map with the date since which the server records the use of legacy tokens. A token without a record has
/// not been used since that date.
fn legacy_tokens(now: &str) -> Value {
    let since = now.split('T').next().unwrap_or_default();
    json!({ "metadata": { "name": LEGACY_TOKENS }, "data": { "since": since } })
}

impl Progress {
    /// The names of the steps' health checks.
    pub fn steps() -> impl Iterator<Item = &'static str> {
        HOOKS.iter().map(|(name, _)| *name)
    }

    /// Returns true once a step is done, or once its remaining objects were refused and wait for a retry.
    pub fn is_done(&self, step: &str) -> bool {
        let place = HOOKS.iter().position(|(name, _)| *name == step);
        place.is_some_and(|place| self.done[place].load(Ordering::Acquire))
    }

    /// Waits until all steps are done. Steps with refused objects count as done.
    pub async fn finished(&self) {
        // The sender is in `self`, so waiting can't end otherwise.
        let _ = self.finished.subscribe().wait_for(|finished| *finished).await;
    }

    fn note_done(&self, place: usize) {
        self.done[place].store(true, Ordering::Release);
        if self.done.iter().all(|done| done.load(Ordering::Acquire)) {
            self.finished.send_replace(true);
        }
    }
}

impl Bootstrap {
    /// Creates the bootstrap for a registry, its servers' authentication information, and the service of its servers.
    /// The cluster role aggregation controller, if there is one, fills the aggregated roles.
    pub fn new(
        registry: Arc<Registry>,
        authentication: Arc<AuthenticationPublication>,
        service: Arc<KubernetesService>,
        aggregation: Option<Arc<ClusterRoleAggregation>>,
    ) -> Self {
        let progress = Progress { done: Default::default(), finished: watch::Sender::new(false) };
        let (client, progress) = (Client::of_upkeep(registry, SERVER_MANAGER), Arc::new(progress));
        Self { client, authentication, service, aggregation, api_services: Vec::new(), flow: None, progress }
    }

    /// Adds the APIServices of built-in groups.
    #[must_use]
    pub fn with_api_services(mut self, objects: Vec<Value>) -> Self {
        self.api_services = objects;
        self
    }

    /// Makes the flow control step wait until flow control uses the created objects.
    #[must_use]
    pub fn with_flow(mut self, application: FlowApplication) -> Self {
        self.flow = Some(application);
        self
    }

    /// The progress, for health checks and for callers that wait.
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Marks every step as done, because another server in this process has done them on the same store.
    pub fn skip(&self) {
        (0..HOOKS.len()).for_each(|place| self.progress.note_done(place));
    }

    /// Runs until every object exists, or the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let all = async {
            let steps = HOOKS.iter().enumerate().map(|(place, (name, hook))| self.take(place, name, *hook));
            futures::future::join_all(steps).await;
        };
        stopping.run_until_cancelled(all).await;
    }

    async fn take(&self, place: usize, name: &str, hook: Hook) {
        let mut pace = Pace::new(AGAIN);
        loop {
            pace.turn().await;
            let Err(error) = self.run_hook(hook).await else { break };
            if !holds_readiness_back(&error) {
                self.progress.note_done(place);
            }
            warn_repeated!(name; hook = name, %error, "a bootstrap hook failed; retrying");
        }
        self.progress.note_done(place);
    }

    async fn run_hook(&self, hook: Hook) -> Result<(), ApiError> {
        match hook {
            Hook::AuthenticationInfo => self.authentication.ensure().await,
            Hook::ServiceRange => self.service.ensure_range().await,
            Hook::KubernetesService => self.service.ensure_service().await,
            Hook::PriorityClasses => self.ensure_all("scheduling.k8s.io", "priorityclasses", priority_classes()).await,
            Hook::Roles => {
                self.inherit_bindings().await?;
                let pieces = policy::pieces(self.policy_extensions()).map_err(ApiError::Internal)?;
                let reconciled = self.each(pieces, |piece| self.reconcile(piece)).await;
                match &self.aggregation {
                    Some(aggregation) => worse(reconciled, aggregation.fill_all().await),
                    None => reconciled,
                }
            }
            Hook::FlowControl => {
                let group = "flowcontrol.apiserver.k8s.io";
                let levels = defaults::priority_level_objects();
                let levels = self.ensure_all(group, "prioritylevelconfigurations", levels).await;
                let schemas = self.ensure_all(group, "flowschemas", defaults::flow_schema_objects()).await;
                // A store that accepts no writes must not keep the server from starting. The controller writes the
                // conditions later.
                if let Err(error) = FlowSchemaStatus::fill_all(self.client.registry().clone()).await {
                    tracing::debug!(%error, "the conditions of flow schemas are left to their controller");
                }
                self.flow_applied().await;
                worse(levels, schemas)
            }
            Hook::LegacyTokens => {
                let maps = self.client.collection("", "v1", "configmaps", Some("kube-system"))?;
                self.ensure(&maps, legacy_tokens(&rfc3339(self.client.now()))).await
            }
            Hook::ApiServices => {
                self.ensure_all("apiregistration.k8s.io", "apiservices", self.api_services.clone()).await
            }
        }
    }

    /// Waits until this server schedules requests by the cached objects of flow control, for `FLOW_PATIENCE` at most.
    async fn flow_applied(&self) {
        let Some(mut application) = self.flow.clone() else { return };
        let cached = self.client.registry().cache().watermark();
        if tokio::time::timeout(FLOW_PATIENCE, application.reaches(cached)).await.is_err() {
            tracing::debug!("flow schemas are not in effect yet");
        }
    }

    /// The served resources that extend the policy.
    fn policy_extensions(&self) -> PolicyExtensions {
        let surface = self.client.registry().surface();
        let serves = |plural: &str| {
            let in_version = |version| surface.lookup("certificates.k8s.io", version, plural).is_some();
            ["v1", "v1beta1", "v1alpha1"].into_iter().any(in_version)
        };
        PolicyExtensions {
            trust_bundles: serves("clustertrustbundles"),
            pod_certificates: serves("podcertificaterequests"),
        }
    }

    /// Runs all operations even if some fail. Of several errors, returns one that delays readiness.
    async fn each<T, F: Future<Output = Result<(), ApiError>>>(
        &self,
        things: Vec<T>,
        make: impl Fn(T) -> F,
    ) -> Result<(), ApiError> {
        let made = stream::iter(things).map(make).buffer_unordered(AT_ONCE);
        made.fold(Ok(()), async |before, made| worse(before, made)).await
    }

    async fn ensure_all(&self, group: &str, plural: &str, objects: Vec<Value>) -> Result<(), ApiError> {
        let target = self.client.collection(group, "v1", plural, None)?;
        self.each(objects, |object| self.ensure(&target, object)).await
    }

    /// Creates an object if its name is free. An existing object is not written, so a webhook that refuses every write
    /// can't keep the server from becoming ready.
    async fn ensure(&self, target: &Target, object: Value) -> Result<(), ApiError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if self.client.get(target, name).await?.is_some() {
            return Ok(());
        }
        match self.client.create(target, object).await {
            Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates bindings that were split from another binding as copies of that binding. So a subject that an operator
    /// removed from that binding gets no rights from the new one after an upgrade.
    async fn inherit_bindings(&self) -> Result<(), ApiError> {
        let target = self.client.collection(RBAC, "v1", "clusterrolebindings", None)?;
        for (name, earlier) in INHERITED {
            if self.client.get(&target, name).await?.is_some() {
                continue;
            }
            let Some(earlier) = self.client.get(&target, earlier).await? else { continue };
            let metadata = |field: &str| earlier.object.get(&["metadata", field]).cloned().unwrap_or(Value::Null);
            let binding = json!({
                "metadata": { "name": name, "labels": metadata("labels"), "annotations": metadata("annotations") },
                "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": name },
                "subjects": earlier.object.get(&["subjects"]).cloned().unwrap_or(Value::Null),
            });
            match self.client.create(&target, binding).await {
                Ok(_) | Err(ApiError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates a role or binding, or adds the missing parts to an existing one.
    async fn reconcile(&self, piece: PolicyObject) -> Result<(), ApiError> {
        let PolicyObject { plural, namespace, object } = piece;
        let target = self.client.collection(RBAC, "v1", plural, namespace.as_deref())?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for _ in 0..ATTEMPTS {
            let Some(current) = self.client.get(&target, &name).await? else {
                match self.client.create(&target, object.clone()).await {
                    Err(ApiError::AlreadyExists { .. }) => continue,
                    other => return other.map(|_| ()),
                }
            };
            if current.object.annotations().any(|(key, value)| key == AUTO_UPDATE && value == "false") {
                return Ok(());
            }
            if current.object.get(&["roleRef"]) != object.get("roleRef").filter(|role| !role.is_null()) {
                // The role of a binding is immutable, so the binding is replaced.
                if current.object.deletion_timestamp().is_some() {
                    let what = target.group_resource();
                    return Err(ApiError::Internal(format!("{what} {name:?} is being deleted; finalizers hold it")));
                }
                self.client.delete(&target, &current).await?;
                continue;
            }
            let mut next = current.object.clone();
            complete(&mut next, &object);
            if next == current.object {
                return Ok(());
            }
            info_repeated!(&name; resource = %target.group_resource(), name, "adding missing rules or subjects of the default policy");
            match self.client.update(&target, next).await {
                Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => {}
                other => return other.map(|_| ()),
            }
        }
        // For example, a finalizer holds a binding that is being deleted.
        Err(ApiError::Internal(format!("{plural} {name:?} could not be reconciled with the default policy")))
    }
}

/// Returns true for failures that end by themselves: the store does not answer, or another server writes the same
/// objects. Other failures last until an operator acts, and operators need a ready server for that.
fn holds_readiness_back(error: &ApiError) -> bool {
    error.is_retryable() || matches!(error, ApiError::Conflict { .. } | ApiError::AlreadyExists { .. })
}

/// Returns the outcome that matters more for readiness.
fn worse(one: Result<(), ApiError>, other: Result<(), ApiError>) -> Result<(), ApiError> {
    match (one, other) {
        (Err(error), Ok(())) | (Ok(()), Err(error)) => Err(error),
        (Err(error), Err(other)) => Err(if holds_readiness_back(&other) { other } else { error }),
        (Ok(()), Ok(())) => Ok(()),
    }
}

/// Adds labels, annotations, rules, selectors and subjects that an object lacks.
fn complete(object: &mut Object, wanted: &Value) {
    for field in ["labels", "annotations"] {
        let Some(entries) = wanted["metadata"][field].as_object() else { continue };
        let held = object.metadata_mut().entry(field).or_insert_with(|| json!({}));
        let Some(held) = held.as_object_mut() else { continue };
        for (key, value) in entries {
            held.entry(key).or_insert_with(|| value.clone());
        }
    }
    if let Some(selectors) = wanted["aggregationRule"]["clusterRoleSelectors"].as_array() {
        // The controller of aggregated roles fills the rules of such a role from other roles.
        let rule = object.0.entry("aggregationRule").or_insert_with(|| json!({}));
        if let Some(rule) = rule.as_object_mut() {
            add(rule, "clusterRoleSelectors", |held| missing(held, selectors));
        }
    } else if let Some(rules) = wanted["rules"].as_array() {
        add(&mut object.0, "rules", |held| policy::missing_rules(held, rules));
    }
    if let Some(subjects) = wanted["subjects"].as_array() {
        add(&mut object.0, "subjects", |held| missing(held, subjects));
    }
}

fn add(tree: &mut Map, field: &str, lacking: impl Fn(&[Value]) -> Vec<Value>) {
    let held = tree.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let more = lacking(&held);
    if !more.is_empty() {
        tree.insert(field, Value::Array([held, more].concat()));
    }
}

fn missing(held: &[Value], wanted: &[Value]) -> Vec<Value> {
    wanted.iter().filter(|value| !held.contains(value)).cloned().collect()
}

fn priority_classes() -> Vec<Value> {
    let class = |name: &str, value: u32, description: &str| json!({ "metadata": { "name": name }, "value": value, "description": description });
    vec![
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_store_that_does_not_answer_holds_readiness_back() {
        let away = || ApiError::ServiceUnavailable { message: "away".to_owned(), retry_after_seconds: None };
        let refused = || ApiError::Internal("a stored object can't be read".to_owned());
        assert!(holds_readiness_back(&away()) && holds_readiness_back(&ApiError::Timeout("late".to_owned())));
        assert!(!holds_readiness_back(&refused()));
        assert!(!holds_readiness_back(&ApiError::BadRequest("it is wrong".to_owned())));
        for (one, other) in [(Err(away()), Err(refused())), (Err(refused()), Err(away())), (Ok(()), Err(away()))] {
            assert!(holds_readiness_back(&worse(one, other).unwrap_err()));
        }
        assert!(!holds_readiness_back(&worse(Err(refused()), Ok(())).unwrap_err()));
        assert!(worse(Ok(()), Ok(())).is_ok());
    }

    #[test]
    fn existing_objects_stay_and_missing_ones_are_added() {
        let mut role = Object::from_value(json!({
            "metadata": {"name": "a", "labels": {"mine": "1"}, "annotations": {AUTO_UPDATE: "yes"}},
            "rules": [{"verbs": ["*"], "apiGroups": ["x"], "resources": ["y"]}],
        }))
        .unwrap();
        let read = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let wanted = json!({"metadata": {"labels": {"b": "2"}, "annotations": {AUTO_UPDATE: "true"}}, "rules": [read]});
        complete(&mut role, &wanted);
        let once = role.clone();
        assert_eq!(role.get(&["rules"]).unwrap().as_array().unwrap().len(), 2);
        assert_eq!(role.get(&["metadata", "labels"]).unwrap(), &json!({"mine": "1", "b": "2"}));
        assert_eq!(role.get(&["metadata", "annotations"]).unwrap(), &json!({AUTO_UPDATE: "yes"}));
        complete(&mut role, &wanted);
        assert_eq!(role, once);
    }
}
