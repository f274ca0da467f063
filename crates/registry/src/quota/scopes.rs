//! Scopes of quotas: the pods or claims that a quota counts, if it does not count all.
//!
//! A scope is a condition on the requests of an object. All scopes of a quota must hold. Only pods and claims have
//! scopes.

use std::fmt;

use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_meta::pod_resources::quality_of_service;

use super::usage::{Usage, is_terminating};

/// A scope of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Its name: `PriorityClass`.
    pub name: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values of the operators that have any.
    pub values: Vec<String>,
}

/// Formats a scope as Go prints it: `{PriorityClass In [high low]}`.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.name, self.operator, self.values.join(" "))
    }
}

/// The scopes of a quota, from `spec.scopes` and `spec.scopeSelector`.
pub(super) fn read(quota: &Object) -> Vec<Scope> {
    let plain = quota.get(&["spec", "scopes"]).and_then(Value::as_array).into_iter().flatten();
    let plain = plain.filter_map(Value::as_str).map(|name| Scope {
        name: name.to_owned(),
        operator: "Exists".to_owned(),
        values: Vec::new(),
    });
    let stated = quota.get(&["spec", "scopeSelector", "matchExpressions"]).and_then(Value::as_array);
    let stated = stated.into_iter().flatten().map(|expression| {
        let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        Scope {
            name: text("scopeName"),
            operator: text("operator"),
            values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    });
    plain.chain(stated).collect()
}

/// Returns true if an object is in all of these scopes.
pub(super) fn match_all(scopes: &[Scope], usage: Usage<'_>, object: &Object) -> bool {
    scopes.iter().all(|scope| scope.has(usage, object))
}

impl Scope {
    /// Returns true for an object in the scope.
    pub(super) fn has(&self, usage: Usage<'_>, object: &Object) -> bool {
        if usage.is_of_pods() { self.has_pod(object) } else { usage.is_of_claims() && self.has_claim(object) }
    }

    fn has_pod(&self, pod: &Object) -> bool {
        match self.name.as_str() {
            "Terminating" => is_terminating(pod),
            "NotTerminating" => !is_terminating(pod),
            "BestEffort" => quality_of_service(pod) == "BestEffort",
            "NotBestEffort" => quality_of_service(pod) != "BestEffort",
            "PriorityClass" => {
                self.selects(pod.get(&["spec", "priorityClassName"]).and_then(Value::as_str).unwrap_or_default())
            }
            "CrossNamespacePodAffinity" => reaches_out(pod),
            _ => false,
        }
    }

    fn has_claim(&self, claim: &Object) -> bool {
        let class = |path: &[&str]| claim.get(path).and_then(Value::as_str).unwrap_or_default();
        // A claim belongs to its current class until it gets the requested one.
        let classes = [
            class(&["spec", "volumeAttributesClassName"]),
            class(&["status", "currentVolumeAttributesClassName"]),
            class(&["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"]),
        ];
        if self.name != "VolumeAttributesClass" {
            return false;
        }
        match classes.iter().any(|class| !class.is_empty()) {
            true => classes.iter().any(|class| !class.is_empty() && self.selects(class)),
            false => self.selects(""),
        }
    }

    /// Returns true if the scope selects a class name; empty for none.
    fn selects(&self, class: &str) -> bool {
        let is_named = self.values.iter().any(|value| value == class);
        match self.operator.as_str() {
            "Exists" => !class.is_empty(),
            "DoesNotExist" => class.is_empty(),
            "In" => !class.is_empty() && is_named,
            "NotIn" => class.is_empty() || !is_named,
            _ => false,
        }
    }
}

/// Returns true if a pod has an affinity to pods of other namespaces.
fn reaches_out(pod: &Object) -> bool {
    let is_set = |value: Option<&Value>| match value {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    };
    let leads_out = |term: &Value| is_set(term.get("namespaces")) || is_set(term.get("namespaceSelector"));
    ["podAffinity", "podAntiAffinity"].into_iter().any(|field| {
        let terms = |list: &str| {
            let terms = pod.get(&["spec", "affinity", field, list]).and_then(Value::as_array);
            terms.map_or(&[][..], Vec::as_slice)
        };
        terms("requiredDuringSchedulingIgnoredDuringExecution").iter().any(leads_out)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .filter_map(|weighted| weighted.get("podAffinityTerm"))
                .any(leads_out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::json;

    #[test]
    fn quota_scopes_match_pods_by_their_spec() {
        let check = |expression: Value, spec: Value, expected: bool| {
            let quota = json!({ "spec": { "scopeSelector": { "matchExpressions": [expression] } } });
            let scopes = read(&Object::from_value(quota).unwrap());
            let pod = Object::from_value(json!({ "spec": spec })).unwrap();
            assert_eq!(match_all(&scopes, Usage::new("", "pods"), &pod), expected, "{scopes:?} {spec:?}");
            assert!(!match_all(&scopes, Usage::new("", "secrets"), &pod), "others are in no scope");
        };
        let scope = |name: &str| json!({ "scopeName": name, "operator": "Exists" });
        let bare = json!({ "containers": [{ "name": "c" }] });
        let sized = json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] });
        check(scope("BestEffort"), bare.clone(), true);
        check(scope("BestEffort"), sized.clone(), false);
        check(scope("NotBestEffort"), sized, true);
        check(scope("Terminating"), json!({ "activeDeadlineSeconds": 5 }), true);
        check(scope("NotTerminating"), bare.clone(), true);
        let classed =
            |operator: &str| json!({ "scopeName": "PriorityClass", "operator": operator, "values": ["high"] });
        let high = json!({ "priorityClassName": "high" });
        check(classed("In"), high.clone(), true);
        check(classed("NotIn"), high.clone(), false);
        check(classed("NotIn"), bare.clone(), true);
        check(classed("Exists"), bare.clone(), false);
        check(classed("DoesNotExist"), bare.clone(), true);
        let term = json!([{ "labelSelector": {}, "namespaces": ["x"], "topologyKey": "k" }]);
        let out = json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term } } });
        check(scope("CrossNamespacePodAffinity"), out, true);
        check(scope("CrossNamespacePodAffinity"), bare, false);
    }
}
