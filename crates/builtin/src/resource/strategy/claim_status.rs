//! The status of resource claims: the rights for changes of its parts, and the removal of device status after
//! deallocation.
//!
//! Both schedulers and drivers on nodes have the right to `resourceclaims/status`. A change of `allocation` or
//! `reservedFor` also requires the right to `resourceclaims/binding` in all namespaces. A change of `devices` requires
//! the right to `resourceclaims/driver` for the name of the driver.
//!
//! The verb of the latter is `arbitrary-node:VERB`. For a service account whose token is bound to the node of the
//! allocation, `associated-node:VERB` suffices. Source: KEP-4817, feature gate
//! `DRAResourceClaimGranularStatusAuthorization`.

use std::collections::{BTreeMap, BTreeSet};

use keelson_access::{ResourceAttributes, User};
use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;
use keelson_meta::names::NameRule;
use keelson_meta::{ApiError, Object};
use keelson_patch::equal::equal;
use keelson_registry::rights::{self, require};
use keelson_registry::{Registry, WriteOptions, WriteRequest};

use super::{ADMIN_ACCESS, is_administered};

/// The extra value with the node to which a service account token is bound.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// A device in a status: driver, pool and name.
type Device<'o> = (&'o str, &'o str, &'o str);

/// The errors about changes of a status that the user may not make.
///
/// # Errors
/// 500 if the namespace cannot be read.
pub(super) async fn unauthorized_changes(
    registry: &Registry,
    request: &WriteRequest<'_>,
    before: &Object,
    after: &Object,
) -> Result<Vec<FieldError>, ApiError> {
    let mut faults: Vec<FieldError> = administration_fault(registry, before, after)?.into_iter().collect();
    let verb = if matches!(request.options, WriteOptions::Patch(_)) { "patch" } else { "update" };
    let is_same = |field: &str| same(part(before, field), part(after, field));
    if !is_same("allocation") || !is_same("reservedFor") {
        let asked = ResourceAttributes {
            subresource: Some("binding"),
            namespace: None,
            ..rights::attributes(request.target, verb, None)
        };
        if let Err(refusal) = require(request.caller, asked).await {
            let detail = format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {refusal}"
            );
            faults.push(FieldError::forbidden("status", detail));
        }
    }
    let drivers = changed_drivers(before, after);
    if drivers.is_empty() {
        return Ok(faults);
    }
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if is_on_node(request.caller.user(), allocated_node(after)) {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    for driver in drivers {
        if let Err(refusal) = require_any(request, &verbs, driver).await {
            let detail = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {refusal}",
                verbs.join(" ")
            );
            faults.push(FieldError::forbidden("status.devices", detail));
        }
    }
    Ok(faults)
}

/// Removes the status of deallocated devices. Returns true if it removed any.
pub(super) fn drop_deallocated(before: &Object, after: &mut Object) -> bool {
    let gone: BTreeSet<String> = deallocated(before, after).into_iter().map(|device| format!("{device:?}")).collect();
    let devices = after.0.get_mut("status").and_then(|status| status.get_mut("devices")).and_then(Value::as_array_mut);
    let Some(devices) = devices.filter(|_| !gone.is_empty()) else { return false };
    let count = devices.len();
    devices.retain(|entry| !gone.contains(&format!("{:?}", device(entry))));
    let (is_empty, is_changed) = (devices.is_empty(), devices.len() < count);
    if is_empty && let Some(Value::Object(status)) = after.0.get_mut("status") {
        status.remove("devices");
    }
    is_changed
}

/// Requires one of the verbs on a driver.
///
/// # Errors
/// 403 for the first verb, if the user has none of them.
async fn require_any(request: &WriteRequest<'_>, verbs: &[String], driver: &str) -> Result<(), ApiError> {
    let mut refusal = None;
    for verb in verbs {
        let asked = ResourceAttributes {
            subresource: Some("driver"),
            ..rights::attributes(request.target, verb, Some(driver))
        };
        match require(request.caller, asked).await {
            Ok(()) => return Ok(()),
            Err(error) => drop(refusal.get_or_insert(error)),
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// The error for a new allocation with admin access, if the namespace does not permit that.
fn administration_fault(registry: &Registry, before: &Object, after: &Object) -> Result<Option<FieldError>, ApiError> {
    let granted = |claim| results(claim).iter().position(|result| result["adminAccess"] == true);
    let Some(index) = granted(after).filter(|_| granted(before).is_none()) else { return Ok(None) };
    if is_administered(registry, after.namespace())? {
        return Ok(None);
    }
    let field = format!("status.allocation.devices.results[{index}].adminAccess");
    Ok(Some(FieldError::forbidden(field, ADMIN_ACCESS)))
}

fn part<'o>(claim: &'o Object, field: &str) -> Option<&'o Value> {
    claim.get(&["status", field])
}

fn elements(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The allocated devices.
fn results(claim: &Object) -> &[Value] {
    elements(claim.get(&["status", "allocation", "devices", "results"]))
}

/// Compares two parts of a status. An empty list equals an absent one.
fn same(before: Option<&Value>, after: Option<&Value>) -> bool {
    let is_there = |value: &&Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    match (before.filter(is_there), after.filter(is_there)) {
        (None, None) => true,
        (Some(before), Some(after)) => equal(before, after),
        _ => false,
    }
}

fn text<'o>(value: &'o Value, field: &str) -> &'o str {
    value[field].as_str().unwrap_or_default()
}

fn device(entry: &Value) -> Device<'_> {
    (text(entry, "driver"), text(entry, "pool"), text(entry, "device"))
}

/// The devices that an update deallocates.
fn deallocated<'o>(before: &'o Object, after: &Object) -> BTreeSet<Device<'o>> {
    let kept: BTreeSet<Device<'_>> = results(after).iter().map(device).collect();
    results(before).iter().map(device).filter(|device| !kept.contains(device)).collect()
}

/// The drivers whose device status was added, changed or removed. Status of deallocated devices does not count: the
/// server removes it, and deallocation requires another right.
fn changed_drivers<'o>(before: &'o Object, after: &'o Object) -> BTreeSet<&'o str> {
    let entries = |claim: &'o Object| elements(part(claim, "devices")).iter();
    let key = |entry: &'o Value| (device(entry), text(entry, "shareID"));
    let mut known: BTreeMap<_, &Value> = entries(before).map(|entry| (key(entry), entry)).collect();
    let mut drivers = BTreeSet::new();
    for entry in entries(after) {
        if known.remove(&key(entry)).is_none_or(|before| !equal(before, entry)) {
            drivers.insert(text(entry, "driver"));
        }
    }
    let gone = deallocated(before, after);
    drivers.extend(known.into_keys().filter(|(device, _)| !gone.contains(device)).map(|((driver, ..), _)| driver));
    drivers
}

/// The node of an allocation, if its node selector is the name of one node.
fn allocated_node(claim: &Object) -> Option<&str> {
    let [term] = elements(claim.get(&["status", "allocation", "nodeSelector", "nodeSelectorTerms"])) else {
        return None;
    };
    let ([], [field]) = (elements(term.get("matchExpressions")), elements(term.get("matchFields"))) else {
        return None;
    };
    let [node] = elements(field.get("values")) else { return None };
    let is_name = text(field, "key") == "metadata.name" && text(field, "operator") == "In";
    node.as_str().filter(|node| is_name && !node.is_empty())
}

/// Returns true if the user is a service account whose token is bound to this node only.
fn is_on_node(user: &User, node: Option<&str>) -> bool {
    let Some(node) = node else { return false };
    let bound = user.extra.get(NODE_NAME).map_or(&[][..], Vec::as_slice);
    is_service_account(&user.name) && bound == [node] && NameRule::DnsSubdomain.check(node, false).is_empty()
}

fn is_service_account(name: &str) -> bool {
    let account = name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    account.is_some_and(|(namespace, name)| {
        NameRule::DnsLabel.check(namespace, false).is_empty() && NameRule::DnsSubdomain.check(name, false).is_empty()
    })
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "a case reads better as what it is than as references to it")]
    fn claim(status: Value) -> Object {
        Object::from_value(json!({ "metadata": { "name": "c" }, "status": status })).unwrap()
    }

    fn allocation(devices: &[&str]) -> Value {
        let result = |device: &&str| json!({ "request": "r", "driver": "d", "pool": "p", "device": device });
        json!({ "devices": { "results": devices.iter().map(result).collect::<Vec<_>>() } })
    }

    fn entry(driver: &str, device: &str, data: u32) -> Value {
        json!({ "driver": driver, "pool": "p", "device": device, "data": { "n": data } })
    }

    #[test]
    fn drivers_of_added_changed_and_removed_device_status_are_found() {
        let check = |before: Value, after: Value, expected: &[&str]| {
            let (before, after) = (claim(before), claim(after));
            let changed: Vec<&str> = changed_drivers(&before, &after).into_iter().collect();
            assert_eq!(changed, expected, "{before:?} {after:?}");
        };
        let of = |devices: Value| json!({ "allocation": allocation(&["one", "two"]), "devices": devices });
        check(of(json!([entry("d", "one", 1)])), of(json!([entry("d", "one", 1)])), &[]);
        check(of(json!(null)), of(json!([entry("d", "one", 1)])), &["d"]);
        check(of(json!([entry("d", "one", 1)])), of(json!([entry("d", "one", 2), entry("e", "two", 1)])), &["d", "e"]);
        check(of(json!([entry("e", "one", 1)])), of(json!([])), &["e"]);
        // The device is deallocated.
        let deallocated = json!({ "allocation": allocation(&["two"]) });
        check(of(json!([entry("d", "one", 1), entry("d", "two", 1)])), deallocated.clone(), &["d"]);
        check(of(json!([entry("d", "one", 1)])), deallocated, &[]);
    }

    #[test]
    fn device_status_is_dropped_with_its_allocation() {
        let before = claim(json!({ "allocation": allocation(&["one", "two"]) }));
        let devices = json!([entry("d", "one", 1), entry("d", "two", 1)]);
        let mut after = claim(json!({ "allocation": allocation(&["two"]), "devices": devices }));
        assert!(drop_deallocated(&before, &mut after));
        assert_eq!(after.0["status"]["devices"], json!([entry("d", "two", 1)]));
        let mut after = claim(json!({ "devices": devices }));
        assert!(drop_deallocated(&before, &mut after));
        assert_eq!(after.0["status"], json!({}));
        let mut unchanged = claim(json!({ "allocation": allocation(&["one", "two"]), "devices": devices }));
        assert!(!drop_deallocated(&before, &mut unchanged));
    }

    #[test]
    fn a_service_account_is_on_the_one_node_of_its_token() {
        let user = |name: &str, nodes: &[&str]| {
            let nodes = nodes.iter().map(ToString::to_string).collect();
            User { name: name.to_owned(), extra: [(NODE_NAME.to_owned(), nodes)].into(), ..User::default() }
        };
        let account = "system:serviceaccount:a:b";
        assert!(is_on_node(&user(account, &["n"]), Some("n")));
        for (user, node) in [
            (user(account, &["n"]), Some("m")),
            (user(account, &["n"]), None),
            (user(account, &["n", "m"]), Some("n")),
            (user(account, &[]), Some("n")),
            (user("system:node:n", &["n"]), Some("n")),
            (user("system:serviceaccount:a", &["n"]), Some("n")),
            (user(account, &["not_one"]), Some("not_one")),
        ] {
            assert!(!is_on_node(&user, node), "{user:?} {node:?}");
        }
    }

    #[test]
    fn an_allocation_is_for_one_node_by_its_name_alone() {
        let check = |terms: Value, expected: Option<&str>| {
            let status = json!({ "allocation": { "nodeSelector": { "nodeSelectorTerms": terms } } });
            assert_eq!(allocated_node(&claim(status)), expected, "{terms}");
        };
        let by = |key: &str, operator: &str, values: &[&str]| json!([{ "key": key, "operator": operator, "values": values }]);
        check(json!([{ "matchFields": by("metadata.name", "In", &["n"]) }]), Some("n"));
        check(json!([{ "matchFields": by("metadata.name", "NotIn", &["n"]) }]), None);
        check(json!([{ "matchFields": by("metadata.namespace", "In", &["n"]) }]), None);
        check(json!([{ "matchFields": by("metadata.name", "In", &["n", "m"]) }]), None);
        check(json!([{ "matchExpressions": by("metadata.name", "In", &["n"]) }]), None);
        check(json!([]), None);
    }
}
