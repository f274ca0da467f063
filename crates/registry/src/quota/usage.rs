//! The usage of an object, under the names that quotas limit.
//!
//! Each object of any resource counts as one. Pods, claims, services and device claims also count by the amounts that
//! they request. The names are upstream's.

use keelson_meta::json::Value;
use keelson_meta::pod_resources::{Side, is_of_pods as is_amount_of_pods, of_pod, stated};
use keelson_meta::{Amount, Amounts, Object};

/// Resources of the core group that are also counted under their plain name.
const PLAIN_COUNTS: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];
/// Resources that are never counted, since clients do not choose to create their objects.
const UNCOUNTED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
const OF_DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// The number of devices that a request for all devices counts as.
const MOST_DEVICES: i64 = 32;

/// The counting of a resource's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage<'r> {
    group: &'r str,
    plural: &'r str,
    by: By,
}

/// The amounts of a resource's objects that are counted besides their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Number,
    Pods,
    Services,
    Claims,
    Devices,
    Nothing,
}

fn texts<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

impl<'r> Usage<'r> {
    /// The counting of a resource's objects.
    pub(super) fn new(group: &'r str, plural: &'r str) -> Self {
        let by = match (group, plural) {
            ("", "pods") => By::Pods,
            ("", "services") => By::Services,
            ("", "persistentvolumeclaims") => By::Claims,
            ("resource.k8s.io", "resourceclaims") => By::Devices,
            _ if UNCOUNTED.contains(&(group, plural)) => By::Nothing,
            _ => By::Number,
        };
        Self { group, plural, by }
    }

    /// Returns true if only the number of objects counts, so that none is read.
    pub(super) fn is_number(self) -> bool {
        self.by == By::Number
    }

    /// Returns true for pods.
    pub(super) fn is_of_pods(self) -> bool {
        self.by == By::Pods
    }

    /// Returns true for claims.
    pub(super) fn is_of_claims(self) -> bool {
        self.by == By::Claims
    }

    /// Returns true for the writes that quotas check, as upstream: creates, and updates that may use more.
    ///
    /// For a pod, these updates are a resize, and one that sets or removes its deadline, because this changes its
    /// scopes. No other update changes the usage of a pod. Its labels can therefore change even if a quota requires
    /// amounts that the pod does not state.
    pub(super) fn is_counted_at(self, subresource: Option<&str>, old: Option<&Object>, new: &Object) -> bool {
        match (self.by, subresource, old) {
            (By::Nothing, ..) => false,
            (_, None, None) => true,
            (By::Pods, None, Some(old)) => is_terminating(old) != is_terminating(new),
            (By::Pods, Some("resize"), Some(_)) => true,
            (By::Services | By::Claims | By::Devices, None, Some(_)) => true,
            _ => false,
        }
    }

    /// The name of the number of objects: `count/<plural>.<group>`.
    pub(super) fn count_name(self) -> String {
        if self.group.is_empty() {
            format!("count/{}", self.plural)
        } else {
            format!("count/{}.{}", self.plural, self.group)
        }
    }

    /// Returns true if the name of a limit applies to objects of this resource.
    pub(super) fn has(self, name: &str) -> bool {
        if let Some(counted) = name.strip_prefix("count/") {
            return self.by != By::Nothing
                && match counted.split_once('.') {
                    Some((plural, group)) => (plural, group) == (self.plural, self.group),
                    None => self.group.is_empty() && counted == self.plural,
                };
        }
        if self.group.is_empty() && name == self.plural && PLAIN_COUNTS.contains(&name) {
            return true;
        }
        match self.by {
            By::Pods => is_of_pods(name),
            By::Services => matches!(name, "services.nodeports" | "services.loadbalancers"),
            By::Claims => name == "requests.storage" || name.contains(OF_CLASS),
            By::Devices => name.ends_with(OF_DEVICES),
            By::Number | By::Nothing => false,
        }
    }

    /// The usage of an object.
    pub(super) fn amounts(self, object: &Object) -> Amounts {
        let mut used = Amounts::default();
        if self.by == By::Nothing {
            return used;
        }
        used.set(self.count_name(), Amount::units(1));
        let spec = object.0.get("spec").unwrap_or(&Value::Null);
        if self.by == By::Pods && has_ended(object) {
            return used;
        }
        if self.group.is_empty() && PLAIN_COUNTS.contains(&self.plural) {
            used.set(self.plural, Amount::units(1));
        }
        match self.by {
            By::Pods => add_pod(&mut used, &of_pod(spec, Side::Requests), &of_pod(spec, Side::Limits)),
            By::Services => add_service(&mut used, spec),
            By::Claims => add_claim(&mut used, object, spec),
            By::Devices => add_devices(&mut used, spec),
            By::Number | By::Nothing => {}
        }
        used
    }

    /// Returns true for an update that uses more of any name, including names of quotas that did not count the object
    /// before.
    pub(super) fn grows(self, old: &Object, new: &Object) -> bool {
        // Other quotas may count a pod when its deadline changes.
        self.uses_more(old, new) || self.by == By::Pods && is_terminating(old) != is_terminating(new)
    }

    /// Returns true for an update that uses more of any name.
    pub(super) fn uses_more(self, old: &Object, new: &Object) -> bool {
        let (before, after) = (self.amounts(old), self.amounts(new));
        let is_more =
            |(name, amount): (&String, &Amount)| amount.quantity() > before.get(name).unwrap_or_default().quantity();
        after.0.iter().any(is_more)
    }

    /// Returns true for the usage of this resource.
    pub(super) fn is_of(self, group: &str, plural: &str) -> bool {
        (self.group, self.plural) == (group, plural)
    }

    /// Refuses a pod whose containers do not state an amount that a quota limits. If the pod states amounts as a whole,
    /// its containers need not.
    ///
    /// # Errors
    /// A message in upstream's words.
    pub(super) fn check_stated<'n>(
        self,
        limited: impl Iterator<Item = &'n str>,
        object: &Object,
    ) -> Result<(), String> {
        const HAVE_TO_BE: [&str; 6] =
            ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
        if self.by != By::Pods {
            return Ok(());
        }
        let spec = object.0.get("spec").unwrap_or(&Value::Null);
        let said_by = |of: &Value| {
            let mut said = Amounts::default();
            add_pod(&mut said, &stated(of, Side::Requests), &stated(of, Side::Limits));
            said
        };
        let asks_as_whole = |side| stated(spec, side).0.keys().any(|name| is_amount_of_pods(name));
        if asks_as_whole(Side::Requests) || asks_as_whole(Side::Limits) {
            return Ok(());
        }
        let mut needed: Vec<&str> = limited.filter(|name| HAVE_TO_BE.contains(name)).collect();
        needed.sort_unstable();
        let containers: Vec<(&str, Amounts)> = ["containers", "initContainers"]
            .into_iter()
            .flat_map(|field| items(spec, field))
            .map(|container| (texts(container, "name"), said_by(container)))
            .collect();
        let missing = needed.into_iter().filter_map(|name| {
            let mut silent: Vec<&str> =
                containers.iter().filter(|(_, said)| said.get(name).is_none()).map(|(name, _)| *name).collect();
            silent.sort_unstable();
            (!silent.is_empty()).then(|| format!("{name} for: {}", silent.join(",")))
        });
        let missing: Vec<String> = missing.collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("must specify {}", missing.join("; "))) }
    }
}

/// Returns true if the name of a limit applies to requests of pods.
fn is_of_pods(name: &str) -> bool {
    let plain = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    match plain {
        "cpu" | "memory" | "ephemeral-storage" => true,
        _ if plain.starts_with("hugepages-") => !name.starts_with("limits."),
        _ => name.starts_with("requests.") && is_extended(plain) && !plain.contains(OF_CLASS),
    }
}

/// Returns true for a resource outside of Kubernetes' own names.
fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

/// Returns true for a pod with a deadline.
pub(super) fn is_terminating(pod: &Object) -> bool {
    pod.get(&["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0)
}

/// Returns true if a pod has ended, or its grace period is over.
fn has_ended(pod: &Object) -> bool {
    let phase = pod.get(&["status", "phase"]).and_then(Value::as_str);
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return true;
    }
    let grace = pod.meta("deletionGracePeriodSeconds").and_then(Value::as_i64);
    // A deleted pod with a grace period of zero has ended.
    pod.deletion_timestamp().is_some() && grace == Some(0)
}

fn add_pod(used: &mut Amounts, requests: &Amounts, limits: &Amounts) {
    for (name, amount) in &requests.0 {
        match name.as_str() {
            "cpu" | "memory" | "ephemeral-storage" => {
                used.set(name.as_str(), *amount);
                used.set(format!("requests.{name}"), *amount);
            }
            _ if name.starts_with("hugepages-") => {
                used.set(name.as_str(), *amount);
                used.set(format!("requests.{name}"), *amount);
            }
            _ if is_extended(name) => used.set(format!("requests.{name}"), *amount),
            _ => {}
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            used.set(format!("limits.{name}"), amount);
        }
    }
}

fn add_service(used: &mut Amounts, spec: &Value) {
    let ports = items(spec, "ports");
    let count = |ports: usize| Amount::units(i64::try_from(ports).unwrap_or(i64::MAX));
    match texts(spec, "type") {
        "NodePort" => used.set("services.nodeports", count(ports.len())),
        "LoadBalancer" => {
            used.set("services.loadbalancers", Amount::units(1));
            let allocates = spec.get("allocateLoadBalancerNodePorts").and_then(Value::as_bool) != Some(false);
            let has_port = |port: &&Value| port.get("nodePort").and_then(Value::as_i64).is_some_and(|port| port != 0);
            let taken = if allocates { ports.len() } else { ports.iter().filter(has_port).count() };
            used.set("services.nodeports", count(taken));
        }
        _ => {}
    }
}

fn add_claim(used: &mut Amounts, claim: &Object, spec: &Value) {
    const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    let annotated = claim.get(&["metadata", "annotations", CLASS]).and_then(Value::as_str);
    let class = annotated.unwrap_or_else(|| texts(spec, "storageClassName"));
    let requested = Amounts::read(spec.get("resources").and_then(|resources| resources.get("requests")));
    let storage = requested.get("storage");
    if let Some(storage) = storage {
        used.set("requests.storage", storage);
    }
    if !class.is_empty() {
        used.set(format!("{class}{OF_CLASS}persistentvolumeclaims"), Amount::units(1));
        if let Some(storage) = storage {
            used.set(format!("{class}{OF_CLASS}requests.storage"), storage);
        }
    }
}

/// For requests with alternatives, adds the largest number of devices that each class could provide.
fn add_devices(used: &mut Amounts, spec: &Value) {
    let number = |request: &Value| match texts(request, "allocationMode") {
        "All" => MOST_DEVICES,
        _ => request.get("count").and_then(Value::as_i64).unwrap_or(1),
    };
    let of_class = |request: &Value| {
        let name = format!("{}{OF_DEVICES}", texts(request, "deviceClassName"));
        Amounts([(name, Amount::units(number(request)))].into())
    };
    let requests = spec.get("devices").map_or(&[][..], |devices| items(devices, "requests"));
    for request in requests {
        let mut needed = Amounts::default();
        if let Some(exactly) = request.get("exactly").filter(|exactly| !exactly.is_null()) {
            needed.add_all(&of_class(exactly));
        }
        for way in items(request, "firstAvailable") {
            needed.raise_to(&of_class(way));
        }
        used.add_all(&needed);
    }
}

/// The group and plural name of the resource whose objects the name of a limit counts. For pods, claims and others this
/// includes the amounts that they request.
pub(super) fn counted_by(name: &str) -> Option<(&str, &str)> {
    if let Some(counted) = name.strip_prefix("count/") {
        return Some(counted.split_once('.').map_or(("", counted), |(plural, group)| (group, plural)));
    }
    if PLAIN_COUNTS.contains(&name) {
        return Some(("", name));
    }
    let special =
        [("", "services"), ("", "persistentvolumeclaims"), ("resource.k8s.io", "resourceclaims"), ("", "pods")];
    special.into_iter().find(|(group, plural)| Usage::new(group, plural).has(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    #[test]
    fn quota_usage_has_upstream_names() {
        let check = |group: &str, plural: &str, value: Value, expected: &str| {
            assert_eq!(Usage::new(group, plural).amounts(&object(value)).to_string(), expected);
        };
        check("apps", "deployments", json!({}), "count/deployments.apps=1");
        check("", "configmaps", json!({}), "configmaps=1,count/configmaps=1");
        check("", "events", json!({}), "");
        let resources = json!({ "requests": { "cpu": "1", "example.org/gpu": "2" }, "limits": { "cpu": "2" } });
        let pod = json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } });
        let used = "count/pods=1,cpu=1,limits.cpu=2,pods=1,requests.cpu=1,requests.example.org/gpu=2";
        check("", "pods", pod.clone(), used);
        let mut ended = pod;
        ended["status"] = json!({ "phase": "Failed" });
        check("", "pods", ended, "count/pods=1");
        let service = json!({ "spec": { "type": "LoadBalancer", "ports": [{}, {}] } });
        check("", "services", service, "count/services=1,services=1,services.loadbalancers=1,services.nodeports=2");
        let claim =
            json!({ "spec": { "storageClassName": "fast", "resources": { "requests": { "storage": "1Gi" } } } });
        check(
            "",
            "persistentvolumeclaims",
            claim,
            "count/persistentvolumeclaims=1,fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             fast.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi",
        );
        let exactly = json!({ "name": "r", "exactly": { "deviceClassName": "gpu", "count": 3 } });
        let devices = json!({ "spec": { "devices": { "requests": [exactly] } } });
        let used = "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=3";
        check("resource.k8s.io", "resourceclaims", devices, used);
    }

    #[test]
    fn quotas_are_compared_with_creates_and_with_updates_that_may_use_more() {
        let bare = object(json!({ "spec": {} }));
        let dated = object(json!({ "spec": { "activeDeadlineSeconds": 5 } }));
        let check = |plural: &str, below: Option<&str>, old: Option<&Object>, new: &Object, expected: bool| {
            assert_eq!(Usage::new("", plural).is_counted_at(below, old, new), expected, "{plural} {below:?} {old:?}");
        };
        check("pods", None, None, &bare, true);
        check("pods", None, Some(&bare), &bare, false);
        check("pods", None, Some(&bare), &dated, true);
        check("pods", None, Some(&dated), &dated, false);
        check("pods", Some("resize"), Some(&bare), &bare, true);
        for below in ["status", "binding", "eviction", "ephemeralcontainers"] {
            check("pods", Some(below), Some(&bare), &dated, false);
            check("pods", Some(below), None, &bare, false);
        }
        for plural in ["services", "persistentvolumeclaims"] {
            check(plural, None, Some(&bare), &bare, true);
            check(plural, Some("status"), Some(&bare), &bare, false);
        }
        check("secrets", None, None, &bare, true);
        check("secrets", None, Some(&bare), &bare, false);
        check("events", None, None, &bare, false);
    }

    #[test]
    fn names_of_limits_are_about_resources() {
        let check = |name: &str, expected: Option<(&str, &str)>| assert_eq!(counted_by(name), expected, "{name}");
        check("count/things.example.org", Some(("example.org", "things")));
        check("count/pods", Some(("", "pods")));
        check("secrets", Some(("", "secrets")));
        check("requests.cpu", Some(("", "pods")));
        check("requests.example.org/gpu", Some(("", "pods")));
        check("hugepages-2Mi", Some(("", "pods")));
        check("requests.storage", Some(("", "persistentvolumeclaims")));
        check("fast.storageclass.storage.k8s.io/requests.storage", Some(("", "persistentvolumeclaims")));
        check("services.nodeports", Some(("", "services")));
        check("gpu.deviceclass.resource.k8s.io/devices", Some(("resource.k8s.io", "resourceclaims")));
        check("things", None);
    }
}
