//! Requests for certificates of `certificates.k8s.io/v1beta1`, where the signer, the usages and the status of a condition had
//! defaults.
//!
//! Requests without a signer are older than Kubernetes 1.18 and have long been answered; they get the signer of unknown requests.

use keelson_meta::json::{Map, json};

use crate::conversion::ConversionError;
use crate::tree::{each_in, fill, object};

/// From v1beta1 to v1.
pub(crate) fn request_from_v1beta1(request: &mut Map) -> Result<(), ConversionError> {
    if let Some(spec) = object(request, "spec")? {
        fill(spec, "signerName", json!("kubernetes.io/legacy-unknown"));
        fill(spec, "usages", json!(["digital signature", "key encipherment"]));
    }
    let Some(status) = object(request, "status")? else { return Ok(()) };
    each_in(status, "conditions", |condition| {
        fill(condition, "status", json!("True"));
        Ok(())
    })
}
