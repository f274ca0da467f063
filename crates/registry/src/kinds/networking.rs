//! Ingresses, which take over the class that is the default, and addresses, which are made again while a service has them.
//!
//! Which address a service gets is decided in `allocation`.

use futures::future::BoxFuture;
use keelson_codec::StoredObject;
use keelson_meta::{ApiError, Object};

use super::classes::{has_annotation, newest_default, set_class};
use super::strategy::Strategy;
use crate::allocation;
use crate::config::InherentPlugin;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::ManagedObject;

const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// Where ingresses named their class before they had a field for it.
const CLASS: &str = "kubernetes.io/ingress.class";

/// Gives an ingress that names no class the one that is the default.
fn take_default_class(registry: &Registry, ingress: &mut Object) -> Result<(), ApiError> {
    let named = ingress.get(&["spec", "ingressClassName"]).is_some_and(|class| !class.is_null());
    if named || has_annotation(ingress, CLASS) || !registry.does(InherentPlugin::DefaultIngressClass) {
        return Ok(());
    }
    let class = newest_default(registry, "networking.k8s.io", "ingressclasses", &[IS_DEFAULT])?;
    set_class(ingress, "ingressClassName", class);
    Ok(())
}

/// The strategy of ingresses.
pub(super) struct Ingresses;

impl Strategy for Ingresses {
    fn admit(&self, registry: &Registry, _: &Target, object: &mut Object) -> Result<bool, ApiError> {
        take_default_class(registry, object).map(|()| true)
    }
}

/// The strategy of the objects that say whose an address is.
pub(super) struct Addresses;

impl Strategy for Addresses {
    fn made_again<'a>(
        &'a self,
        registry: &'a Registry,
        last: &'a StoredObject,
    ) -> BoxFuture<'a, Result<Option<ManagedObject>, ApiError>> {
        Box::pin(allocation::made_again(registry, last))
    }
}
