//! Allocation of cluster addresses and node ports for services.
//!
//! A service has its addresses in `clusterIPs` and its ports in `nodePort`. Each address and port is a key in the
//! store, created and deleted in the transaction that writes the service. So no two services have the same one,
//! whichever servers write them. The key of an address is that of its IPAddress object. The keys of ports are not
//! served.

mod addresses;
mod counts;
mod families;
mod ports;
mod spec;

use keelson_meta::field_error::FieldError;
use keelson_meta::{ApiError, Object};
use keelson_registry::{AssociatedWrites, Registry, Target, store_error};
use keelson_storage::{KeyValue, StoreKey};

pub(crate) use addresses::made_again;
pub use counts::{ADDRESS_ALLOCATIONS, AddressUse, Allocations, PORT_ALLOCATIONS, Scope, address_use};
pub(crate) use spec::{Spec, needs_addresses, needs_health_check, needs_node_ports, spec, spec_mut};

/// Deletes a key if the stored value names this service. A client may have deleted the key, and another service may
/// have created it since. A service of an older release may never have had it.
///
/// # Errors
/// The store cannot be read.
async fn give_back(
    registry: &Registry,
    key: StoreKey,
    is_own: impl Fn(&KeyValue) -> bool,
    companions: &mut AssociatedWrites,
) -> Result<(), ApiError> {
    let found = registry.store().get(&key).await.map_err(store_error)?;
    if let Some(found) = found.filter(is_own) {
        companions.give_back(found);
    }
    Ok(())
}

/// The error for a range without free addresses or ports.
const FULL: &str = "range is full";

/// Allocates the addresses and ports that a service needs, writes them into the service, and releases those that it no
/// longer needs. For a service that is invalid in itself nothing is allocated; validation reports it.
///
/// # Errors
/// 422 if the service requests an address or port that it cannot have, 500 if none is free.
pub(crate) async fn accompany_service(
    registry: &Registry,
    target: &Target,
    before: Option<&Object>,
    after: Option<&mut Object>,
    attempt: usize,
) -> Result<AssociatedWrites, ApiError> {
    let mut companions = AssociatedWrites::default();
    let Some(after) = after else {
        if let Some((before, held)) = before.and_then(|before| Some((before, spec(before)?))) {
            let service_ref = ServiceRef::new(target, before);
            addresses::give_back(registry, &service_ref, held, None, &mut companions).await?;
            ports::give_back(registry, &service_ref, held, None, &mut companions).await?;
        }
        return Ok(companions);
    };
    if target.subresource_name() == Some("status") {
        return Ok(companions);
    }
    if !target.version.rules().alone(before, after).is_empty() {
        return Ok(companions);
    }
    let service_ref = ServiceRef::new(target, after);
    let Some(wanted) = spec_mut(after) else { return Ok(companions) };
    let held = before.and_then(spec);
    families::fill(&registry.config().service_ranges, held, wanted).map_err(|errors| service_ref.refuse(errors))?;
    addresses::assign(registry, &service_ref, held, wanted, &mut companions).await?;
    ports::assign(registry, &service_ref, held, wanted, attempt, &mut companions).await?;
    if let Some(held) = held {
        addresses::give_back(registry, &service_ref, held, Some(wanted), &mut companions).await?;
        ports::give_back(registry, &service_ref, held, Some(wanted), &mut companions).await?;
    }
    Ok(companions)
}

/// The identity of the service, for errors and for the stored values.
struct ServiceRef<'a> {
    target: &'a Target,
    namespace: String,
    name: String,
    uid: String,
}

impl<'a> ServiceRef<'a> {
    fn new(target: &'a Target, service: &Object) -> Self {
        let [namespace, name, uid] = [service.namespace(), service.name(), service.uid()].map(str::to_owned);
        Self { target, namespace, name, uid }
    }

    fn refuse(&self, errors: Vec<FieldError>) -> ApiError {
        ApiError::Invalid { kind: self.target.group_kind(), name: self.name.clone(), errors }
    }
}
