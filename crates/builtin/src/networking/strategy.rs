//! Strategies of ingresses, which get the default class, and of IPAddresses, which are recreated while a service has
//! them.
//!
//! `allocation` chooses the addresses of services.

use futures::future::BoxFuture;
use keelson_codec::StoredObject;
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{CreateStrategy, DeleteStrategy, Strategies};
use keelson_registry::{BuiltinStagePlugin, ManagedObject, Registry, Target};

use crate::core::allocation;
use crate::strategy::STATUS_ALONE;
use crate::strategy::classes::{has_annotation, newest_default, set_class};

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "ingresses" => &const { Strategies::ORDINARY.create(&Ingresses) },
        "ipaddresses" => &const { Strategies::ORDINARY.delete(&Addresses) },
        "servicecidrs" => &STATUS_ALONE,
        _ => &Strategies::ORDINARY,
    }
}

const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// The annotation for the class of an ingress that preceded the field.
const CLASS: &str = "kubernetes.io/ingress.class";

/// Sets the default class of an ingress that names none.
fn take_default_class(registry: &Registry, ingress: &mut Object) -> Result<(), ApiError> {
    let named = ingress.get(&["spec", "ingressClassName"]).is_some_and(|class| !class.is_null());
    if named || has_annotation(ingress, CLASS) || !registry.does(BuiltinStagePlugin::DefaultIngressClass) {
        return Ok(());
    }
    let class = newest_default(registry, "networking.k8s.io", "ingressclasses", &[IS_DEFAULT])?;
    set_class(ingress, "ingressClassName", class);
    Ok(())
}

/// The strategy of ingresses.
pub(super) struct Ingresses;

impl CreateStrategy for Ingresses {
    fn admit(&self, registry: &Registry, _: &Target, object: &mut Object) -> Result<bool, ApiError> {
        take_default_class(registry, object).map(|()| true)
    }
}

/// The strategy of IPAddresses.
pub(super) struct Addresses;

impl DeleteStrategy for Addresses {
    fn made_again<'a>(
        &'a self,
        registry: &'a Registry,
        last: &'a StoredObject,
    ) -> BoxFuture<'a, Result<Option<ManagedObject>, ApiError>> {
        Box::pin(allocation::made_again(registry, last))
    }
}
