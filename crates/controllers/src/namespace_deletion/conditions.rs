//! The conditions of a namespace in deletion: which objects are left, and the reasons of a delay.
//!
//! Types, reasons and messages are those of kube-controller-manager, since people and scripts read them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use keelson_meta::clock::rfc3339;
use keelson_meta::json::json;
use keelson_meta::{ApiError, GroupResource, Object};

use super::contents::RemainingObjects;

/// The conditions in order: type, then the reason and message for a pass without a problem.
const CONDITIONS: [(&str, &str, &str); 5] = [
    (DISCOVERY, "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (FAILURE, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    (CONTENT, "ContentRemoved", "All content successfully removed"),
    (FINALIZERS, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

const DISCOVERY: &str = "NamespaceDeletionDiscoveryFailure";
const FAILURE: &str = "NamespaceDeletionContentFailure";
const CONTENT: &str = "NamespaceContentRemaining";
const FINALIZERS: &str = "NamespaceFinalizersRemaining";

/// The result of a pass.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The number of objects left of each resource.
    left: Vec<(GroupResource, usize)>,
    /// The number of objects that each finalizer holds.
    finalizers: BTreeMap<String, usize>,
    /// The errors.
    failures: Vec<String>,
    /// The versions of groups whose resources are unknown.
    undiscovered: Vec<String>,
}

impl Findings {
    pub(super) fn add_outcome(&mut self, resource: GroupResource, outcome: Result<RemainingObjects, ApiError>) {
        match outcome {
            Ok(left) => self.add(resource, left),
            Err(error) => self.add_failure(&error),
        }
    }

    fn add(&mut self, resource: GroupResource, left: RemainingObjects) {
        if left.objects > 0 {
            self.left.push((resource, left.objects));
        }
        for (finalizer, objects) in left.finalizers {
            *self.finalizers.entry(finalizer).or_default() += objects;
        }
    }

    fn add_failure(&mut self, error: &ApiError) {
        self.failures.push(error.status().message);
    }

    pub(super) fn add_undiscovered(&mut self, versions: Vec<String>) {
        self.undiscovered.extend(versions);
    }

    /// Returns true if no object is left, no deletion failed, and the resources of all versions are known.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.failures.is_empty() && self.undiscovered.is_empty()
    }

    /// Writes the conditions into a namespace. The transition time of a condition changes only with its status.
    pub(super) fn tell(&self, namespace: &mut Object, now: SystemTime) {
        let status = namespace.0.entry("status").or_insert_with(|| json!({}));
        let Some(status) = status.as_object_mut() else { return };
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        let Some(conditions) = conditions.as_array_mut() else { return };
        for (kind, reason, message) in CONDITIONS {
            let (status, reason, message) = match self.trouble(kind) {
                Some((reason, message)) => ("True", reason, message),
                None => ("False", reason, message.to_owned()),
            };
            let known = conditions.iter_mut().find(|condition| condition["type"] == kind);
            let since = known.as_ref().filter(|known| known["status"] == status);
            let since = since.map_or_else(|| json!(rfc3339(now)), |known| known["lastTransitionTime"].clone());
            let condition = json!({
                "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
            });
            match known {
                Some(known) => *known = condition,
                None => conditions.push(condition),
            }
        }
    }

    /// The reason and message of a condition with a problem; `None` without one.
    fn trouble(&self, kind: &str) -> Option<(&'static str, String)> {
        match kind {
            DISCOVERY if !self.undiscovered.is_empty() => {
                let stale = |version: &String| format!("{version}: stale GroupVersion discovery: {version}");
                let stale: Vec<String> = self.undiscovered.iter().map(stale).collect();
                let message = format!(
                    "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
                    stale.len(),
                    sorted(&stale)
                );
                Some(("DiscoveryFailed", message))
            }
            FAILURE if !self.failures.is_empty() => {
                let count = self.failures.len();
                let message =
                    format!("Failed to delete all resource types, {count} remaining: {}", sorted(&self.failures));
                Some(("ContentDeletionFailed", message))
            }
            CONTENT if !self.left.is_empty() => {
                let left = self.left.iter().map(|(GroupResource { group, resource }, objects)| {
                    format!("{resource}.{group} has {objects} resource instances")
                });
                let message = format!("Some resources are remaining: {}", sorted(&left.collect::<Vec<_>>()));
                Some(("SomeResourcesRemain", message))
            }
            FINALIZERS if !self.finalizers.is_empty() => {
                let held = self.finalizers.iter();
                let held = held.map(|(finalizer, objects)| format!("{finalizer} in {objects} resource instances"));
                let message = format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    sorted(&held.collect::<Vec<_>>())
                );
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    }
}

fn sorted(texts: &[String]) -> String {
    let mut texts = texts.to_vec();
    texts.sort();
    texts.join(", ")
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let troubles = CONDITIONS.into_iter().filter_map(|(kind, ..)| self.trouble(kind));
        let troubles: Vec<String> = troubles.map(|(_, message)| message).collect();
        f.write_str(&troubles.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::Value;
    use std::time::Duration;

    fn condition(namespace: &Object, kind: &str) -> [String; 4] {
        let conditions = namespace.get(&["status", "conditions"]).and_then(Value::as_array).unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
        ["status", "lastTransitionTime", "reason", "message"].map(|field| found[field].as_str().unwrap().to_owned())
    }

    #[test]
    fn conditions_report_remaining_content_with_transition_times() {
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut namespace = Object::default();
        let mut first = Findings::default();
        let group = |group: &str, resource: &str| GroupResource { group: group.into(), resource: resource.into() };
        let held = |objects| RemainingObjects { objects, finalizers: BTreeMap::from([("a.io/x".to_owned(), objects)]) };
        first.add(group("", "configmaps"), held(2));
        first.add(group("apps", "deployments"), held(1));
        first.add(group("", "pods"), RemainingObjects::default());
        first.add_failure(&ApiError::ServiceUnavailable { message: "gone".into(), retry_after_seconds: None });
        assert!(!first.is_empty());
        first.tell(&mut namespace, time(0));
        let check = |namespace: &Object, kind: &str, expect: [&str; 4]| assert_eq!(condition(namespace, kind), expect);
        let start = "1970-01-01T00:00:00Z";
        let left = "Some resources are remaining: configmaps. has 2 resource instances, deployments.apps has 1 resource instances";
        check(&namespace, CONTENT, ["True", start, "SomeResourcesRemain", left]);
        let held = "Some content in the namespace has finalizers remaining: a.io/x in 3 resource instances";
        check(&namespace, FINALIZERS, ["True", start, "SomeFinalizersRemain", held]);
        let failed = "Failed to delete all resource types, 1 remaining: gone";
        check(&namespace, FAILURE, ["True", start, "ContentDeletionFailed", failed]);
        let discovered = "All resources successfully discovered";
        check(&namespace, CONDITIONS[0].0, ["False", start, "ResourcesDiscovered", discovered]);

        let mut second = Findings::default();
        second.add(group("", "configmaps"), RemainingObjects { objects: 1, finalizers: BTreeMap::new() });
        second.tell(&mut namespace, time(60));
        let left = "Some resources are remaining: configmaps. has 1 resource instances";
        check(&namespace, CONTENT, ["True", start, "SomeResourcesRemain", left]);
        let finished = "All content-preserving finalizers finished";
        check(&namespace, FINALIZERS, ["False", "1970-01-01T00:01:00Z", "ContentHasNoFinalizers", finished]);

        let mut third = Findings::default();
        third.add_undiscovered(vec!["b.io/v1".to_owned(), "a.io/v1".to_owned()]);
        assert!(!third.is_empty());
        third.tell(&mut namespace, time(60));
        let failed = "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: \
                      a.io/v1: stale GroupVersion discovery: a.io/v1, b.io/v1: stale GroupVersion discovery: b.io/v1";
        check(&namespace, DISCOVERY, ["True", "1970-01-01T00:01:00Z", "DiscoveryFailed", failed]);
    }
}
