//! Cluster addresses. Each allocated address is an IPAddress object that refers to the service.
//!
//! The transaction of the service creates these objects on the condition that they are absent. So addresses are unique
//! without a lock, and service and object exist together. The ranges come from ServiceCIDRs.

use std::net::IpAddr;

use keelson_codec::StoredObject;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object, Revision};
use keelson_registry::{AddressRange, AssociatedWrites, Family, ManagedObject, OnConflict, Registry, Target};
use keelson_storage::{KeyValue, StoreKey};

use super::counts::{Scope, note_address};
use super::spec::{Spec as _, held_addresses, is_headless, needs_addresses};
use super::{FULL, ServiceRef, families};

pub(super) const GROUP: &str = "networking.k8s.io";

/// The value of the manager label of service addresses.
const MANAGER: &str = "ipallocator.k8s.io";

/// Allocates an address for each family of a service: the requested one, or any free one.
pub(super) async fn assign(
    registry: &Registry,
    service_ref: &ServiceRef<'_>,
    before: Option<&Map>,
    spec: &mut Map,
    companions: &mut AssociatedWrites,
) -> Result<(), ApiError> {
    if !needs_addresses(spec) || is_headless(spec) {
        return Ok(());
    }
    let held = before.map(held_addresses).unwrap_or_default();
    let target = registry.target(GROUP, "ipaddresses")?;
    companions.keep(registry.enter(&target).await?);
    let mut addresses: Vec<String> = spec.texts("clusterIPs").into_iter().map(str::to_owned).collect();
    for (index, family) in families::families(spec).into_iter().enumerate() {
        let (address, on_conflict) = match addresses.get(index).map(String::as_str) {
            None | Some("") => {
                let address = choose(registry, &target, family)?;
                addresses.resize(addresses.len().max(index + 1), String::new());
                addresses[index] = address.to_string();
                (address, OnConflict::TryAgain)
            }
            Some(text) => {
                let Ok(address) = text.parse::<IpAddr>() else { continue };
                if held.contains(&address) {
                    if registry.collection(&target)?.get(&address.to_string()).is_some() {
                        continue;
                    }
                    // The IPAddress object was lost. The service with this address creates it again.
                    let object = registry.encode_own(&target, describe(service_ref, address)).await?;
                    companions.take(key(registry, &target, address)?, object.bytes(), OnConflict::TryAgain);
                    continue;
                }
                let refused = |why: &str| {
                    let detail = format!("failed to allocate IP {text}: {why}");
                    service_ref.refuse(vec![FieldError::invalid("spec.clusterIPs", json!(addresses), detail)])
                };
                let range = range_of(registry, address)?.map_err(|why| refused(&why))?;
                let is_free = registry.collection(&target)?.get(&address.to_string()).is_none();
                note_address(range.to_string(), Scope::Static, is_free);
                (address, OnConflict::Refuse(Box::new(refused("provided IP is already allocated"))))
            }
        };
        let object = registry.encode_own(&target, describe(service_ref, address)).await?;
        companions.take(key(registry, &target, address)?, object.bytes(), on_conflict);
    }
    spec.put("clusterIP", addresses.first().map(|address| json!(address)));
    spec.put("clusterIPs", Some(json!(addresses)));
    Ok(())
}

/// Releases addresses that the service had and no longer has.
pub(super) async fn give_back(
    registry: &Registry,
    service_ref: &ServiceRef<'_>,
    before: &Map,
    after: Option<&Map>,
    companions: &mut AssociatedWrites,
) -> Result<(), ApiError> {
    let kept = after.map(held_addresses).unwrap_or_default();
    let target = registry.target(GROUP, "ipaddresses")?;
    companions.keep(registry.enter(&target).await?);
    let parent = parent(service_ref);
    // If a client created the IPAddress, its parent reference may have more fields than those written here.
    let names_parent = |address: &Object| {
        let stated = |field| address.get(&["spec", "parentRef", field]);
        ["resource", "namespace", "name"].into_iter().all(|field| stated(field) == parent.get(field))
    };
    // kube-apiserver may have stored the object, in protobuf.
    let is_own = |found: &KeyValue| {
        StoredObject::parse(found.value.clone()).is_ok_and(|address| names_parent(&address.decode(found.revision)))
    };
    for address in held_addresses(before).into_iter().filter(|address| !kept.contains(address)) {
        super::give_back(registry, key(registry, &target, address)?, is_own, companions).await?;
    }
    Ok(())
}

/// The reference to the service in an IPAddress. It has no uid, since only one service can have the name.
fn parent(service_ref: &ServiceRef<'_>) -> Value {
    json!({ "resource": "services", "namespace": service_ref.namespace, "name": service_ref.name })
}

/// The range that an address is in. Returns the text of the error if there is none.
fn range_of(registry: &Registry, address: IpAddr) -> Result<Result<AddressRange, String>, ApiError> {
    let ranges = ranges(registry)?;
    if let Some(range) = ranges.iter().find(|range| range.holds(address)) {
        return Ok(Ok(*range));
    }
    let shown: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    let shown = shown.join(",");
    Ok(Err(format!("the provided IP ({address}) is not in the valid range. The range of valid IPs is {shown}")))
}

/// Recreates an IPAddress that a client deleted while a service has the address. Upstream does so in a repair loop some
/// time later, and could allocate the address twice until then.
pub(crate) async fn made_again(registry: &Registry, last: &StoredObject) -> Result<Option<ManagedObject>, ApiError> {
    let address = last.decode(Revision::default());
    let stated = |field| address.get(&["spec", "parentRef", field]).and_then(Value::as_str).unwrap_or_default();
    let (true, Ok(held)) = (stated("resource") == "services", address.name().parse()) else { return Ok(None) };
    let services = registry.target("", "services")?.in_namespace(Some(stated("namespace")));
    let service = registry.collection(&services)?.get(&services.relative_key(stated("name")));
    let Some(service) = service.map(|service| service.object().decode(service.revision)) else { return Ok(None) };
    if !super::spec(&service).is_some_and(|spec| held_addresses(spec).contains(&held)) {
        return Ok(None);
    }
    let service_ref = ServiceRef::new(&services, &service);
    registry.make_own(&registry.target(GROUP, "ipaddresses")?, describe(&service_ref, held)).await.map(Some)
}

/// A random address that is free according to the cache.
fn choose(registry: &Registry, target: &Target, family: Family) -> Result<IpAddr, ApiError> {
    let taken = registry.collection(target)?.snapshot();
    let chance = registry.random().u64();
    let mut full = None;
    for range in ranges(registry)?.into_iter().filter(|range| range.family() == family) {
        for part in range.parts() {
            let mut free = part.all_from(chance).map(|number| range.address(number));
            if let Some(address) = free.find(|address| taken.get(&address.to_string()).is_none()) {
                note_address(range.to_string(), Scope::Dynamic, true);
                return Ok(address);
            }
        }
        full = Some(range);
    }
    if let Some(range) = full {
        note_address(range.to_string(), Scope::Dynamic, false);
    }
    Err(ApiError::Internal(format!("failed to allocate a serviceIP: {FULL}")))
}

/// The ranges for allocation: those of all ready ServiceCIDRs, or the server's own before there is a ServiceCIDR.
pub(super) fn ranges(registry: &Registry) -> Result<Vec<AddressRange>, ApiError> {
    let stored = registry.collection(&registry.target(GROUP, "servicecidrs")?)?.snapshot();
    if stored.is_empty() {
        return Ok(registry.config().service_ranges.addresses().to_vec());
    }
    let objects = stored.range("", None).map(|entry| entry.object().decode(entry.revision));
    Ok(objects.filter(is_ready).flat_map(|object| cidrs(&object)).collect())
}

fn is_ready(cidr: &Object) -> bool {
    let conditions = cidr.get(&["status", "conditions"]).and_then(Value::as_array);
    let refused =
        conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] != "True");
    cidr.deletion_timestamp().is_none() && !refused
}

fn cidrs(cidr: &Object) -> Vec<AddressRange> {
    let cidrs = cidr.get(&["spec", "cidrs"]).and_then(Value::as_array).into_iter().flatten();
    cidrs.filter_map(|cidr| AddressRange::parse(cidr.as_str()?)).collect()
}

/// The IPAddress object for an address of a service.
fn describe(service_ref: &ServiceRef<'_>, address: IpAddr) -> Object {
    let object = json!({
        "metadata": {
            "name": address.to_string(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": Family::from_address(address).name(),
                "ipaddress.kubernetes.io/managed-by": MANAGER,
            },
        },
        "spec": { "parentRef": parent(service_ref) },
    });
    Object::from_value(object).unwrap_or_default()
}

fn key(registry: &Registry, target: &Target, address: IpAddr) -> Result<StoreKey, ApiError> {
    Ok(StoreKey::new(format!("{}{address}", registry.collection(target)?.prefix())))
}
