//! Upstream's plugin NamespaceExists: refuses writes and deletions in a namespace that does not exist. It does so even
//! if NamespaceLifecycle is off.
//!
//! NamespaceLifecycle refuses new objects in a namespace that is being deleted.

use futures::future::BoxFuture;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Operation};

use crate::matching::namespace;

/// Refuses writes in namespaces that do not exist.
#[derive(Debug)]
pub(crate) struct NamespaceExists;

impl Admission for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let is_inside = attributes.target.is_namespaced() && attributes.target.namespace.is_some();
        if is_inside && attributes.operation != Operation::Connect {
            AttributesNeeded::Object
        } else {
            AttributesNeeded::None
        }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        _object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(name) = attributes.target.namespace.as_deref() else { return Ok(()) };
            if namespace(attributes, name).is_ok() {
                return Ok(());
            }
            // Another server may have created the namespace a moment ago.
            attributes.registry.catch_up().await?;
            namespace(attributes, name).map(drop)
        })
    }
}
