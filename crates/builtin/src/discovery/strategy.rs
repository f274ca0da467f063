//! Strategy of endpoint slices. Labels count for the generation, and the deprecated topology cannot be written.
//!
//! Nodes in the topology move to their field with the next change of the endpoints.

use std::collections::HashSet;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};
use keelson_meta::names::dns_subdomain_faults;
use keelson_registry::strategy::same_specification;
use keelson_registry::strategy::{CreateStrategy, Strategies, UpdateStrategy};
use keelson_registry::{Target, Warnings};

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "endpointslices" => &const { Strategies::ORDINARY.create(&EndpointSlices).update(&EndpointSlices) },
        _ => &Strategies::ORDINARY,
    }
}

const TOPOLOGY: &str = "deprecatedTopology";
const NODE: &str = "kubernetes.io/hostname";

/// The strategy of slices of endpoints.
pub(super) struct EndpointSlices;

impl CreateStrategy for EndpointSlices {
    fn prepare_create(&self, object: &mut Object, _: &Warnings) -> bool {
        drop_topology(&HashSet::new(), object)
    }
}

impl UpdateStrategy for EndpointSlices {
    fn prepare_update(&self, _: &Target, current: &Object, next: &mut Object) -> bool {
        if current.0.get("endpoints") == next.0.get("endpoints") {
            return false;
        }
        let nodes: HashSet<&str> = endpoints(current).filter_map(node_of_topology).collect();
        drop_topology(&nodes, next)
    }

    fn raises_generation(&self, current: &Object, next: &Object) -> bool {
        !same_specification(current, next) || current.meta("labels") != next.meta("labels")
    }
}

fn endpoints(slice: &Object) -> impl Iterator<Item = &Map> {
    slice.0.get("endpoints").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

fn node_of_topology(endpoint: &Map) -> Option<&str> {
    endpoint.get(TOPOLOGY)?.get(NODE)?.as_str()
}

/// Removes the topology of each endpoint; `nodes` are the nodes that it had before.
fn drop_topology(nodes: &HashSet<&str>, slice: &mut Object) -> bool {
    let mut is_changed = false;
    let endpoints = slice.0.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
        let node = node_of_topology(endpoint).filter(|node| nodes.contains(node)).map(str::to_owned);
        if let Some(node) = node
            && endpoint.get("nodeName").is_none_or(Value::is_null)
            && dns_subdomain_faults(&node).is_empty()
        {
            endpoint.insert("nodeName", node);
        }
        is_changed |= endpoint.remove(TOPOLOGY).is_some();
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn old_topology_is_dropped_and_known_nodes_become_node_name() {
        let slice = |endpoints: Value| Object::from_value(json!({ "endpoints": endpoints })).unwrap();
        let at = |node: &str| json!({ "addresses": ["192.0.2.1"], TOPOLOGY: { NODE: node, "rack": "r" } });
        let mut next = slice(json!([at("known"), at("new"), { "addresses": ["192.0.2.2"] }]));
        assert!(drop_topology(&HashSet::from(["known"]), &mut next));
        let expected = json!([{ "addresses": ["192.0.2.1"], "nodeName": "known" }, { "addresses": ["192.0.2.1"] },
            { "addresses": ["192.0.2.2"] }]);
        assert_eq!(next, slice(expected));
        assert!(!drop_topology(&HashSet::new(), &mut next), "nothing is left to be dropped");
    }
}
