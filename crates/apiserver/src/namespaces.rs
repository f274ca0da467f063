//! The admission plugin that refuses creation in a missing or terminating namespace, by this server's last known state.
//!
//! Namespaces belong to the main server, so a namespace may be deleted while an object is created in it. The main
//! server then empties the namespace again until no object is left.

use futures::future::BoxFuture;
use keelson_meta::{ApiError, GroupResource, Object};
use keelson_registry::{
    Admission, AdmissionAttributes, AttributesNeeded, Mutation, Operation, namespace_is_terminating,
};

use crate::main_server::{NamespaceState, Namespaces};

/// The plugin.
pub(crate) struct NamespaceLifecycle(pub(crate) Namespaces);

impl Admission for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let is_asked = attributes.operation == Operation::Create && attributes.target.is_namespaced();
        if is_asked { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        _: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            let AdmissionAttributes { operation, target, name, .. } = *attributes;
            let namespace = target.namespace.as_deref().filter(|_| target.is_namespaced());
            if let (Operation::Create, Some(namespace)) = (operation, namespace) {
                match self.0.state(namespace).await? {
                    NamespaceState::Active => {}
                    NamespaceState::Terminating => return Err(namespace_is_terminating(target, name, namespace)),
                    NamespaceState::Missing => {
                        let resource = GroupResource { group: String::new(), resource: "namespaces".to_owned() };
                        return Err(ApiError::NotFound { resource, name: namespace.to_owned() });
                    }
                }
            }
            Ok(Mutation::Unchanged)
        })
    }
}

impl std::fmt::Debug for NamespaceLifecycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamespaceLifecycle").finish_non_exhaustive()
    }
}
