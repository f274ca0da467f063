//! Allocation for services: cluster addresses and node ports.
//!
//! What a service holds is read off it: its `clusterIPs` and the ports of its nodes. Each address and each port is a key in
//! the store, taken and given back in the transaction that writes the service, so that no two services ever have the same,
//! whichever servers make them. The key of an address is its IPAddress object; ports have keys that no client sees.

mod addresses;
mod counts;
mod families;
mod ports;
mod spec;

use keelson_meta::field_error::FieldError;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Companions, Registry, Target, store_error};
use keelson_storage::{KeyValue, StoreKey};

pub(crate) use addresses::made_again;
pub use counts::{ADDRESS_ALLOCATIONS, AddressUse, Allocations, PORT_ALLOCATIONS, Scope, address_use};
pub(crate) use spec::{Spec, needs_addresses, needs_health_check, needs_node_ports, spec, spec_mut};

/// Gives back a key if what is stored there shows that it is this service's. Somebody may have deleted it, and another service got
/// it since; so may one that an older release wrote without taking it.
///
/// # Errors
/// When the store can't be read.
async fn give_back(
    registry: &Registry,
    key: StoreKey,
    is_own: impl Fn(&KeyValue) -> bool,
    companions: &mut Companions,
) -> Result<(), ApiError> {
    let found = registry.store().get(&key).await.map_err(store_error)?;
    if let Some(found) = found.filter(is_own) {
        companions.give_back(found);
    }
    Ok(())
}

/// What somebody who asks for more than there is reads in an error.
const FULL: &str = "range is full";

/// Takes what a service needs and does not have, writes it into the service, and gives back what it no longer needs. Of a service
/// whose addresses make no sense by themselves nothing is taken: validation says so.
///
/// # Errors
/// 422 when it asks for an address or port that it can't have, 500 when there is none left.
pub(crate) async fn accompany_service(
    registry: &Registry,
    target: &Target,
    before: Option<&Object>,
    after: Option<&mut Object>,
    attempt: usize,
) -> Result<Companions, ApiError> {
    let mut companions = Companions::default();
    let Some(after) = after else {
        if let Some((before, held)) = before.and_then(|before| Some((before, spec(before)?))) {
            let service_ref = ServiceRef::of(target, before);
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
    let service_ref = ServiceRef::of(target, after);
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

/// Which service it is, for errors and for what is written about it.
struct ServiceRef<'a> {
    target: &'a Target,
    namespace: String,
    name: String,
    uid: String,
}

impl<'a> ServiceRef<'a> {
    fn of(target: &'a Target, service: &Object) -> Self {
        let [namespace, name, uid] = [service.namespace(), service.name(), service.uid()].map(str::to_owned);
        Self { target, namespace, name, uid }
    }

    fn refuse(&self, errors: Vec<FieldError>) -> ApiError {
        ApiError::Invalid { kind: self.target.group_kind(), name: self.name.clone(), errors }
    }
}
