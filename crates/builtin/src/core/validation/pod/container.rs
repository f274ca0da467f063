//! Validation of containers: the shared rules, and those of regular, init and ephemeral containers.
//!
//! Volumes, resources, handlers and security contexts are in separate files.

use std::collections::HashSet;

use super::handlers::{self, LIVENESS, READINESS};
use super::mounts;
use super::references::{field_selector, file_key, resource_selector};
use super::resources;
use super::scheduling::name_without_prefix;
use super::security::SECURITY_CONTEXT;
use crate::validating::at::At;
use crate::validating::formats::{DATA_KEY, DNS_LABEL, DNS_SUBDOMAIN, ENV_NAME, HEADER_NAME, PORT_NAME, port_number};
use crate::validating::type_rules::Rule::{self, Check, Each, Format, In, OneOf, Required, StrictlyOneOf, With};
use crate::validating::type_rules::{Run, TypeRules};

/// The rules of all containers.
pub(crate) const CONTAINER: TypeRules = TypeRules::shared(
    "Container",
    &[
        ("name", Required("")),
        ("name", Format(&DNS_LABEL)),
        ("image", Required("")),
        ("terminationMessagePolicy", Required("")),
        ("terminationMessagePolicy", OneOf(&["File", "FallbackToLogsOnError"])),
        ("ports", With("unique names", ports, &PORT)),
        ("env", Each(&ENV)),
        ("envFrom", Check("a prefix and exactly one source for each", env_from)),
        ("volumeMounts", Check("volumes of the pod, with unique paths", mounts::volume_mounts)),
        ("volumeDevices", Check("claims of the pod, with unique paths", mounts::volume_devices)),
        ("imagePullPolicy", Required("")),
        ("imagePullPolicy", PULL_POLICY),
        ("resources", Check("quantities of known resources, requests within limits", resources::requirements)),
        ("resizePolicy", Check("unique resource names and known policies", resources::resize_policy)),
        ("securityContext", In(&SECURITY_CONTEXT)),
    ],
);

/// The pull policies.
pub(super) const PULL_POLICY: Rule = OneOf(&["Always", "IfNotPresent", "Never"]);

/// The further rules of regular and init containers.
const LASTING: TypeRules = TypeRules::new(&[
    ("lifecycle", Check("handlers", handlers::lifecycle)),
    ("livenessProbe", In(&LIVENESS)),
    ("readinessProbe", In(&READINESS)),
    ("startupProbe", In(&LIVENESS)),
]);

const PORT: TypeRules = TypeRules::new(&[
    ("containerPort", Check("port", needed_port)),
    ("hostPort", Check("port", optional_port)),
    ("protocol", Required("")),
    ("protocol", OneOf(&["SCTP", "TCP", "UDP"])),
]);

const ENV: TypeRules = TypeRules::new(&[
    ("name", Required("")),
    ("name", Format(&ENV_NAME)),
    ("valueFrom", Check("exactly one source, and no value", value_from)),
]);

/// The fields that an ephemeral container may not have, in the order of the type.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

pub(super) fn containers<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    if at.list().is_empty() {
        return at.required(run, "");
    }
    let mut names = HashSet::new();
    for container in at.items() {
        CONTAINER.check(&container, run);
        let name = container.field("name");
        if !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
        LASTING.check(&container, run);
        restart_policy(&container, run);
    }
    let mut ports = HashSet::new();
    at.items().for_each(|container| host_ports(&container, &mut ports, run));
}

pub(super) fn init_containers<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let mut names: HashSet<&str> = if at.is_empty() { HashSet::new() } else { names_in(at, "containers") };
    for container in at.items() {
        CONTAINER.check(&container, run);
        restart_policy(&container, run);
        let name = container.field("name");
        if !name.is_empty() && !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
        // Init containers run one after another, so each can use all host ports.
        host_ports(&container, &mut HashSet::new(), run);
        if container.field("restartPolicy").text() == "Always" {
            LASTING.check(&container, run);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            let field = container.field(field);
            if field.is_set() {
                field.forbidden(run, "may not be set for init containers without restartPolicy=Always");
            }
        }
    }
}

pub(super) fn ephemeral_containers<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    if at.is_empty() {
        return;
    }
    let mut others = names_in(at, "containers");
    others.extend(names_in(at, "initContainers"));
    let mut names = others.clone();
    for container in at.items() {
        CONTAINER.check(&container, run);
        image_is_trimmed(&container, run);
        let name = container.field("name");
        if !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
        let target = container.field("targetContainerName");
        if !target.is_empty() && !others.contains(target.text()) {
            target.not_found(run, target.text());
        }
        for field in NOT_EPHEMERAL {
            let field = container.field(field);
            if !field.is_empty() {
                field.forbidden(run, "cannot be set for an Ephemeral Container");
            }
        }
        for mount in container.field("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"].map(|field| mount.field(field)) {
                if !field.is_empty() {
                    field.forbidden(run, "cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

fn names_in<'v>(list: &At<'v, '_>, sibling: &'v str) -> HashSet<&'v str> {
    let siblings = list.parent().map_or(&[][..], |spec| spec.field(sibling).list());
    siblings.iter().filter_map(|container| container.get("name")?.as_str()).collect()
}

/// Images in pods may have no surrounding white space. Images in templates may, since some clients rely on it.
pub(super) fn images_are_trimmed(spec: &At<'_, '_>, run: &mut Run<'_>) {
    for list in ["containers", "initContainers"] {
        spec.field(list).items().for_each(|container| image_is_trimmed(&container, run));
    }
}

fn image_is_trimmed(container: &At<'_, '_>, run: &mut Run<'_>) {
    let image = container.field("image");
    if image.text().trim() != image.text() {
        image.invalid(run, image.text(), "must not have leading or trailing whitespace");
    }
}

fn restart_policy<'v>(container: &At<'v, '_>, run: &mut Run<'v>) {
    const RULES_MAX: usize = 20;
    let (policy, rules) = (container.field("restartPolicy"), container.field("restartPolicyRules"));
    let known = ["Always", "Never", "OnFailure"];
    if policy.is_set() && !known.contains(&policy.text()) {
        policy.not_supported(run, policy.text(), &known);
    }
    if !policy.is_set() && !rules.is_empty() {
        policy.required(run, "must specify restartPolicy when restart rules are used");
    }
    if rules.list().len() > RULES_MAX {
        rules.too_long(run, RULES_MAX);
    }
    rules.items().for_each(|rule| RESTART_RULE.check(&rule, run));
}

/// The action after a container exits in a certain way.
const RESTART_RULE: TypeRules = TypeRules::new(&[
    ("action", StrictlyOneOf(&["Restart", "RestartAllContainers"])),
    ("exitCodes", Check("In or NotIn up to 255 codes", exit_codes)),
]);

fn exit_codes<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    const CODES_MAX: usize = 255;
    if !at.is_set() {
        return at.required(run, "must be specified");
    }
    StrictlyOneOf(&["In", "NotIn"]).check(&at.field("operator"), run);
    let values = at.field("values");
    if values.list().len() > CODES_MAX {
        values.too_long(run, CODES_MAX);
    }
}

fn ports<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let mut names = HashSet::new();
    for port in at.items() {
        let name = port.field("name");
        if !name.is_empty() {
            let faults = PORT_NAME.faults(name.text());
            if faults.is_empty() && !names.insert(name.text()) {
                name.duplicate(run, name.text());
            }
            name.complain(run, faults);
        }
        PORT.check(&port, run);
    }
}

/// A required port.
fn needed_port(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.int() == 0 {
        at.required(run, "");
    } else {
        optional_port(at, run);
    }
}

fn optional_port(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.int() != 0 {
        port_number(at, run);
    }
}

/// A port number or a port name.
pub(crate) fn port_number_or_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.value.is_string() {
        at.complain(run, PORT_NAME.faults(at.text()));
    } else {
        port_number(at, run);
    }
}

fn host_ports(container: &At<'_, '_>, taken: &mut HashSet<String>, run: &mut Run<'_>) {
    for port in container.field("ports").items() {
        let host = port.field("hostPort");
        if host.int() == 0 {
            continue;
        }
        let place = format!("{}/{}/{}", port.field("protocol").text(), port.field("hostIP").text(), host.int());
        if taken.contains(&place) {
            host.duplicate(run, place);
        } else {
            taken.insert(place);
        }
    }
}

/// Validates the names of headers.
pub(super) fn headers(at: &At<'_, '_>, run: &mut Run<'_>) {
    for header in at.items() {
        let name = header.field("name").text();
        for fault in HEADER_NAME.faults(name) {
            at.invalid(run, name, fault);
        }
    }
}

/// The pod fields that an environment variable can refer to.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn value_from(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        return;
    }
    let mut sources = 0;
    let field = at.field("fieldRef");
    if field.is_set() {
        sources += 1;
        field_selector(&field, &ENV_FIELDS, run);
    }
    let resource = at.field("resourceFieldRef");
    if resource.is_set() {
        sources += 1;
        resource_selector(&resource, false, run);
    }
    for reference in ["configMapKeyRef", "secretKeyRef"].map(|reference| at.field(reference)) {
        if reference.is_set() {
            sources += 1;
            key_reference(&reference, run);
        }
    }
    let file = at.field("fileKeyRef");
    if file.is_set() {
        sources += 1;
        file_key(&file, run);
    }
    let has_value = at.parent().is_some_and(|variable| !variable.field("value").is_empty());
    if sources == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                      `fileKeyRef`";
        at.invalid(run, "", detail);
    } else if has_value {
        at.invalid(run, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        at.invalid(run, "", "may not have more than one field specified at a time");
    }
}

fn key_reference(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (name, key) = (at.field("name"), at.field("key"));
    name.complain(run, DNS_SUBDOMAIN.faults(name.text()));
    if key.is_empty() {
        key.required(run, "");
    } else {
        key.complain(run, DATA_KEY.faults(key.text()));
    }
}

fn env_from(at: &At<'_, '_>, run: &mut Run<'_>) {
    for source in at.items() {
        let prefix = source.field("prefix");
        if !prefix.is_empty() {
            prefix.complain(run, ENV_NAME.faults(prefix.text()));
        }
        let mut sources = 0;
        for reference in ["configMapRef", "secretRef"].map(|reference| source.field(reference)) {
            if reference.is_set() {
                sources += 1;
                name_without_prefix(&reference.field("name"), run);
            }
        }
        // Like upstream, the path is that of the list, not of the item.
        if sources == 0 {
            at.invalid(run, "", "must specify one of: `configMapRef` or `secretRef`");
        } else if sources > 1 {
            at.invalid(run, "", "may not have more than one field specified at a time");
        }
    }
}
