//! Reading and writing Lease objects, for all who use them: the holder and the duration, times, and the key of a lease.
//!
//! Whether a lease is still held is not judged by its times, since clocks differ; see `observed`.

use std::time::{Duration, SystemTime};

use keelson_meta::clock::{parse_rfc3339, rfc3339_micro};
use keelson_meta::json::{Map, Value};
use keelson_meta::{ApiError, Object};
use keelson_registry::Target;

use crate::client::Client;

/// The namespace of the leases by which a cluster runs itself.
pub(crate) const NAMESPACE: &str = "kube-system";

const GROUP: &str = "coordination.k8s.io";
const PLURAL: &str = "leases";

/// The leases of the cluster itself.
///
/// # Errors
/// 500 when leases are not served.
pub(crate) fn collection(client: &Client) -> Result<Target, ApiError> {
    client.collection(GROUP, "v1", PLURAL, Some(NAMESPACE))
}

/// The start of the keys of these leases, as kube-apiserver has it. A server takes its lease before it serves anything, so that no
/// surface has the place yet.
pub(crate) fn key_prefix() -> String {
    format!("/registry/{PLURAL}/{NAMESPACE}/")
}

/// Who holds a lease; empty for nobody.
pub(crate) fn holder(lease: &Object) -> &str {
    lease.get(&["spec", "holderIdentity"]).and_then(Value::as_str).unwrap_or_default()
}

/// What holders of a lease begin with that are processes of one server: whatever follows tells these apart. No name of a
/// server has such a sign in it.
pub(crate) fn holder_prefix(server_id: &str) -> String {
    format!("{server_id}_")
}

/// How long a lease stands without a renewal, if it says so.
pub(crate) fn duration(lease: &Object) -> Option<Duration> {
    lease.get(&["spec", "leaseDurationSeconds"])?.as_u64().map(Duration::from_secs)
}

/// When a lease ends unless it is renewed, by the clock of its holder; `None` for one that does not say when it was renewed
/// and for how long.
pub(crate) fn end(lease: &Object) -> Option<SystemTime> {
    parse_rfc3339(lease.get(&["spec", "renewTime"])?.as_str()?)?.checked_add(duration(lease)?)
}

/// Changes fields of a lease's `spec`.
pub(crate) fn set<const N: usize>(lease: &mut Object, fields: [(&str, Value); N]) {
    let spec = lease.0.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    if let Some(spec) = spec.as_object_mut() {
        spec.extend(fields);
    }
}

/// A time as leases have it.
pub(crate) fn micro_time(time: SystemTime) -> Value {
    rfc3339_micro(time).into()
}
