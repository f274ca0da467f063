//! Strategies of devices. Taints get a time, and claims with admin access need a namespace that permits it.
//!
//! Clients may omit the time of a taint. A controller that evicts pods uses it. `claim_status` checks the rights to the
//! status of claims.

mod claim_status;

use std::time::SystemTime;

use futures::future::BoxFuture;
use keelson_meta::clock::rfc3339;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{
    ClosedFields, CreateStrategy, DeleteStrategy, EACH, FieldPath, Strategies, UpdateStrategy, metadata_of_status,
};
use keelson_registry::{Registry, Target, WriteRequest};

use crate::strategy::RETURNS_DELETED;

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "deviceclasses" | "resourcepoolstatusrequests" => &RETURNS_DELETED,
        "devicetaintrules" | "resourceslices" => {
            &const { Strategies::ORDINARY.create(&Devices).update(&Devices).delete(&Devices) }
        }
        "resourceclaims" => {
            &const { Strategies::ORDINARY.create(&DeviceClaims).update(&DeviceClaims).delete(&DeviceClaims) }
        }
        "resourceclaimtemplates" => {
            &const { Strategies::ORDINARY.create(&DeviceClaimTemplates).delete(&DeviceClaimTemplates) }
        }
        _ => &Strategies::ORDINARY,
    }
}

/// The fields of a resource that feature gates guard.
pub(crate) fn closed_fields(plural: &str) -> Vec<ClosedFields> {
    match plural {
        "resourceslices" => {
            const ATTRIBUTES: FieldPath = &["spec", "devices", EACH, "attributes", EACH];
            const LISTS: &[FieldPath] = &[&["ints"], &["bools"], &["strings"], &["versions"]];
            const NODES: &[FieldPath] = &[
                &["devices", EACH, "nodeAllocatableResourceMappings"],
                &["devices", EACH, "nodeAllocatableResources"],
            ];
            vec![
                ClosedFields::new("DRAListTypeAttributes", ATTRIBUTES, LISTS),
                ClosedFields::new("DRANodeAllocatableResources", &["spec"], NODES),
                ClosedFields::new("DRAPartitionableDevicesType", &["spec"], &[&["partitionTypeAttribute"]]),
                ClosedFields::new("DRAOptionalNodeOperations", &["spec"], &[&["skipNodeOperations"]]),
            ]
        }
        "resourceclaims" => {
            const RESULTS: FieldPath = &["status", "allocation", "devices", "results", EACH];
            vec![ClosedFields::new("DRAOptionalNodeOperations", RESULTS, &[&["skipNodeOperations"]])]
        }
        "resourcepoolstatusrequests" => {
            const DEFAULT: &[FieldPath] = &[&["defaultPartitionTypeAttribute"]];
            vec![ClosedFields::new("DRAPartitionableDevicesType", &["spec"], DEFAULT)]
        }
        _ => Vec::new(),
    }
}

fn date_taints(object: &mut Object, now: SystemTime) {
    let Some(spec) = object.0.get_mut("spec") else { return };
    let devices = spec.get("devices").and_then(Value::as_array).map_or(0, Vec::len);
    for index in 0..devices {
        let device = &mut spec["devices"][index];
        device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten().for_each(|taint| date(taint, now));
        if let Some(taints) = device.pointer_mut("/basic/taints").and_then(Value::as_array_mut) {
            taints.iter_mut().for_each(|taint| date(taint, now));
        }
    }
    spec.get_mut("taint").into_iter().for_each(|taint| date(taint, now));
}

fn date(taint: &mut Value, now: SystemTime) {
    if let Value::Object(taint) = taint
        && taint.get("timeAdded").is_none_or(Value::is_null)
    {
        taint.insert("timeAdded", json!(rfc3339(now)));
    }
}

/// The strategy of device taint rules and resource slices.
pub(super) struct Devices;

impl CreateStrategy for Devices {
    fn complete_new(&self, object: &mut Object, now: SystemTime) -> bool {
        date_taints(object, now);
        true
    }
}

impl UpdateStrategy for Devices {
    fn complete_update(&self, _: &Object, next: &mut Object, now: SystemTime) -> bool {
        date_taints(next, now);
        true
    }

    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}

impl DeleteStrategy for Devices {
    fn returns_deleted(&self) -> bool {
        true
    }
}

/// The label of a namespace that permits admin access to devices.
const ADMINISTERED: &str = "resource.kubernetes.io/admin-access";
/// The error about admin access in another namespace.
const ADMIN_ACCESS: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing \
                            namespace";

/// Returns true if the label of a namespace permits admin access to devices.
fn is_administered(registry: &Registry, namespace: &str) -> Result<bool, ApiError> {
    let namespace = registry.collection(&registry.target("", "namespaces")?)?.get(namespace);
    let namespace = namespace.map(|entry| entry.object().decode(entry.revision)).unwrap_or_default();
    Ok(namespace.labels().any(|(name, value)| name == ADMINISTERED && value == "true"))
}

/// The errors of a new claim with admin access, unless its namespace permits that.
fn administration_faults(registry: &Registry, path: &str, claim: &Object) -> Result<Vec<FieldError>, ApiError> {
    let fields: Vec<&str> = path.split('.').chain(["devices", "requests"]).collect();
    let requests = claim.get(&fields).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    // Requests in versions before `v1beta2` have no `exactly`.
    let asks = |request: &Value| {
        [request.get("adminAccess"), request.pointer("/exactly/adminAccess")].contains(&Some(&Value::Bool(true)))
    };
    if !requests.iter().any(asks) || is_administered(registry, claim.namespace())? {
        return Ok(Vec::new());
    }
    let asking = requests.iter().enumerate().filter(|(_, request)| asks(request));
    let fault = |index| FieldError::forbidden(format!("{path}.devices.requests[{index}].adminAccess"), ADMIN_ACCESS);
    Ok(asking.map(|(index, _)| fault(index)).collect())
}

/// The strategy of resource claims.
pub(super) struct DeviceClaims;

impl CreateStrategy for DeviceClaims {
    fn faults_beside_others(&self, registry: &Registry, object: &Object) -> Result<Vec<FieldError>, ApiError> {
        administration_faults(registry, "spec", object)
    }
}

impl UpdateStrategy for DeviceClaims {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }

    fn prepare_update(&self, target: &Target, current: &Object, next: &mut Object) -> bool {
        target.subresource_name() == Some("status") && claim_status::drop_deallocated(current, next)
    }

    fn restricts_changes(&self, subresource: &str) -> bool {
        subresource == "status"
    }

    fn unauthorized_changes<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a WriteRequest<'a>,
        before: &'a Object,
        after: &'a Object,
    ) -> BoxFuture<'a, Result<Vec<FieldError>, ApiError>> {
        Box::pin(claim_status::unauthorized_changes(registry, request, before, after))
    }
}

impl DeleteStrategy for DeviceClaims {
    fn returns_deleted(&self) -> bool {
        true
    }
}

/// The strategy of resource claim templates.
pub(super) struct DeviceClaimTemplates;

impl CreateStrategy for DeviceClaimTemplates {
    fn faults_beside_others(&self, registry: &Registry, object: &Object) -> Result<Vec<FieldError>, ApiError> {
        administration_faults(registry, "spec.spec", object)
    }
}

impl DeleteStrategy for DeviceClaimTemplates {
    fn returns_deleted(&self) -> bool {
        true
    }
}
