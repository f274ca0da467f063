//! Workloads: the selector of a job, and the count of a daemon set's templates.
//!
//! What the server adds is what their controllers rely on. A selector that a client states itself is left as it is.

use std::time::SystemTime;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::options::DeleteOptions;

use super::strategy::{FieldPath, Strategy};
use crate::prepare::same_specification;
use crate::target::Target;

const JOB_NAME: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
const CONTROLLER_UID: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// The annotation in which a daemon set still counts its templates, as it did when it was in `extensions`.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// A job selects the pods that carry its uid, unless its maker selects them himself.
fn select_pods_of_job(job: &mut Object) {
    if job.get(&["spec", "manualSelector"]).and_then(Value::as_bool) == Some(true) {
        return;
    }
    let (name, uid) = (job.name().to_owned(), job.uid().to_owned());
    let before = template_labels(job).cloned().unwrap_or_default();
    let mut labels = before.clone();
    for (keys, value) in [(JOB_NAME, name), (CONTROLLER_UID, uid.clone())] {
        for key in keys {
            labels.entry(key).or_insert_with(|| json!(value));
        }
    }
    labels.sort_keys();
    if let Some(template) = inner(&mut job.0, &["spec", "template", "metadata"]) {
        template.insert("labels", Value::Object(labels.clone()));
    }
    if let Some(selected) = inner(&mut job.0, &["spec", "selector", "matchLabels"]) {
        selected.entry(CONTROLLER_UID[0]).or_insert_with(|| json!(uid));
    }
    // A job without labels of its own has those of its pods, these included.
    let own = job.metadata().and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
    if !before.is_empty() && own.is_none_or(|own| *own == before) {
        job.set_meta("labels", labels);
    }
}

/// A new daemon set has had one template, unless it says that it comes from somewhere else.
fn count_first_template(daemon_set: &mut Object) {
    let stated = template_generation(daemon_set).unwrap_or(0);
    set_template_generation(daemon_set, stated.max(1));
}

/// A daemon set that does not say how many templates it has had has had as many as before.
fn keep_count(current: &Object, next: &mut Object) {
    if template_generation(next).is_none() {
        set_template_generation(next, template_generation(current).unwrap_or(1));
    }
}

fn count_templates(current: &Object, next: &mut Object) {
    let template = |object: &Object| object.get(&["spec", "template"]).cloned();
    let changed = template(current) != template(next);
    let count = template_generation(current).unwrap_or(1);
    set_template_generation(next, count + i64::from(changed));
}

fn template_generation(daemon_set: &Object) -> Option<i64> {
    daemon_set.annotations().find(|(name, _)| *name == TEMPLATE_GENERATION)?.1.parse().ok()
}

fn set_template_generation(daemon_set: &mut Object, count: i64) {
    if let Some(annotations) = inner(&mut daemon_set.0, &["metadata", "annotations"]) {
        annotations.insert(TEMPLATE_GENERATION, json!(count.to_string()));
        annotations.sort_keys();
    }
}

fn template_labels(workload: &Object) -> Option<&Map> {
    workload.get(&["spec", "template", "metadata", "labels"])?.as_object()
}

/// The object at a path, made where there is nothing.
fn inner<'a>(map: &'a mut Map, path: &[&str]) -> Option<&'a mut Map> {
    path.iter().try_fold(map, |map, name| {
        let value = map.entry(*name).or_insert(Value::Null);
        if value.is_null() {
            *value = json!({});
        }
        value.as_object_mut()
    })
}

/// The strategy of daemon sets.
pub(super) struct DaemonSets;

impl Strategy for DaemonSets {
    fn complete_new(&self, object: &mut Object, _: SystemTime) -> bool {
        count_first_template(object);
        true
    }

    fn complete_update(&self, current: &Object, next: &mut Object, _: SystemTime) -> bool {
        keep_count(current, next);
        true
    }

    fn prepare_update(&self, _: &Target, current: &Object, next: &mut Object) -> bool {
        count_templates(current, next);
        true
    }
}

/// The strategy of jobs.
pub(super) struct Jobs;

impl Strategy for Jobs {
    fn prepare_create(&self, object: &mut Object) -> bool {
        select_pods_of_job(object);
        true
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn warn_on_delete(&self, options: &DeleteOptions) -> Option<&'static str> {
        let silent = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
        silent.then_some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
             set propagationPolicy=Orphan to suppress this warning",
        )
    }
}

/// The strategy of replication controllers.
pub(super) struct ReplicationControllers;

impl Strategy for ReplicationControllers {
    fn orphans_by_default(&self) -> bool {
        true
    }
}

/// The strategy of deployments.
pub(super) struct Deployments;

impl Strategy for Deployments {
    /// Their controller copies annotations to what it makes.
    fn raises_generation(&self, current: &Object, next: &Object) -> bool {
        !same_specification(current, next) || current.meta("annotations") != next.meta("annotations")
    }

    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        if subresource == "status" { &[&["metadata", "labels"]] } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_selects_its_pods_by_its_uid() {
        let job = json!({ "metadata": { "name": "j", "uid": "u", "labels": { "a": "b" } },
            "spec": { "template": { "metadata": { "labels": { "a": "b" } } } } });
        let mut job = Object::from_value(job).unwrap();
        select_pods_of_job(&mut job);
        let labels = json!({ "a": "b", "batch.kubernetes.io/controller-uid": "u",
            "batch.kubernetes.io/job-name": "j", "controller-uid": "u", "job-name": "j" });
        let at = |path: &[&str]| job.get(path).unwrap().clone();
        assert_eq!(at(&["spec", "template", "metadata", "labels"]), labels);
        assert_eq!(at(&["spec", "selector", "matchLabels"]), json!({ "batch.kubernetes.io/controller-uid": "u" }));
        assert_eq!(at(&["metadata", "labels"]), labels, "the job had none but its pods'");
    }

    #[test]
    fn a_job_that_is_selected_by_hand_stays_as_it_is() {
        let job = json!({ "metadata": { "name": "j", "uid": "u" }, "spec": { "manualSelector": true } });
        let mut job = Object::from_value(job).unwrap();
        let before = job.clone();
        select_pods_of_job(&mut job);
        assert_eq!(job, before);
    }

    #[test]
    fn templates_are_counted_when_they_change() {
        let of = |image: &str| {
            Object::from_value(json!({ "metadata": {}, "spec": { "template": { "image": image } } })).unwrap()
        };
        let mut first = of("a");
        count_first_template(&mut first);
        assert_eq!(template_generation(&first), Some(1));
        let mut same = of("a");
        count_templates(&first, &mut same);
        assert_eq!(template_generation(&same), Some(1));
        let mut other = of("b");
        count_templates(&same, &mut other);
        assert_eq!(template_generation(&other), Some(2));
    }
}
