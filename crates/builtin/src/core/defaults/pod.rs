//! Defaults of pods and pod templates.
//!
//! Templates get the same defaults as pods, except for the values that admission plugins add to new pods.

use keelson_meta::json::{Map, Value, json};
use keelson_meta::pod_resources::{Side, is_of_pods, of_containers};

use crate::core::defaults::volumes::{FIELD_REFERENCE, VOLUME};
use crate::defaulting::type_defaults::Rule::{
    Always, Amounts, By, Copied, Each, Empty, EntriesOf, Flag, In, Number, Positive, Text,
};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, mirror_first, set, text};

/// A pod.
pub(crate) const POD: TypeDefaults = TypeDefaults::new(&[("spec", Always(&SPEC_OF_POD)), ("status", In(&STATUS))]);

/// A pod template object.
pub(crate) const POD_TEMPLATE: TypeDefaults = TypeDefaults::new(&[("template", Always(&TEMPLATE))]);

/// A template within a workload.
pub(crate) const TEMPLATE: TypeDefaults = TypeDefaults::new(&[("spec", Always(&SPEC))]);

const SPEC_OF_POD: TypeDefaults = TypeDefaults {
    fields: &[
        ("enableServiceLinks", Flag(true)),
        ("initContainers", Each(&RUNNING_CONTAINER)),
        ("containers", Each(&RUNNING_CONTAINER)),
    ],
    then: &[
        FollowUp::Also(&AROUND_CONTAINERS),
        FollowUp::If { flag: "hostNetwork", then: &ON_HOST },
        FollowUp::Where { field: "resources", run: resources_of_pod },
    ],
};

/// The status of a pod: its addresses, which are in two fields, and the resources of its containers.
const STATUS: TypeDefaults = TypeDefaults {
    fields: &[
        ("initContainerStatuses", Each(&GIVEN)),
        ("containerStatuses", Each(&GIVEN)),
        ("ephemeralContainerStatuses", Each(&GIVEN)),
    ],
    then: &[FollowUp::Also(&GIVEN), FollowUp::Run(&["podIP", "podIPs"], addresses)],
};

const GIVEN: TypeDefaults = TypeDefaults::new(&[("allocatedResources", Amounts), ("resources", In(&RESOURCES))]);

/// Requests and limits.
pub(crate) const RESOURCES: TypeDefaults = TypeDefaults::new(&[("limits", Amounts), ("requests", Amounts)]);

fn addresses(status: &mut Map) {
    mirror_first(status, "podIP", "podIPs", Some("ip"));
}

/// The requests of a container default to its limits.
const RUNNING_CONTAINER: TypeDefaults =
    TypeDefaults { fields: &[("resources", In(&RUNNING_RESOURCES))], then: &[FollowUp::Also(&AROUND_RESOURCES)] };

const RUNNING_RESOURCES: TypeDefaults = TypeDefaults {
    fields: &[("limits", Amounts), ("requests", EntriesOf("limits"))],
    then: &[FollowUp::Also(&const { TypeDefaults::new(&[("requests", Amounts)]) })],
};

/// A container port in the host network defaults to the same host port.
const ON_HOST: TypeDefaults =
    TypeDefaults::new(&[("initContainers", Each(&ON_HOST_PORTS)), ("containers", Each(&ON_HOST_PORTS))]);

const ON_HOST_PORTS: TypeDefaults =
    TypeDefaults::new(&[("ports", Each(&const { TypeDefaults::new(&[("hostPort", Copied("containerPort"))]) }))]);

const SPEC: TypeDefaults = TypeDefaults {
    fields: &[("initContainers", Each(&CONTAINER)), ("containers", Each(&CONTAINER))],
    then: &[FollowUp::Also(&AROUND_CONTAINERS)],
};

/// All fields of a pod spec except those of containers, which depend on the kind.
const AROUND_CONTAINERS: TypeDefaults = TypeDefaults {
    fields: &[
        ("volumes", Each(&VOLUME)),
        ("ephemeralContainers", Each(&CONTAINER)),
        ("restartPolicy", Text("Always")),
        ("terminationGracePeriodSeconds", Number(30)),
        ("dnsPolicy", Text("ClusterFirst")),
        ("securityContext", Empty),
        ("schedulerName", Text("default-scheduler")),
        ("overhead", Amounts),
        ("resources", In(&RESOURCES)),
    ],
    then: &[FollowUp::Run(&["serviceAccountName", "serviceAccount"], service_account)],
};

const CONTAINER: TypeDefaults =
    TypeDefaults { fields: &[("resources", In(&RESOURCES))], then: &[FollowUp::Also(&AROUND_RESOURCES)] };

/// All fields of a container except its resources, which differ between pods and templates.
const AROUND_RESOURCES: TypeDefaults = TypeDefaults::new(&[
    ("ports", Each(&const { TypeDefaults::new(&[("protocol", Text("TCP"))]) })),
    ("env", Each(&ENVIRONMENT)),
    ("livenessProbe", In(&PROBE)),
    ("readinessProbe", In(&PROBE)),
    ("startupProbe", In(&PROBE)),
    ("lifecycle", In(&LIFECYCLE)),
    ("terminationMessagePath", Text("/dev/termination-log")),
    ("terminationMessagePolicy", Text("File")),
    ("imagePullPolicy", By("image", |container| Some(pull_policy(text(container, "image"))))),
]);

const ENVIRONMENT: TypeDefaults =
    TypeDefaults::new(&[("valueFrom", In(&const { TypeDefaults::new(&[("fieldRef", In(&FIELD_REFERENCE))]) }))]);

const PROBE: TypeDefaults = TypeDefaults::new(&[
    ("timeoutSeconds", Positive(1)),
    ("periodSeconds", Positive(10)),
    ("successThreshold", Positive(1)),
    ("failureThreshold", Positive(3)),
    ("httpGet", In(&HTTP_GET)),
    ("grpc", In(&const { TypeDefaults::new(&[("service", Text(""))]) })),
]);

const LIFECYCLE: TypeDefaults = TypeDefaults::new(&[("postStart", In(&HANDLER)), ("preStop", In(&HANDLER))]);

const HANDLER: TypeDefaults = TypeDefaults::new(&[("httpGet", In(&HTTP_GET))]);

const HTTP_GET: TypeDefaults = TypeDefaults::new(&[("path", Text("/")), ("scheme", Text("HTTP"))]);

/// The default pull policy of an image. An image whose content may change under its name is always pulled.
pub(crate) fn pull_policy(image: &str) -> Value {
    if tag(image) == Some("latest") { "Always".into() } else { "IfNotPresent".into() }
}

/// The tag of an image; `latest` if there is neither a tag nor a digest. `None` if the name is invalid.
fn tag(image: &str) -> Option<&str> {
    if !crate::core::defaults::image::is_reference(image) {
        return None;
    }
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    // A colon before the last slash belongs to a port.
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), digest) {
        (Some((_, tag)), _) => Some(tag),
        (None, Some(_)) => None,
        (None, None) => Some("latest"),
    }
}

/// `serviceAccount` is the former name of `serviceAccountName`. Both fields are set.
fn service_account(spec: &mut Map) {
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    };
    if !name.is_empty() {
        let name = name.to_owned();
        set(spec, "serviceAccountName", name.clone());
        set(spec, "serviceAccount", name);
    }
}

/// If a pod has pod-level resources, its requests default to the sum of its containers' requests, or else to its limits
/// (KEP-2837).
fn resources_of_pod(spec: &mut Map) {
    let (asked, limits) = (of_containers(spec, Side::Requests), of_containers(spec, Side::Limits));
    let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let states = |resources: &Map, side: Side| {
        resources.get(side.field()).and_then(Value::as_object).is_some_and(|amounts| !amounts.is_empty())
    };
    if states(resources, Side::Limits) || states(resources, Side::Requests) {
        let requested = resources.get(Side::Requests.field()).and_then(Value::as_object).cloned().unwrap_or_default();
        let pages = limits.0.iter().filter(|(name, _)| is_of_huge_pages(name) && !requested.contains_key(name));
        add_missing(resources, Side::Limits, pages.map(|(name, most)| (&**name, json!(most.to_string()))).collect());
    }
    if states(resources, Side::Limits) {
        let shared = asked.0.iter().filter(|(name, _)| is_of_pods(name) && !is_of_huge_pages(name));
        add_missing(resources, Side::Requests, shared.map(|(name, sum)| (&**name, json!(sum.to_string()))).collect());
        let limits = resources.get(Side::Limits.field()).and_then(Value::as_object).cloned().unwrap_or_default();
        let own = limits.iter().filter(|(name, _)| is_of_pods(name));
        add_missing(resources, Side::Requests, own.map(|(name, most)| (name, most.clone())).collect());
    }
}

fn is_of_huge_pages(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// Adds the amounts that are absent.
fn add_missing(resources: &mut Map, side: Side, amounts: Vec<(&str, Value)>) {
    if amounts.is_empty() {
        return;
    }
    let stated = resources.entry(side.field()).or_insert(Value::Null);
    if stated.is_null() {
        *stated = json!({});
    }
    let Some(stated) = stated.as_object_mut() else { return };
    for (name, amount) in amounts {
        stated.entry(name).or_insert(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::tag;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn image_tags_are_distinguished_from_ports_and_digests() {
        for (image, expected) in [
            ("", None),
            ("nginx", Some("latest")),
            ("nginx:1.27", Some("1.27")),
            ("nginx:latest", Some("latest")),
            ("registry.example:5000/nginx", Some("latest")),
            ("registry.example:5000/nginx:2", Some("2")),
            (&format!("nginx@{DIGEST}"), None),
            (&format!("nginx:latest@{DIGEST}"), Some("latest")),
            ("$(IMAGE)", None),
            ("Nginx", None),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
