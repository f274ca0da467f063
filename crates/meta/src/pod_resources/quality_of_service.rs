//! The quality-of-service class of a pod.
//!
//! The class is derived from the requests and limits of the pod's containers, or from those that the pod states as a
//! whole. The rules are upstream's.

use crate::Object;
use crate::json::Value;

/// The resources that determine a pod's class.
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Returns `Guaranteed` if the limits of every container equal its requests, `BestEffort` if no container states any,
/// and `Burstable` otherwise.
pub fn quality_of_service(pod: &Object) -> &'static str {
    let spec = pod.0.get("spec").unwrap_or(&Value::Null);
    let containers = ["containers", "initContainers"].iter().filter_map(|list| spec.get(list)?.as_array()).flatten();
    // If the pod states resources itself, they replace those of its containers (KEP-2837).
    let askers: Vec<&Value> = if asks_as_a_whole(spec) { vec![spec] } else { containers.collect() };
    let (mut asked, mut guaranteed) = (false, true);
    for container in askers {
        let amounts = |of: &str| COMPUTE.map(|resource| amount(container, of, resource));
        let (requests, limits) = (amounts("requests"), amounts("limits"));
        guaranteed &= limits.iter().all(Option::is_some) && requests == limits;
        asked |= requests.iter().chain(&limits).any(Option::is_some);
    }
    match (asked, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Returns true if a pod states pod-level resources.
fn asks_as_a_whole(spec: &Value) -> bool {
    let is_of_pods = |resource: &str| COMPUTE.contains(&resource) || resource.starts_with("hugepages-");
    let amounts = ["requests", "limits"].into_iter().filter_map(|of| spec.get("resources")?.get(of)?.as_object());
    amounts.flatten().any(|(resource, _)| is_of_pods(resource))
}

/// A quantity in its canonical form, in which equal amounts are equal. Zero counts as absent.
fn amount<'a>(container: &'a Value, of: &str, resource: &str) -> Option<&'a str> {
    container.get("resources")?.get(of)?.get(resource)?.as_str().filter(|amount| *amount != "0")
}

#[cfg(test)]
mod tests {
    use crate::json::json;

    use super::*;

    #[test]
    fn the_qos_class_follows_from_the_container_resources() {
        let check = |containers: Value, expected: &str| {
            let pod = Object::from_value(json!({ "spec": { "containers": containers } })).unwrap();
            assert_eq!(quality_of_service(&pod), expected, "{containers}");
        };
        let both = json!({ "cpu": "1", "memory": "1Gi" });
        check(json!([{}]), "BestEffort");
        check(json!([{ "resources": { "requests": { "cpu": "0" } } }]), "BestEffort");
        check(json!([{ "resources": { "requests": { "nvidia.com/gpu": "1" } } }]), "BestEffort");
        check(json!([{ "resources": { "requests": { "cpu": "1" } } }]), "Burstable");
        check(json!([{ "resources": { "requests": both, "limits": both } }]), "Guaranteed");
        check(json!([{ "resources": { "requests": both, "limits": both } }, {}]), "Burstable");
        check(json!([{ "resources": { "requests": { "cpu": "1" }, "limits": both } }]), "Burstable");

        let check = |resources: Value, of_container: Value, expected: &str| {
            let spec = json!({ "resources": resources, "containers": [{ "resources": of_container }] });
            let pod = Object::from_value(json!({ "spec": spec })).unwrap();
            assert_eq!(quality_of_service(&pod), expected, "{resources}");
        };
        check(json!({ "requests": { "cpu": "1" } }), json!({}), "Burstable");
        check(json!({ "requests": { "cpu": "1" } }), json!({ "requests": both, "limits": both }), "Burstable");
        check(json!({ "requests": both, "limits": both }), json!({ "requests": { "cpu": "1" } }), "Guaranteed");
        check(json!({ "requests": {} }), json!({ "requests": both, "limits": both }), "Guaranteed");
    }
}
