//! Warnings for the writer of an object that is right: what is deprecated, ignored, or surely not meant.
//!
//! The texts are upstream's. They are asked for once an object has been judged and found right, and never for a part below
//! an object, since those are written by programs. Pods are spared on updates too, and workloads where nothing but their
//! metadata changed. Knows JSON trees in the stored version, and nothing of requests.

mod core;
mod storage;

use std::collections::BTreeSet;

use keelson_meta::Object;
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;

use crate::at::At;
use crate::formats::DNS_LABEL;
use crate::groups::apiextensions::schema::unknown_formats;

use self::core::{config, pod, services, volumes};

/// What the writer of an object of this group and kind should be told; `old` is what it was, `None` for a new one.
pub(crate) fn warnings((group, kind): (&str, &str), old: Option<&Object>, object: &Object) -> Vec<String> {
    let mut told = Vec::new();
    let root = At::object(object, old);
    let (at, told_to) = (&root, &mut told);
    match (group, kind) {
        ("", "Pod") if old.is_none() => {
            pod_name(at, "this is used in the Pod's hostname", told_to);
            pod::of_spec(at, false, told_to);
        }
        ("", "PodTemplate") if template_may_have_changed(old, object) => {
            pod::of_spec(&at.field("template"), true, told_to);
        }
        ("", "ReplicationController") | ("apps" | "batch", _) => workload(kind, at, old, object, told_to),
        ("", "Service") => services::of_service(at, told_to),
        ("", "Secret") => config::of_secret(at, told_to),
        ("", "Node") => node(at, told_to),
        ("", "ServiceAccount") => service_account(at, told_to),
        ("", "PersistentVolume") => volumes::of_volume(at, told_to),
        ("", "PersistentVolumeClaim") => volumes::of_claim(at, told_to),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(old, object, told_to),
        ("networking.k8s.io", "Ingress") if old.is_none() => ingress(at, told_to),
        ("storage.k8s.io", "CSIDriver") => storage::of_driver(at, told_to),
        _ => {}
    }
    told
}

/// Formats that are not known are not looked at. Of those that were there before nobody is told again.
fn definition(old: Option<&Object>, object: &Object, told: &mut Vec<String>) {
    let formats = |object: &Object| -> BTreeSet<String> {
        let versions = object.get(&["spec", "versions"]).and_then(Value::as_array).into_iter().flatten();
        let schemas = versions.filter_map(|version| version.get("schema")?.get("openAPIV3Schema"));
        schemas.flat_map(|schema| unknown_formats(schema).into_iter().map(str::to_owned)).collect()
    };
    let known = old.map(formats).unwrap_or_default();
    let new = formats(object);
    told.extend(new.difference(&known).map(|format| format!("unrecognized format {}", quote(format))));
}

/// The generation counts the changes of what a workload asks for.
fn template_may_have_changed(old: Option<&Object>, object: &Object) -> bool {
    old.is_none_or(|old| old.generation() != object.generation())
}

fn workload(kind: &str, at: &At<'_, '_>, old: Option<&Object>, object: &Object, told: &mut Vec<String>) {
    const NAMES_PODS: [&str; 5] = ["CronJob", "Deployment", "Job", "ReplicaSet", "ReplicationController"];
    if old.is_none() && NAMES_PODS.contains(&kind) {
        pod_name(at, "this is used in Pod names and hostnames", told);
    }
    if !template_may_have_changed(old, object) {
        return;
    }
    let spec = at.field("spec");
    let jobs = spec.field("jobTemplate");
    let of_jobs = jobs.field("spec");
    match kind {
        "CronJob" => {
            let schedule = spec.field("schedule");
            if schedule.text().contains("TZ") {
                told.push(
                    "CRON_TZ or TZ used in spec.schedule is not officially supported, see \
                     https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                        .to_owned(),
                );
            }
            job(&of_jobs, told);
        }
        "Job" => job(&spec, told),
        "ControllerRevision" => {}
        _ => pod::of_spec(&spec.field("template"), true, told),
    }
}

fn job(spec: &At<'_, '_>, told: &mut Vec<String>) {
    const COMPLETIONS: i64 = 100_000;
    const PARALLELISM: i64 = 10_000;
    let many = spec.field("completions").int() > COMPLETIONS && spec.field("parallelism").int() > PARALLELISM;
    if many && spec.field("completionMode").text() == "Indexed" {
        let path = spec.path();
        told.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    pod::of_spec(&spec.field("template"), true, told);
}

/// Pods take their hostnames from it.
fn pod_name(at: &At<'_, '_>, what_for: &str, told: &mut Vec<String>) {
    let metadata = at.field("metadata");
    let name = metadata.field("name").text();
    let faults = DNS_LABEL.faults(name);
    if !name.is_empty() && !faults.is_empty() {
        told.push(format!(
            "metadata.name: {what_for}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            faults.join(" ")
        ));
    }
}

fn node(at: &At<'_, '_>, told: &mut Vec<String>) {
    let spec = at.field("spec");
    if !spec.field("externalID").is_empty() {
        told.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
}

fn service_account(at: &At<'_, '_>, told: &mut Vec<String>) {
    const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";
    let metadata = at.field("metadata");
    let annotations = metadata.field("annotations");
    let annotation = annotations.key(ENFORCED);
    if annotation.is_set() && annotation.old.is_null() {
        told.push(format!(
            "{}: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
            annotation.path()
        ));
    }
}

fn ingress(at: &At<'_, '_>, told: &mut Vec<String>) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let metadata = at.field("metadata");
    let annotations = metadata.field("annotations");
    if annotations.key(CLASS).is_set() {
        told.push(format!("annotation {} is deprecated, please use 'spec.ingressClassName' instead", quote(CLASS)));
    }
}
