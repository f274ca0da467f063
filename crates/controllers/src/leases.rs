//! Reads and writes Lease objects: holder, duration, times and store key.
//!
//! The times in a lease don't decide who holds it, since the servers' clocks differ. See `observed`.

use std::time::{Duration, SystemTime};

use keelson_meta::clock::{parse_rfc3339, rfc3339_micro};
use keelson_meta::json::{Map, Value};
use keelson_meta::{ApiError, Object};
use keelson_registry::Target;

use crate::client::Client;

/// The namespace of the cluster's own leases.
pub(crate) const NAMESPACE: &str = "kube-system";

const GROUP: &str = "coordination.k8s.io";
const PLURAL: &str = "leases";

/// The collection of the cluster's own leases.
///
/// # Errors
/// 500 when leases are not served.
pub(crate) fn collection(client: &Client) -> Result<Target, ApiError> {
    client.collection(GROUP, "v1", PLURAL, Some(NAMESPACE))
}

/// The key prefix of these leases, as in kube-apiserver. A constant, since a server takes its lease before it serves
/// any resource.
pub(crate) fn key_prefix() -> String {
    format!("/registry/{PLURAL}/{NAMESPACE}/")
}

/// The holder of a lease; empty when it has none.
pub(crate) fn holder(lease: &Object) -> &str {
    lease.get(&["spec", "holderIdentity"]).and_then(Value::as_str).unwrap_or_default()
}

/// The prefix of the holder identities of one server's processes. The `_` can't be part of a server's name.
pub(crate) fn holder_prefix(server_id: &str) -> String {
    format!("{server_id}_")
}

/// The duration that a lease states.
pub(crate) fn duration(lease: &Object) -> Option<Duration> {
    lease.get(&["spec", "leaseDurationSeconds"])?.as_u64().map(Duration::from_secs)
}

/// The time until which a lease is valid, by its holder's clock; `None` if the lease lacks a renewal time or duration.
pub(crate) fn end(lease: &Object) -> Option<SystemTime> {
    parse_rfc3339(lease.get(&["spec", "renewTime"])?.as_str()?)?.checked_add(duration(lease)?)
}

/// Sets fields of a lease's `spec`.
pub(crate) fn set<const N: usize>(lease: &mut Object, fields: [(&str, Value); N]) {
    let spec = lease.0.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    if let Some(spec) = spec.as_object_mut() {
        spec.extend(fields);
    }
}

/// Removes fields of a lease's `spec`.
pub(crate) fn remove<const N: usize>(lease: &mut Object, fields: [&str; N]) {
    if let Some(spec) = lease.0.get_mut("spec").and_then(Value::as_object_mut) {
        for field in fields {
            spec.remove(field);
        }
    }
}

/// A time in the format of leases.
pub(crate) fn micro_time(time: SystemTime) -> Value {
    rfc3339_micro(time).into()
}
