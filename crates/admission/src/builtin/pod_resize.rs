//! Upstream's plugins PodResizeValidator and NodeDeclaredFeatureValidator: the node of a resized pod must support the
//! resize and have enough resources.
//!
//! Pods without a node can always be resized, and writes that leave the specification unchanged are not checked. Nodes
//! are read from the cache. If a node is missing there, the plugin waits for the newest revision and reads again.

use futures::future::BoxFuture;
use keelson_meta::json::Value;
use keelson_meta::pod_resources::{Side, of_pod, stated};
use keelson_meta::status::StatusCause;
use keelson_meta::{Amount, Amounts, ApiError, Object, Quantity};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Operation};

use super::reading::{is_about, items};
use super::stored::StoredObjects;

/// The node label with the operating system.
const SYSTEM: &str = "kubernetes.io/os";
/// The operating system whose nodes support resizes.
const ABLE: &str = "linux";
/// The declared feature of nodes that can resize the CPUs of guaranteed pods.
const OF_GUARANTEED: &str = "GuaranteedQoSPodCPUResize";
/// The declared feature of nodes that can resize resources of a whole pod.
const OF_WHOLE: &str = "InPlacePodLevelResourcesVerticalScaling";

/// Nanocores in one millicore, the unit of CPUs in messages.
const NANOS_OF_THOUSANDTH: i128 = 1_000_000;

/// Checks a resized pod against the resources of its node.
#[derive(Debug)]
pub(crate) struct PodResizeValidator;

/// Checks a resized pod against the declared features of its node.
#[derive(Debug)]
pub(crate) struct NodeDeclaredFeatureValidator;

fn interest(attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
    let is_resize = is_about(attributes, "pods") && attributes.subresource() == "resize";
    if is_resize && attributes.operation == Operation::Update {
        AttributesNeeded::Object
    } else {
        AttributesNeeded::None
    }
}

/// The old and new pod with their node, if the resize must be checked.
struct ResizedPod<'r> {
    old: &'r Object,
    new: &'r Object,
    node: &'r str,
}

impl<'r> ResizedPod<'r> {
    fn new(attributes: &AdmissionAttributes<'r>, object: Option<&'r Object>) -> Option<Self> {
        let (old, new) = (attributes.old?, object?);
        let generation = |pod: &'r Object| pod.get(&["metadata", "generation"]);
        let node = new.get(&["spec", "nodeName"]).and_then(Value::as_str).filter(|node| !node.is_empty())?;
        (generation(old) != generation(new)).then_some(Self { old, new, node })
    }

    async fn node(&self, attributes: &AdmissionAttributes<'_>) -> Result<Object, ApiError> {
        let nodes = StoredObjects::new(attributes.registry, "", "nodes")?;
        if let Some(node) = nodes.object(self.node) {
            return Ok(node);
        }
        // Another server may have created the node a moment ago.
        attributes.registry.catch_up().await?;
        nodes.object(self.node).ok_or_else(|| attributes.refused(format!("node \"{}\" not found", self.node)))
    }

    /// The features that the node must declare, sorted.
    fn needed(&self) -> Vec<&'static str> {
        let spec = |pod: &'r Object| pod.get(&["spec"]).unwrap_or(&Value::Null);
        let (old, new) = (spec(self.old), spec(self.new));
        let mut needed = Vec::new();
        let is_guaranteed = self.old.get(&["status", "qosClass"]).and_then(Value::as_str) == Some("Guaranteed");
        let cpu = |container: &Value| stated(container, Side::Requests).get("cpu").unwrap_or_default().quantity();
        let pairs = items(old.get("containers")).iter().zip(items(new.get("containers")));
        if is_guaranteed && pairs.into_iter().any(|(old, new)| cpu(old) != cpu(new)) {
            needed.push(OF_GUARANTEED);
        }
        let quantities = |spec: &Value, side: Side| -> Vec<(String, Quantity)> {
            let amounts = stated(spec, side).0.into_iter();
            amounts.map(|(name, amount)| (name, amount.quantity())).collect()
        };
        if [Side::Requests, Side::Limits].into_iter().any(|side| quantities(old, side) != quantities(new, side)) {
            needed.push(OF_WHOLE);
        }
        needed
    }
}

/// A 403 with a machine-readable reason.
fn refused(attributes: &AdmissionAttributes<'_>, message: String, reason: &str) -> ApiError {
    let mut refusal = attributes.refused(message);
    if let ApiError::Refused { causes, .. } = &mut refusal {
        causes.push(StatusCause { reason: reason.to_owned(), ..StatusCause::default() });
    }
    refusal
}

/// The requests that exceed the resources of the node, as text.
fn beyond(asked: &Amounts, allocatable: &Amounts) -> Vec<String> {
    let amount = |amounts: &Amounts, name: &str| amounts.get(name).unwrap_or_default();
    let thousandths =
        |amount: Amount| amount.quantity().nanos().saturating_add(NANOS_OF_THOUSANDTH - 1) / NANOS_OF_THOUSANDTH;
    let units = |amount: Amount| amount.quantity().rounded_up();
    let told: [(&str, &dyn Fn(Amount) -> i128); 2] = [("cpu", &thousandths), ("memory", &units)];
    let beyond = told.into_iter().filter_map(|(name, number)| {
        let (asked, has) = (amount(asked, name), amount(allocatable, name));
        let is_beyond = asked.quantity() > has.quantity();
        is_beyond.then(|| format!("{name}, requested: {}, allocatable: {}", number(asked), number(has)))
    });
    beyond.collect()
}

impl Admission for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        interest(attributes)
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(resized) = ResizedPod::new(attributes, object) else { return Ok(()) };
            let node = resized.node(attributes).await?;
            let system = node.labels().find(|(name, _)| *name == SYSTEM).map(|(_, system)| system);
            if let Some(system) = system.filter(|system| *system != ABLE) {
                let name = resized.node;
                let message = format!("pod resize is only supported on linux nodes, node \"{name}\" is \"{system}\"");
                return Err(refused(attributes, message, "UnsupportedPlatform"));
            }
            let asked = of_pod(resized.new.get(&["spec"]).unwrap_or(&Value::Null), Side::Requests);
            let beyond = beyond(&asked, &Amounts::read(node.get(&["status", "allocatable"])));
            if beyond.is_empty() {
                return Ok(());
            }
            let message = format!("node didn't have enough allocatable resources: {}", beyond.join("; "));
            Err(refused(attributes, message, "NodeCapacity"))
        })
    }
}

impl Admission for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        interest(attributes)
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(resized) = ResizedPod::new(attributes, object) else { return Ok(()) };
            let mut missing = resized.needed();
            if missing.is_empty() {
                return Ok(());
            }
            let node = resized.node(attributes).await?;
            let declared = items(node.get(&["status", "declaredFeatures"]));
            missing.retain(|needed| declared.iter().all(|feature| feature.as_str() != Some(*needed)));
            if missing.is_empty() {
                return Ok(());
            }
            let (features, name) = (missing.join(", "), resized.node);
            Err(attributes
                .refused(format!("pod update requires features {features} which are not available on node \"{name}\"")))
        })
    }
}
