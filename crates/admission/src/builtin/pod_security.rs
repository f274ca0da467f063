//! Upstream's plugin PodSecurity: enforces the pod security standard of a namespace, and warns.
//!
//! Labels of a namespace set the standards for enforcement, audit and warnings; a file sets the defaults and
//! exemptions. Workloads get warnings about pods that will be refused, and namespaces about existing pods. `validation`
//! checks the labels themselves.

mod baseline;
mod configuration;
mod levels;
mod pod;
mod restricted;
mod standards;
mod stats;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_meta::field_error::join;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Caller, Operation, Target};

pub use configuration::PodSecurityConfiguration;
use levels::{Level, Policy, Standard};
use pod::{Pod, at, list};
use standards::violations;
pub use stats::{PodSecurityDecision, PodSecurityStats};
use violation::{reasons, told};

use super::stored::{StoredObjects, bounds};

/// The largest number of existing pods that are checked when a namespace changes its standard.
const MOST_PODS: usize = 3000;
/// The number of pods that are checked before the task yields. One check takes about 40 us.
const PODS_AT_ONCE: usize = 50;
/// The subresources of a pod that cannot change its privileges.
const HARMLESS: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];
/// The audit annotations: the enforced standard, violations of the audit standard, exemptions, and invalid labels.
const ENFORCED: &str = "enforce-policy";
const AUDIT_VIOLATIONS: &str = "audit-violations";
const EXEMPT: &str = "exempt";
const ERROR: &str = "error";

/// Checks pods, workloads and namespaces.
#[derive(Debug, Default)]
pub(crate) struct PodSecurity {
    configuration: PodSecurityConfiguration,
    stats: Arc<PodSecurityStats>,
}

/// The kind of object that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Pod,
    /// An object that creates pods.
    Workload,
    Namespace,
}

impl Subject {
    fn from_target(target: &Target) -> Option<Self> {
        let below = target.subresource_name();
        match (&*target.resource.group, &*target.resource.plural, below) {
            ("", "pods", None) => Some(Self::Pod),
            ("", "pods", Some(below)) => (!HARMLESS.contains(&below)).then_some(Self::Pod),
            ("", "namespaces", None) => Some(Self::Namespace),
            ("", "podtemplates" | "replicationcontrollers", None)
            | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets", None)
            | ("batch", "cronjobs" | "jobs", None) => Some(Self::Workload),
            _ => None,
        }
    }
}

impl PodSecurity {
    /// Creates the plugin from a configuration.
    pub(crate) fn new(configuration: PodSecurityConfiguration, stats: Arc<PodSecurityStats>) -> Self {
        Self { configuration, stats }
    }

    /// Counts a decision about a pod, or about a workload that makes pods.
    fn count(&self, attributes: &AdmissionAttributes<'_>, mode: &'static str, standard: Standard, is_allowed: bool) {
        self.stats.decided(PodSecurityDecision {
            decision: if is_allowed { "allow" } else { "deny" },
            level: standard.level.name(),
            version: standard.version.to_string(),
            mode,
            operation: operation_of(attributes),
            resource: resource_of(attributes),
            subresource: attributes.target.subresource_name().unwrap_or_default().to_owned(),
        });
    }

    /// Counts a skipped check, and records its reason in the audit log.
    fn pass_exempt(&self, attributes: &AdmissionAttributes<'_>, why: &str) {
        note(attributes.caller, EXEMPT, why);
        let subresource = attributes.target.subresource_name().unwrap_or_default().to_owned();
        self.stats.exempted(operation_of(attributes), resource_of(attributes), subresource);
    }

    /// The reason why writes of this user to this namespace are exempt.
    fn exemption(&self, attributes: &AdmissionAttributes<'_>) -> Option<&'static str> {
        let exemptions = &self.configuration.exemptions;
        if exemptions.has_namespace(attributes.target.namespace.as_deref().unwrap_or_default()) {
            return Some("namespace");
        }
        exemptions.has_user(&attributes.caller.user().name).then_some("user")
    }

    /// The policy of the namespace; `None` if nothing must be checked.
    fn policy(&self, attributes: &AdmissionAttributes<'_>) -> Option<Policy> {
        let namespace = attributes.target.namespace.as_deref()?;
        if self.exemption(attributes).is_some() {
            return None;
        }
        // NamespaceLifecycle checks that the namespace exists. If it is deleted in the meantime, the pod is deleted
        // with it.
        let namespace = StoredObjects::new(attributes.registry, "", "namespaces").ok()?.get(namespace)?;
        let defaults = self.configuration.defaults;
        if defaults.is_privileged() && !namespace.labels.iter().any(|(key, _)| key.starts_with(levels::LABELS)) {
            return None;
        }
        let (policy, faults) = Policy::of_labels(|key| namespace.labels.get(key), defaults);
        if !faults.is_empty() && attributes.caller.audit().is_read() {
            note(attributes.caller, ERROR, format!("Failed to parse policy: {}", join(&faults)));
        }
        Some(policy)
    }

    fn judge_pod(&self, attributes: &AdmissionAttributes<'_>, object: &Object) -> Result<(), ApiError> {
        let policy = self.policy(attributes).unwrap_or_default();
        if policy.is_privileged() {
            match self.exemption(attributes) {
                Some(exempt) => self.pass_exempt(attributes, exempt),
                None => {
                    note(attributes.caller, ENFORCED, Standard::default());
                    self.count(attributes, "enforce", policy.enforce, true);
                }
            }
            return Ok(());
        }
        let pod = Pod::from_object(object);
        if attributes.old.is_some_and(|old| !is_significant(&Pod::from_object(old), &pod)) {
            return Ok(());
        }
        if self.is_exempt(&pod) {
            self.pass_exempt(attributes, "runtimeClass");
            return Ok(());
        }
        let broken = violations(policy.enforce, &pod);
        note(attributes.caller, ENFORCED, policy.enforce);
        self.count(attributes, "enforce", policy.enforce, broken.is_empty());
        self.audit(attributes, &policy, &pod);
        if !broken.is_empty() {
            let message = format!("violates PodSecurity \"{}\": {}", policy.enforce, told(&broken));
            return Err(attributes.refused(message));
        }
        self.warn(attributes, &policy, &pod);
        Ok(())
    }

    fn judge_workload(&self, attributes: &AdmissionAttributes<'_>, object: &Object) {
        if let Some(exempt) = self.exemption(attributes) {
            return self.pass_exempt(attributes, exempt);
        }
        let Some(policy) = self.policy(attributes).filter(|policy| !policy.warns_of_nothing()) else { return };
        let Some(pod) = Pod::of_workload(object) else { return };
        if self.is_exempt(&pod) {
            return self.pass_exempt(attributes, "runtimeClass");
        }
        self.audit(attributes, &policy, &pod);
        self.warn(attributes, &policy, &pod);
    }

    /// Adds violations of the audit standard to the audit log.
    fn audit(&self, attributes: &AdmissionAttributes<'_>, policy: &Policy, pod: &Pod<'_>) {
        if !attributes.caller.audit().is_read() {
            return;
        }
        let broken = violations(policy.audit, pod);
        if !broken.is_empty() {
            let violations = format!("would violate PodSecurity \"{}\": {}", policy.audit, told(&broken));
            note(attributes.caller, AUDIT_VIOLATIONS, violations);
            self.count(attributes, "audit", policy.audit, false);
        }
    }

    /// Returns violations of the warning standard to the client as a warning.
    fn warn(&self, attributes: &AdmissionAttributes<'_>, policy: &Policy, pod: &Pod<'_>) {
        if !attributes.caller.warnings().are_read() {
            return;
        }
        let broken = violations(policy.warn, pod);
        if !broken.is_empty() {
            let warning = format!("would violate PodSecurity \"{}\": {}", policy.warn, told(&broken));
            attributes.caller.warnings().add(warning);
            self.count(attributes, "warn", policy.warn, false);
        }
    }

    fn is_exempt(&self, pod: &Pod<'_>) -> bool {
        self.configuration.exemptions.has_runtime_class(pod.runtime_class())
    }

    /// Warns about existing pods that violate the new standard of a namespace, if that is stricter than the old one.
    async fn judge_namespace(&self, attributes: &AdmissionAttributes<'_>, old: &Object, new: &Object) {
        let AdmissionAttributes { caller, registry, .. } = *attributes;
        let enforced = |namespace: &Object| {
            let label = |key: &str| namespace.get(&["metadata", "labels", key]).and_then(Value::as_str);
            Policy::of_labels(label, self.configuration.defaults).0.enforce
        };
        let (before, after) = (enforced(old), enforced(new));
        let is_relaxed = before.version == after.version && after.level <= before.level;
        if after.level == Level::Privileged || is_relaxed || !caller.warnings().are_read() {
            return;
        }
        if self.configuration.exemptions.has_namespace(new.name()) {
            return;
        }
        if let Ok(pods) = StoredObjects::new(registry, "", "pods") {
            caller.warnings().extend(self.warnings_of_pods(&pods, new.name(), after).await);
        }
    }

    async fn warnings_of_pods(&self, pods: &StoredObjects, namespace: &str, standard: Standard) -> Vec<String> {
        let (from, to) = bounds(namespace);
        let snapshot = pods.collection().snapshot();
        let all = snapshot.count(&from, Some(&to));
        let pods: Vec<Arc<Entry>> = snapshot.range(&from, Some(&to)).take(MOST_PODS).cloned().collect();
        // Maps each set of violations to the name of the first pod and the number of pods.
        let mut breaking: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for (number, entry) in pods.iter().enumerate() {
            if number % PODS_AT_ONCE == PODS_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let object = entry.object().decode(entry.revision);
            let pod = Pod::from_object(&object);
            let broken = if self.is_exempt(&pod) { Vec::new() } else { violations(standard, &pod) };
            if !broken.is_empty() {
                // Entries are sorted by key, so the first pod has the least name.
                breaking.entry(reasons(&broken)).or_insert_with(|| (entry.name().to_owned(), 0)).1 += 1;
            }
        }
        let mut warnings = Vec::new();
        if pods.len() < all {
            let looked_at = pods.len();
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {looked_at} of {all} existing pods"
            ));
        }
        if !breaking.is_empty() {
            warnings.push(format!(
                "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
            ));
        }
        let mut of_pods: Vec<String> = breaking
            .into_iter()
            .map(|(broken, (first, count))| match count {
                1 => format!("{first}: {broken}"),
                2 => format!("{first} (and 1 other pod): {broken}"),
                _ => format!("{first} (and {} other pods): {broken}", count - 1),
            })
            .collect();
        of_pods.sort();
        warnings.extend(of_pods);
        warnings
    }
}

/// Adds an audit annotation, if the request is audited.
fn note(caller: &Caller, of: &str, value: impl Display) {
    if caller.audit().is_read() {
        caller.audit().annotate(format!("{}{of}", levels::LABELS), value.to_string());
    }
}

/// The label value of the operation in metrics.
fn operation_of(attributes: &AdmissionAttributes<'_>) -> &'static str {
    if attributes.operation == Operation::Create { "create" } else { "update" }
}

/// The label value of the resource in metrics. Workloads that create pods are called `controller`.
fn resource_of(attributes: &AdmissionAttributes<'_>) -> &'static str {
    match Subject::from_target(attributes.target) {
        Some(Subject::Pod) => "pod",
        Some(Subject::Namespace) => "namespace",
        Some(Subject::Workload) | None => "controller",
    }
}

/// Returns true for an update of a pod that upstream checks: a new container, or another image. Changed annotations are
/// not checked, even if a control reads them.
fn is_significant(old: &Pod<'_>, new: &Pod<'_>) -> bool {
    let container_differs = |old: &Value, new: &Value| at(old, &["image"]) != at(new, &["image"]);
    let list_differs = |field: &str| {
        let (old, new) = (old.list(field), new.list(field));
        old.len() != new.len() || old.iter().zip(new).any(|(old, new)| container_differs(old, new))
    };
    let added = list(new.spec, "ephemeralContainers").iter().any(|new| {
        let before = old.list("ephemeralContainers").iter().find(|old| old.get("name") == new.get("name"));
        before.is_none_or(|before| container_differs(before, new))
    });
    list_differs("containers") || list_differs("initContainers") || added
}

impl Admission for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let is_judged = matches!(attributes.operation, Operation::Create | Operation::Update)
            && match Subject::from_target(attributes.target) {
                // Requests get these audit annotations whether they were checked or exempt.
                Some(Subject::Pod | Subject::Workload) => {
                    attributes.caller.audit().is_read() || self.policy(attributes).is_some()
                }
                Some(Subject::Namespace) => attributes.operation == Operation::Update,
                None => false,
            };
        if is_judged { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(object) = object else { return Ok(()) };
            match (Subject::from_target(attributes.target), attributes.old) {
                (Some(Subject::Pod), _) => return self.judge_pod(attributes, object),
                (Some(Subject::Workload), _) => self.judge_workload(attributes, object),
                (Some(Subject::Namespace), Some(old)) => self.judge_namespace(attributes, old, object).await,
                (Some(Subject::Namespace), None) | (None, _) => {}
            }
            Ok(())
        })
    }
}
