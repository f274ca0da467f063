//! Certificate signing requests of `certificates.k8s.io/v1beta1`, in which the signer, the usages and the status of a
//! condition have defaults.
//!
//! Requests without a signer are older than Kubernetes 1.18. They get the signer for legacy requests.

use keelson_meta::json::{Map, json};

use crate::converting::conversion::ConversionError;
use crate::converting::families::{Family, family, hub};
use crate::converting::retired::{BETA, RetiredVersions, row};
use crate::converting::tree::{each_in, fill, object};

const GROUP: &str = "certificates.k8s.io";

pub(crate) const FAMILIES: &[Family] =
    &[family("ClusterTrustBundle", &[hub(GROUP, "v1"), hub(GROUP, "v1beta1"), hub(GROUP, "v1alpha1")])];

pub(crate) const RETIRED: &[RetiredVersions] = &[
    row("CertificateSigningRequest", GROUP, BETA).by(request_from_v1beta1),
    row("PodCertificateRequest", GROUP, BETA).by(pod_request_from_v1beta1),
];

/// Converts from v1beta1 to v1, which has only PKCS#10 requests.
pub(crate) fn pod_request_from_v1beta1(request: &mut Map) -> Result<(), ConversionError> {
    if let Some(spec) = object(request, "spec")? {
        spec.remove("pkixPublicKey");
        spec.remove("proofOfPossession");
    }
    Ok(())
}

/// Converts from v1beta1 to v1.
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
