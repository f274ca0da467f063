//! Validation of pods and pod templates: `core/v1` PodSpec and everything below it.
//!
//! All workloads use these rules. Rules for parts of a pod need facts about the whole pod: volumes, claims, restart
//! policy. They are stored in the run first.

mod annotations;
mod change;
mod container;
mod diff;
pub(crate) mod disks;
mod handlers;
mod mounts;
mod network;
mod os;
mod references;
pub(crate) mod resources;
pub(crate) mod scheduling;
mod security;
mod spread;
mod status;
pub(crate) mod volumes;

use std::collections::{HashMap, HashSet};

use keelson_meta::json::Value;

use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, QUALIFIED_NAME};
use crate::validating::selectors::LABELS;
use crate::validating::type_rules::Rule::{self, Always, Check, Each, Format, In, OneOf, Range, Required, With};
use crate::validating::type_rules::{Run, TypeRules};

pub(crate) use change::{EPHEMERAL_CONTAINERS, RESIZE, UPDATE, restore};
pub(crate) use container::port_number_or_name;
pub use diff::difference;
pub(crate) use status::STATUS;

/// Facts about the whole pod, for the rules of its parts.
#[derive(Default)]
pub(crate) struct Pod<'v> {
    /// The volumes that are valid, by name.
    pub(crate) volumes: HashMap<&'v str, &'v Value>,
    /// The names of the pod's resource claims.
    pub(crate) claims: HashSet<&'v str>,
    /// `terminationGracePeriodSeconds`
    pub(crate) grace_period: Option<i64>,
    /// `restartPolicy`
    pub(crate) restart_policy: &'v str,
    /// True if the pod shares the user namespace of the host.
    pub(crate) host_users: bool,
    /// True for a pod, false for a template.
    pub(crate) is_pod: bool,
    /// The name of the pod, for volumes that create claims.
    pub(crate) name: &'v str,
}

impl<'v> Pod<'v> {
    /// The source of a valid volume.
    pub(crate) fn volume(&self, name: &str) -> Option<&'v Value> {
        self.volumes.get(name).copied()
    }
}

/// The rules of a new or updated pod.
pub(crate) const POD: TypeRules = TypeRules::new(&[
    ("", Check("the settings of the pod's security context", know_pod)),
    ("", Check("annotations for seccomp, AppArmor and the cost of deletion", annotations::of_pod)),
    ("spec", Always(&SPEC)),
    ("spec", Check("projected service account tokens only with a service account", tokens_need_an_account)),
    ("spec", Check("images without surrounding white space", container::images_are_trimmed)),
    ("", Check("a new pod has no ephemeral containers; a pod with scheduling gates has no node name", new_pod)),
    ("", Check("deprecated annotations equal the fields that replace them", annotations::agree_on_create)),
]);

/// The rules of a pod template.
pub(crate) const TEMPLATE: TypeRules = TypeRules::shared(
    "Pod template",
    &[
        ("", Check("labels and annotations", template_metadata)),
        ("", Check("annotations for seccomp, AppArmor and the cost of deletion", annotations::of_template)),
        ("spec", Always(&SPEC)),
        ("", Check("deprecated annotations equal the fields that replace them", annotations::agree)),
        ("spec", Check("no ephemeral containers", no_ephemeral_containers)),
    ],
);

const SPEC: TypeRules = TypeRules::shared(
    "Pod spec",
    &[
        ("terminationGracePeriodSeconds", Required("")),
        ("", Check("", know_spec)),
        ("volumes", With("unique names", volumes::volumes, &volumes::VOLUME)),
        ("resourceClaims", Check("names, each with exactly one claim or template", resources::pod_claims)),
        ("containers", With("required, unique names", container::containers, &container::CONTAINER)),
        ("initContainers", With("unique names", container::init_containers, &container::CONTAINER)),
        (
            "ephemeralContainers",
            With(
                "unique names and fields, of a limited number",
                container::ephemeral_containers,
                &container::CONTAINER,
            ),
        ),
        ("", Check("pod-level resources of at least the sum of its containers", resources::pod_resources)),
        ("", Check("host ports equal container ports on the host network", network::host_ports_match)),
        ("restartPolicy", Required("")),
        ("restartPolicy", OneOf(&["Always", "OnFailure", "Never"])),
        ("dnsPolicy", Required("")),
        ("dnsPolicy", OneOf(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"])),
        ("nodeSelector", LABELS),
        ("", Check("", security::pod_security_context)),
        ("securityContext", In(&security::POD_SECURITY_CONTEXT)),
        ("affinity", In(&scheduling::AFFINITY)),
        ("dnsConfig", Check("nameservers, search paths and options", network::dns_config)),
        ("readinessGates", Each(&const { TypeRules::new(&[("conditionType", ALWAYS_QUALIFIED)]) })),
        ("schedulingGates", Check("unique qualified names", scheduling::gates)),
        ("topologySpreadConstraints", With("unique by key and action", spread::constraints, &spread::CONSTRAINT)),
        (
            "",
            Check(
                "HostProcess containers of Windows: all containers of the pod, on the host network",
                os::host_processes,
            ),
        ),
        ("", Check("no host namespaces with `hostUsers: false`", os::host_users)),
        ("serviceAccountName", Format(&DNS_SUBDOMAIN)),
        ("nodeName", Format(&DNS_SUBDOMAIN)),
        ("activeDeadlineSeconds", Range(1, i32::MAX as i64)),
        ("hostname", Format(&DNS_LABEL)),
        (
            "hostnameOverride",
            Check("DNS subdomain of at most 64 bytes, off the host's network", network::hostname_override),
        ),
        ("subdomain", Format(&DNS_LABEL)),
        ("tolerations", Each(&scheduling::TOLERATION)),
        ("hostAliases", Each(&network::HOST_ALIAS)),
        ("priorityClassName", Format(&DNS_SUBDOMAIN)),
        ("runtimeClassName", Check("DNS subdomain", present_subdomain)),
        ("preemptionPolicy", OneOf(&["PreemptLowerPriority", "Never"])),
        ("overhead", Check("resource quantities", resources::overhead)),
        ("os", Check("linux or windows; no fields of the other system", os::os)),
        ("", Check("files for environment variables are in `emptyDir` volumes", references::files_of_variables)),
    ],
);

/// The text must be a label key; an empty text is an error too.
const ALWAYS_QUALIFIED: Rule = Check("qualified name", |at, run| at.complain(run, QUALIFIED_NAME.faults(at.text())));

fn know_pod<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    run.pod.is_pod = true;
    run.pod.name = at.field("metadata").field("name").text();
}

fn know_spec<'v>(spec: &At<'v, '_>, run: &mut Run<'v>) {
    run.pod.volumes.clear();
    run.pod.grace_period = spec.field("terminationGracePeriodSeconds").number();
    run.pod.restart_policy = spec.field("restartPolicy").text();
    run.pod.host_users = spec.field("hostUsers").value.as_bool() != Some(false);
    let claims = spec.field("resourceClaims").list();
    run.pod.claims =
        claims.iter().filter_map(|claim| claim.get("name")?.as_str()).filter(|name| !name.is_empty()).collect();
}

fn present_subdomain(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_set() {
        at.complain(run, DNS_SUBDOMAIN.faults(at.text()));
    }
}

fn tokens_need_an_account(spec: &At<'_, '_>, run: &mut Run<'_>) {
    if !spec.field("serviceAccountName").text().is_empty() {
        return;
    }
    for volume in spec.field("volumes").items() {
        for source in volume.field("projected").field("sources").items() {
            let token = source.field("serviceAccountToken");
            if token.is_set() {
                token.forbidden(run, "must not be specified when serviceAccountName is not set");
            }
        }
    }
}

fn new_pod(pod: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_some() {
        return;
    }
    let spec = pod.field("spec");
    let ephemeral = spec.field("ephemeralContainers");
    if !ephemeral.is_empty() {
        ephemeral.forbidden(run, "cannot be set on create");
    }
    let node = spec.field("nodeName");
    if !node.is_empty() && !spec.field("schedulingGates").is_empty() {
        node.forbidden(run, "cannot be set until all schedulingGates have been cleared");
    }
}

/// Like upstream, errors about a template's metadata omit `metadata` from the path.
fn template_metadata(template: &At<'_, '_>, run: &mut Run<'_>) {
    let metadata = template.field("metadata");
    let (labels, annotations) = (metadata.field("labels"), metadata.field("annotations"));
    crate::validating::selectors::labels(&template.field("labels").holding(labels.value), run);
    annotations::keys(&template.field("annotations").holding(annotations.value), run);
}

fn no_ephemeral_containers(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let ephemeral = spec.field("ephemeralContainers");
    if !ephemeral.is_empty() {
        ephemeral.forbidden(run, "ephemeral containers not allowed in pod template");
    }
}
