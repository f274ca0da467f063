//! Upstream's plugin PersistentVolumeClaimResize: a claim may grow only if its class permits that.
//!
//! Validation checks that a claim is bound and does not shrink.

use futures::future::BoxFuture;
use keelson_meta::json::Value;
use keelson_meta::{Amount, ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Operation};

use super::reading::is_about;
use super::stored::StoredObjects;

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const REFUSAL: &str = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
    support resize";

/// Checks claims that request more storage.
#[derive(Debug)]
pub(crate) struct PersistentVolumeClaimResize;

fn size(claim: &Object) -> Amount {
    claim.get(&["spec", "resources", "requests", "storage"]).and_then(Amount::parse).unwrap_or_default()
}

/// The name of the class of a claim.
fn class(claim: &Object) -> &str {
    let stated = claim.get(&["metadata", "annotations", CLASS]).or_else(|| claim.get(&["spec", "storageClassName"]));
    stated.and_then(Value::as_str).unwrap_or_default()
}

impl Admission for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let is_claim = is_about(attributes, "persistentvolumeclaims");
        let is_changed = attributes.operation == Operation::Update && attributes.subresource().is_empty();
        if is_claim && is_changed { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (Some(new), Some(old)) = (object, attributes.old) else { return Ok(()) };
            if size(new).quantity() <= size(old).quantity() {
                return Ok(());
            }
            if old.get(&["status", "phase"]).and_then(Value::as_str) != Some("Bound") {
                return Err(attributes.refused("Only bound persistent volume claims can be expanded"));
            }
            let name = class(new);
            let classes = StoredObjects::new(attributes.registry, "storage.k8s.io", "storageclasses")?;
            let found = Some(name).filter(|name| !name.is_empty() && *name == class(old));
            let found = found.and_then(|name| classes.object(name));
            let expands = found.and_then(|class| class.get(&["allowVolumeExpansion"]).and_then(Value::as_bool));
            if expands == Some(true) { Ok(()) } else { Err(attributes.refused(REFUSAL)) }
        })
    }
}
