//! Warnings about valid objects of the core group: fields that are deprecated, ignored, or probably a mistake.
//!
//! Messages are upstream's. Updates of pods cause no warnings, and updates of only the metadata of workloads neither.
//! There is one file for each family of kinds, as for the rules.

mod config;
pub(crate) mod pod;
mod services;
mod volumes;

use keelson_meta::Object;

use crate::validating::ValidatedObject;
use crate::validating::at::At;
use crate::validating::formats::DNS_LABEL;

pub(crate) fn warnings(kind: &str, written: ValidatedObject<'_>, warnings: &mut Vec<String>) {
    let ValidatedObject { at, old, object } = written;
    match kind {
        "Pod" if old.is_none() => {
            pod_name(at, "this is used in the Pod's hostname", warnings);
            pod::of_spec(at, false, warnings);
        }
        "PodTemplate" if template_may_have_changed(old, object) => {
            pod::of_spec(&at.field("template"), true, warnings);
        }
        "ReplicationController" => {
            name_of_pods(written, warnings);
            template(written, warnings);
        }
        "Service" => services::of_service(at, warnings),
        "Secret" => config::of_secret(at, warnings),
        "Node" => node(at, warnings),
        "ServiceAccount" => service_account(at, warnings),
        "PersistentVolume" => volumes::of_volume(at, warnings),
        "PersistentVolumeClaim" => volumes::of_claim(at, warnings),
        _ => {}
    }
}

/// Returns true for a new object, and for a changed generation, which counts changes of a workload's spec.
pub(crate) fn template_may_have_changed(old: Option<&Object>, object: &Object) -> bool {
    old.is_none_or(|old| old.generation() != object.generation())
}

/// The warning about the name of a new workload, from which the names of its pods are derived.
pub(crate) fn name_of_pods(written: ValidatedObject<'_>, warnings: &mut Vec<String>) {
    if written.old.is_none() {
        pod_name(written.at, "this is used in Pod names and hostnames", warnings);
    }
}

/// The warnings about the pod template of a workload.
pub(crate) fn template(written: ValidatedObject<'_>, warnings: &mut Vec<String>) {
    if template_may_have_changed(written.old, written.object) {
        pod::of_spec(&written.at.field("spec").field("template"), true, warnings);
    }
}

/// Warns about names that cannot be hostnames of pods.
fn pod_name(at: &At<'_, '_>, what_for: &str, warnings: &mut Vec<String>) {
    let metadata = at.field("metadata");
    let name = metadata.field("name").text();
    let faults = DNS_LABEL.faults(name);
    if !name.is_empty() && !faults.is_empty() {
        warnings.push(format!(
            "metadata.name: {what_for}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            faults.join(" ")
        ));
    }
}

fn node(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    let spec = at.field("spec");
    if !spec.field("externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
}

fn service_account(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";
    let metadata = at.field("metadata");
    let annotations = metadata.field("annotations");
    let annotation = annotations.key(ENFORCED);
    if annotation.is_set() && annotation.old.is_null() {
        warnings.push(format!(
            "{}: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
            annotation.path()
        ));
    }
}
