//! Strategy of services. An update without allocated fields keeps them. A change of the type removes the fields of the
//! old type. `allocation` allocates addresses and ports.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{CreateStrategy, DeleteStrategy, UpdateStrategy, WriteStrategy};
use keelson_registry::{AssociatedWrites, Registry, Target, Warnings};

use crate::core::allocation::{self, Spec as _, needs_addresses, needs_health_check, needs_node_ports, spec, spec_mut};

/// If only `clusterIP` is set, copies it to `clusterIPs`.
fn prepare_create(service: &mut Object) {
    let Some(spec) = spec_mut(service) else { return };
    if !spec.text("clusterIP").is_empty() && spec.texts("clusterIPs").is_empty() {
        let address = json!([spec.text("clusterIP")]);
        spec.put("clusterIPs", Some(address));
    }
}

fn prepare_update(current: &Object, next: &mut Object) {
    let (Some(old), Some(new)) = (spec(current), spec_mut(next)) else { return };
    keep_allocated(old, new);
    agree_on_addresses(old, new);
    drop_fields_of_other_types(old, new);
}

/// Copies allocated fields that the update omits.
fn keep_allocated(old: &Map, new: &mut Map) {
    if needs_addresses(old) && needs_addresses(new) {
        if new.text("clusterIP").is_empty() {
            new.put("clusterIP", old.get("clusterIP").cloned());
        }
        if new.texts("clusterIPs").is_empty() {
            new.put("clusterIPs", old.get("clusterIPs").cloned());
        }
    }
    if needs_node_ports(old) && needs_node_ports(new) && !leaves_node_ports_out(new) {
        keep_node_ports(old, new);
    }
    if needs_health_check(old) && needs_health_check(new) && new.port("healthCheckNodePort") == 0 {
        new.put("healthCheckNodePort", old.get("healthCheckNodePort").cloned());
    }
}

/// Returns true if the load balancer needs no node ports, so that absent node ports are released.
fn leaves_node_ports_out(spec: &Map) -> bool {
    is_balanced(spec) && spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false))
}

/// Copies node ports to ports with the same name, unless another port has them now.
fn keep_node_ports(old: &Map, new: &mut Map) {
    let stated =
        |spec: &Map| -> BTreeSet<u16> { spec.items("ports").iter().map(|port| port.port("nodePort")).collect() };
    let used: BTreeSet<u16> = stated(old).intersection(&stated(new)).copied().filter(|port| *port != 0).collect();
    let by_name: BTreeMap<&str, u16> =
        old.items("ports").into_iter().map(|port| (port.text("name"), port.port("nodePort"))).collect();
    let Some(Value::Array(ports)) = new.get_mut("ports") else { return };
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        let known = by_name.get(port.text("name")).copied().filter(|known| *known != 0);
        if let Some(known) = known
            && port.port("nodePort") == 0
            && !used.contains(&known)
        {
            port.put("nodePort", Some(json!(known)));
        }
    }
}

/// Updates `clusterIPs` when a client changes only `clusterIP`.
fn agree_on_addresses(old: &Map, new: &mut Map) {
    let same_list = old.texts("clusterIPs") == new.texts("clusterIPs");
    let (was, is) = (old.text("clusterIP"), new.text("clusterIP"));
    if was == is {
        if new.texts("clusterIPs").is_empty() {
            new.put("clusterIPs", old.get("clusterIPs").cloned());
        }
    } else if same_list {
        let list = (!is.is_empty()).then(|| json!([is]));
        new.put("clusterIPs", list);
    }
}

/// Removes the fields of the old type, unless the request changes them; validation then refuses the request.
fn drop_fields_of_other_types(old: &Map, new: &mut Map) {
    let left = |needs: fn(&Map) -> bool, new: &Map| needs(old) && !needs(new);
    let mut drop = |applies: fn(&Map) -> bool, fields: &[&str]| {
        if left(applies, new) && fields.iter().all(|field| old.get(field) == new.get(field)) {
            fields.iter().for_each(|field| new.put(field, None));
        }
    };
    drop(needs_addresses, &["clusterIP", "clusterIPs"]);
    drop(needs_addresses, &["ipFamilies"]);
    drop(needs_addresses, &["ipFamilyPolicy"]);
    drop(needs_health_check, &["healthCheckNodePort"]);
    drop(is_balanced, &["allocateLoadBalancerNodePorts"]);
    drop(is_balanced, &["loadBalancerClass"]);
    drop(is_reached_from_outside, &["externalTrafficPolicy"]);
    drop(needs_addresses, &["internalTrafficPolicy"]);
    if left(needs_node_ports, new) && same_node_ports(old, new) {
        let Some(Value::Array(ports)) = new.get_mut("ports") else { return };
        ports.iter_mut().filter_map(Value::as_object_mut).for_each(|port| port.put("nodePort", None));
    }
}

fn is_balanced(spec: &Map) -> bool {
    spec.text("type") == "LoadBalancer"
}

fn is_reached_from_outside(spec: &Map) -> bool {
    needs_node_ports(spec) || spec.text("type") == "ClusterIP" && !spec.texts("externalIPs").is_empty()
}

fn same_node_ports(old: &Map, new: &Map) -> bool {
    let ports = |spec: &Map| -> Vec<u16> { spec.items("ports").iter().map(|port| port.port("nodePort")).collect() };
    ports(old) == ports(new)
}

/// The strategy of services.
pub(super) struct Services;

impl WriteStrategy for Services {
    fn has_companions(&self) -> bool {
        true
    }

    fn companions<'a>(
        &'a self,
        registry: &'a Registry,
        target: &'a Target,
        before: Option<&'a Object>,
        after: Option<&'a mut Object>,
        attempt: usize,
    ) -> BoxFuture<'a, Result<AssociatedWrites, ApiError>> {
        Box::pin(allocation::accompany_service(registry, target, before, after, attempt))
    }
}

impl CreateStrategy for Services {
    fn prepare_create(&self, object: &mut Object, _: &Warnings) -> bool {
        prepare_create(object);
        true
    }
}

impl UpdateStrategy for Services {
    fn prepare_update(&self, _: &Target, current: &Object, next: &mut Object) -> bool {
        prepare_update(current, next);
        true
    }
}

impl DeleteStrategy for Services {
    fn returns_deleted(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "a case reads better as what it is than as references to it")]
    fn check(old: Value, new: Value, expect: Value) {
        let service = |spec: Value| Object::from_value(json!({ "spec": spec })).unwrap();
        let mut next = service(new.clone());
        prepare_update(&service(old), &mut next);
        assert_eq!(*next.get(&["spec"]).unwrap(), expect, "{new}");
    }

    #[test]
    fn updates_without_addresses_and_node_ports_keep_them() {
        let old = json!({"type": "NodePort", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "internalTrafficPolicy": "Local",
            "ports": [{"name": "a", "port": 1, "nodePort": 30001}, {"name": "b", "port": 2, "nodePort": 30002}]});
        check(
            old.clone(),
            json!({"type": "NodePort", "internalTrafficPolicy": "Local",
                "ports": [{"name": "b", "port": 2}, {"name": "c", "port": 3, "nodePort": 30001}, {"name": "a", "port": 1}]}),
            json!({"type": "NodePort", "internalTrafficPolicy": "Local", "ports": [{"name": "b", "port": 2, "nodePort": 30002},
                {"name": "c", "port": 3, "nodePort": 30001}, {"name": "a", "port": 1}],
                "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]}),
        );
        let mut cluster = old.clone();
        cluster["type"] = json!("ClusterIP");
        let mut expect = cluster.clone();
        expect["ports"] = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
        check(old.clone(), cluster, expect);
        let mut name = old.clone();
        name["type"] = json!("ExternalName");
        let ports = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
        check(old, name, json!({"type": "ExternalName", "ports": ports}));
    }

    #[test]
    fn load_balancers_without_node_port_allocation_release_omitted_ports() {
        let with = |allocates: bool, port: Value| json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": allocates, "ports": [port]});
        let held = json!({"name": "a", "port": 1, "nodePort": 30001});
        let bare = json!({"name": "a", "port": 1});
        check(with(true, held.clone()), with(false, bare.clone()), with(false, bare.clone()));
        check(with(true, held.clone()), with(true, bare), with(true, held));
    }

    #[test]
    fn the_list_of_addresses_follows_the_single_one() {
        let old = json!({"type": "ClusterIP", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]});
        let new = json!({"type": "ClusterIP", "clusterIP": "10.0.0.8", "clusterIPs": ["10.0.0.7"]});
        check(old, new, json!({"type": "ClusterIP", "clusterIP": "10.0.0.8", "clusterIPs": ["10.0.0.8"]}));
    }
}
