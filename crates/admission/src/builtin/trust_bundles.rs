//! Upstream's plugin ClusterTrustBundleAttest: writing a trust bundle of a signer needs the right `attest` on the
//! signer.
//!
//! A change of only finalizers and owners needs no right, so that garbage collection and migration work.

use futures::future::BoxFuture;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Operation};

use super::certificates::{GROUP, may_use_signer};

/// The metadata fields that garbage collection and migration change.
const OF_COLLECTORS: [&str; 4] = ["finalizers", "ownerReferences", "managedFields", "resourceVersion"];

/// Checks the right to attest for a signer.
#[derive(Debug)]
pub(crate) struct ClusterTrustBundleAttest;

/// A trust bundle without the fields that garbage collection and migration change.
fn essence(bundle: &Object) -> Object {
    let mut bundle = bundle.clone();
    for field in OF_COLLECTORS {
        bundle.remove_meta(field);
    }
    bundle
}

impl Admission for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let resource = &attributes.target.resource;
        let is_bundle = &*resource.group == GROUP && &*resource.plural == "clustertrustbundles";
        let is_written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if is_bundle && is_written { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(bundle) = object else { return Ok(()) };
            let signer = bundle.get(&["spec", "signerName"]).and_then(Value::as_str).unwrap_or_default();
            if signer.is_empty() || attributes.old.is_some_and(|old| essence(old) == essence(bundle)) {
                return Ok(());
            }
            if may_use_signer(attributes.caller, "attest", signer).await {
                return Ok(());
            }
            Err(attributes.refused(format!("user not permitted to attest for signerName \"{signer}\"")))
        })
    }
}
