//! Strategy of jobs: the selector for the pods of a job is generated, and deleting a job keeps its pods by default.
//!
//! The job controller relies on the selector. A selector that a client sets with `manualSelector` is kept.

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::options::DeleteOptions;
use keelson_registry::Warnings;
use keelson_registry::strategy::{ClosedFields, CreateStrategy, DeleteStrategy, Strategies};

use crate::core::strategy::{TEMPLATE, template};
use crate::strategy::inner;

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "jobs" => &const { Strategies::ORDINARY.create(&Jobs).delete(&Jobs) },
        _ => &Strategies::ORDINARY,
    }
}

/// The fields of a resource that feature gates guard.
pub(crate) fn closed_fields(plural: &str) -> Vec<ClosedFields> {
    match plural {
        "jobs" => {
            let mut fields = template::gated_fields(TEMPLATE);
            fields.push(ClosedFields::new("WorkloadWithJob", &["spec"], &[&["scheduling"]]));
            fields
        }
        "cronjobs" => {
            let mut fields = template::gated_fields(&["spec", "jobTemplate", "spec", "template", "spec"]);
            fields.push(ClosedFields::new("WorkloadWithJob", &["spec", "jobTemplate", "spec"], &[&["scheduling"]]));
            fields
        }
        _ => Vec::new(),
    }
}

const JOB_NAME: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
const CONTROLLER_UID: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];

/// Adds a selector for the job's uid and the matching labels, unless the job has a manual selector.
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
    // A job without its own labels gets those of its pods, including the generated ones.
    let own = job.metadata().and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
    if !before.is_empty() && own.is_none_or(|own| *own == before) {
        job.set_meta("labels", labels);
    }
}

fn template_labels(workload: &Object) -> Option<&Map> {
    workload.get(&["spec", "template", "metadata", "labels"])?.as_object()
}

/// The strategy of jobs.
pub(super) struct Jobs;

impl CreateStrategy for Jobs {
    fn prepare_create(&self, object: &mut Object, _: &Warnings) -> bool {
        select_pods_of_job(object);
        true
    }
}

impl DeleteStrategy for Jobs {
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
}
