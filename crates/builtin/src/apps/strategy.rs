//! Strategies of deployments and daemon sets. Annotations of deployments count for their generation, and daemon sets
//! have a template generation.
//!
//! Controllers rely on these fields. A template generation that a client sets is kept.

use std::time::SystemTime;

use keelson_meta::Object;
use keelson_meta::json::json;
use keelson_registry::Target;
use keelson_registry::strategy::same_specification;
use keelson_registry::strategy::{ClosedFields, CreateStrategy, FieldPath, Strategies, UpdateStrategy};

use crate::core::strategy::{TEMPLATE, template};
use crate::strategy::inner;

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "daemonsets" => &const { Strategies::ORDINARY.create(&DaemonSets).update(&DaemonSets) },
        "deployments" => &const { Strategies::ORDINARY.update(&Deployments) },
        _ => &Strategies::ORDINARY,
    }
}

/// The fields of a resource that feature gates guard.
pub(crate) fn closed_fields(plural: &str) -> Vec<ClosedFields> {
    match plural {
        "daemonsets" | "deployments" | "replicasets" => template::gated_fields(TEMPLATE),
        "statefulsets" => {
            const ROLLING: FieldPath = &["spec", "updateStrategy", "rollingUpdate"];
            let mut fields = template::gated_fields(TEMPLATE);
            fields.push(ClosedFields::new("MaxUnavailableStatefulSet", ROLLING, &[&["maxUnavailable"]]));
            fields
        }
        _ => Vec::new(),
    }
}

/// The annotation with the template generation of a daemon set, a field in the former group `extensions`.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets the template generation of a new daemon set to 1, unless it has a larger one.
fn count_first_template(daemon_set: &mut Object) {
    let stated = template_generation(daemon_set).unwrap_or(0);
    set_template_generation(daemon_set, stated.max(1));
}

/// Keeps the stored template generation if the new object has none.
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

/// The strategy of daemon sets.
pub(super) struct DaemonSets;

impl CreateStrategy for DaemonSets {
    fn complete_new(&self, object: &mut Object, _: SystemTime) -> bool {
        count_first_template(object);
        true
    }
}

impl UpdateStrategy for DaemonSets {
    fn complete_update(&self, current: &Object, next: &mut Object, _: SystemTime) -> bool {
        keep_count(current, next);
        true
    }

    fn prepare_update(&self, _: &Target, current: &Object, next: &mut Object) -> bool {
        count_templates(current, next);
        true
    }
}

/// The strategy of deployments.
pub(super) struct Deployments;

impl UpdateStrategy for Deployments {
    /// Annotations count too, since the deployment controller copies them to replica sets.
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
