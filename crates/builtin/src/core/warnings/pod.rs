//! Warnings about pods and pod templates: deprecated fields, overlapping paths and ports, and selectors that match
//! nothing.
//!
//! Warnings about the template of a workload have the path of the template as a prefix.

use std::collections::{HashMap, HashSet};

use keelson_meta::go_format::quote;
use keelson_meta::json::Value;

use super::volumes;
use crate::validating::at::At;

/// The number of later paths and ports that each one is compared with. The limit makes the search linear.
const OVERLAPS_SOUGHT: usize = 64;

/// Annotations that were replaced by fields, and have no effect any more.
const ANNOTATIONS: [(&str, &str, &str); 3] = [
    ("scheduler.alpha.kubernetes.io/critical-pod", "v1.16", "priorityClassName"),
    ("security.alpha.kubernetes.io/sysctls", "v1.11", "sysctls"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "v1.11", "sysctls"),
];

const NO_POD: &str = "a null labelSelector results in matching no pod";

/// The warnings about a pod or a template; `at` has `metadata` and `spec`.
pub(crate) fn of_spec(at: &At<'_, '_>, is_template: bool, warnings: &mut Vec<String>) {
    let (metadata, spec) = (at.field("metadata"), at.field("spec"));
    node_labels(&spec, warnings);
    for constraint in spec.field("topologySpreadConstraints").items() {
        let key = constraint.field("topologyKey");
        if let Some(instead) = deprecated_label(key.text()) {
            warnings.push(format!("{}: {} is {instead}", key.path(), key.text()));
        }
        selects(&constraint.field("labelSelector"), warnings);
    }
    let annotations = metadata.field("annotations");
    for (name, since, field) in ANNOTATIONS {
        let annotation = annotations.key(name);
        if annotation.is_set() {
            warnings.push(format!(
                "{}: non-functional in {since}+; use the {} field instead",
                annotation.path(),
                quote(field)
            ));
        }
    }
    for volume in spec.field("volumes").items() {
        volumes::gone(&volume, warnings);
        let ephemeral = volume.field("ephemeral");
        let template = ephemeral.field("volumeClaimTemplate");
        volumes::of_claim_spec(&template.field("spec"), warnings);
    }
    spec.field("volumes").items().for_each(|volume| paths(&volume, warnings));
    repeated(&spec.field("hostAliases"), "ip", "ip", warnings);
    repeated(&spec.field("imagePullSecrets"), "name", "name", warnings);
    for secret in spec.field("imagePullSecrets").items() {
        let name = secret.field("name");
        if name.is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", name.path()));
        }
    }
    let overhead = spec.field("overhead");
    ["memory", "ephemeral-storage"].iter().for_each(|resource| volumes::whole_bytes(&overhead.key(resource), warnings));
    security_annotation(&annotations, &spec, "seccomp.security.alpha.kubernetes.io/pod", warnings);
    let armored = spec.field("securityContext").field_is_set("appArmorProfile");
    each_container(&spec, |container| of_container(container, &annotations, is_template && !armored, warnings));
    ports(&spec, warnings);
    let grace = spec.field("terminationGracePeriodSeconds");
    if grace.int() < 0 {
        warnings.push(format!("{}: must be >= 0; negative values are invalid and will be treated as 1", grace.path()));
    }
    affinity(&spec, warnings);
}

fn each_container<'v>(spec: &At<'v, '_>, mut look: impl FnMut(&At<'v, '_>)) {
    for list in ["initContainers", "containers", "ephemeralContainers"].map(|list| spec.field(list)) {
        list.items().for_each(|container| look(&container));
    }
}

/// The current name of a deprecated node label.
fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        _ => return None,
    })
}

fn node_labels(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    for (key, entry) in spec.field("nodeSelector").entries() {
        if let Some(instead) = deprecated_label(key) {
            warnings.push(format!("{}: {instead}", entry.path()));
        }
    }
    let affinity = spec.field("affinity");
    let nodes = affinity.field("nodeAffinity");
    let required = nodes.field("requiredDuringSchedulingIgnoredDuringExecution");
    required.field("nodeSelectorTerms").items().for_each(|term| node_term(&term, warnings));
    for preferred in nodes.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
        node_term(&preferred.field("preference"), warnings);
    }
}

fn node_term(term: &At<'_, '_>, warnings: &mut Vec<String>) {
    for expression in term.field("matchExpressions").items() {
        let key = expression.field("key");
        if let Some(instead) = deprecated_label(key.text()) {
            warnings.push(format!("{}: {} is {instead}", key.path(), key.text()));
        }
    }
}

fn selects(selector: &At<'_, '_>, warnings: &mut Vec<String>) {
    if !selector.is_set() {
        warnings.push(format!("{}: {NO_POD}", selector.path()));
    }
}

fn affinity(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    let affinity = spec.field("affinity");
    for pods in ["podAffinity", "podAntiAffinity"].map(|name| affinity.field(name)) {
        for term in pods.field("requiredDuringSchedulingIgnoredDuringExecution").items() {
            selects(&term.field("labelSelector"), warnings);
        }
        for preferred in pods.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
            selects(&preferred.field("podAffinityTerm").field("labelSelector"), warnings);
        }
    }
}

fn repeated(list: &At<'_, '_>, field: &'static str, what: &str, warnings: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for item in list.items() {
        let value = item.field(field);
        if !seen.insert(value.text()) {
            warnings.push(format!("{}: duplicate {what} {}", value.path(), quote(value.text())));
        }
    }
}

fn security_annotation(annotations: &At<'_, '_>, of: &At<'_, '_>, name: &str, warnings: &mut Vec<String>) {
    let given = annotations.value.get(name).is_some();
    if given && !of.field("securityContext").field_is_set("seccompProfile") {
        let path = annotations.path();
        warnings.push(format!("{path}[{name}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"));
    }
}

fn of_container(at: &At<'_, '_>, annotations: &At<'_, '_>, armor: bool, warnings: &mut Vec<String>) {
    let name = at.field("name").text();
    security_annotation(annotations, at, &format!("container.seccomp.security.alpha.kubernetes.io/{name}"), warnings);
    let annotation = format!("container.apparmor.security.beta.kubernetes.io/{name}");
    let armored = at.field("securityContext").field_is_set("appArmorProfile");
    if armor && !armored && annotations.value.get(&annotation).is_some() {
        let path = annotations.path();
        warnings
            .push(format!("{path}[{annotation}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
    }
    let resources = at.field("resources");
    for resource in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"].map(|list| resources.field(list)) {
            volumes::whole_bytes(&list.key(resource), warnings);
        }
    }
    variables(&at.field("env"), warnings);
}

/// A repeated variable is only useful if its value refers to the previous one.
fn variables(list: &At<'_, '_>, warnings: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for variable in list.items() {
        let (name, value) = (variable.field("name").text(), variable.field("value").text());
        let reference = format!("$({name})");
        if seen.insert(name) {
            continue;
        }
        if variable.field_is_set("valueFrom") || value == reference || !value.contains(&reference) {
            let shown = quote(name);
            warnings.push(format!(
                "{}: hides previous definition of {shown}, which may be dropped when using apply",
                variable.path()
            ));
        }
    }
}

/// A host port of a container: the host address and protocol, the port, and the path.
type Port = (String, i64, String);

fn ports(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    let mut known: HashMap<(i64, String), Vec<Port>> = HashMap::new();
    let mut names: HashMap<String, String> = HashMap::new();
    let mut named = Vec::new();
    each_container(spec, |container| {
        for port in container.field("ports").items() {
            let (ip, host) = (port.field("hostIP").text(), port.field("hostPort").int());
            let (number, protocol) = (port.field("containerPort").int(), port.field("protocol").text());
            let (name, path) = (port.field("name").text(), port.path());
            if !ip.is_empty() && host == 0 {
                warnings.push(format!(
                    "{path}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} \
                     Protocol:{protocol} HostIP:{ip}}}"
                ));
            }
            let same = known.entry((number, protocol.to_owned())).or_default();
            for (other_ip, other_host, other) in same.iter().take(OVERLAPS_SOUGHT) {
                if ip == other_ip && host == *other_host {
                    warnings.push(format!("{path}: duplicate port definition with {other}"));
                } else if host == 0 || *other_host == 0 {
                    warnings.push(format!("{path}: overlapping port definition with {other}"));
                } else if host == *other_host && (ip.is_empty() != other_ip.is_empty()) {
                    warnings.push(format!("{path}: dangerously ambiguous port definition with {other}"));
                }
            }
            same.push((ip.to_owned(), host, path.clone()));
            let lasts = !in_init(&path) || container.field("restartPolicy").text() == "Always";
            if !name.is_empty() && lasts {
                match names.get(name) {
                    Some(other) => named.push(format!(
                        "{path}: duplicate port name {} with {other}, services and probes that select ports by name will use \
                         {other}",
                        quote(name)
                    )),
                    None => drop(names.insert(name.to_owned(), path)),
                }
            }
        }
    });
    warnings.append(&mut named);
}

fn in_init(path: &str) -> bool {
    path.contains("initContainers[") || path.contains("ephemeralContainers[")
}

/// Warns about overlapping file paths in one volume.
fn paths(volume: &At<'_, '_>, warnings: &mut Vec<String>) {
    let name = quote(volume.field("name").text());
    for (source, kind, named) in
        [("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"), ("downwardAPI", "DownwardAPI", "")]
    {
        let source = volume.field(source);
        if source.is_set() {
            let what = described(kind, source.value, named);
            let mut overlaps = Overlaps::default();
            overlaps.add(&source.field("items"), "", |this, other| {
                warnings.push(format!("volume {name} ({what}): overlapping paths: {this} with {other}"));
            });
        }
    }
    let mut overlaps = Overlaps::default();
    for source in volume.field("projected").field("sources").items() {
        let Some((kind, inner)) = source.tree().and_then(|tree| tree.iter().find(|(_, value)| !value.is_null())) else {
            warnings.push(format!("volume {name} (Projected) has no sources provided"));
            continue;
        };
        let place = source.field(kind);
        let tell = |this: &str, other: &str| {
            warnings.push(format!("volume {name} (Projected): overlapping paths: {this} with {other}"));
        };
        match kind {
            "configMap" => overlaps.add(&place.field("items"), &described("ConfigMap", inner, "name"), tell),
            "secret" => overlaps.add(&place.field("items"), &described("Secret", inner, "name"), tell),
            "downwardAPI" => overlaps.add(&place.field("items"), "DownwardAPI", tell),
            "serviceAccountToken" => overlaps.add_one(place.field("path").text(), "ServiceAccountToken", tell),
            _ => {}
        }
    }
}

/// Text such as `ConfigMap "name"`.
fn described(kind: &str, source: &Value, named: &str) -> String {
    match named {
        "" => kind.to_owned(),
        named => format!("{kind} {}", quote(source.get(named).and_then(Value::as_str).unwrap_or_default())),
    }
}

/// The paths of a volume so far, with their text in warnings.
#[derive(Default)]
struct Overlaps(Vec<(String, String)>);

impl Overlaps {
    fn add(&mut self, items: &At<'_, '_>, source: &str, mut tell: impl FnMut(&str, &str)) {
        items.items().for_each(|item| self.add_one(item.field("path").text(), source, &mut tell));
    }

    fn add_one(&mut self, path: &str, source: &str, mut tell: impl FnMut(&str, &str)) {
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return;
        }
        let shown = if source.is_empty() { quote(path) } else { format!("{} ({source})", quote(path)) };
        let within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        for (other, other_shown) in self.0.iter().rev().take(OVERLAPS_SOUGHT).rev() {
            if within(path, other) || within(other, path) {
                tell(&shown, other_shown);
            }
        }
        self.0.push((path.to_owned(), shown));
    }
}
