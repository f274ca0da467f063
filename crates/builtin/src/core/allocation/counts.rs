//! Counts of addresses and node ports for metrics: those in use, and the allocations.
//!
//! An allocation is counted when the address or port is chosen. Dry runs count too, and choices that conflict with
//! another service.

use std::sync::LazyLock;

use keelson_meta::ApiError;
use keelson_meta::metering::{Count, Series};
use keelson_registry::Registry;

use super::addresses::{GROUP, ranges};

/// Allocations of addresses, by range and scope.
pub static ADDRESS_ALLOCATIONS: LazyLock<Series<(String, Scope), Allocations>> =
    LazyLock::new(|| Series::new(Allocations::new));
/// Allocations of node ports, by scope.
pub static PORT_ALLOCATIONS: [Allocations; 2] = [Allocations::new(), Allocations::new()];

/// The scope of an allocation, as in upstream's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The service requested a particular address or port.
    Static,
    /// Any free address or port was allocated.
    Dynamic,
}

impl Scope {
    /// Both scopes.
    pub const ALL: [Self; 2] = [Self::Static, Self::Dynamic];

    /// The label value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        }
    }
}

/// The allocations of one kind.
#[derive(Debug, Default)]
pub struct Allocations {
    /// The number of successful allocations.
    pub allocated: Count,
    /// The number of failed allocations.
    pub failed: Count,
}

impl Allocations {
    const fn new() -> Self {
        Self { allocated: Count::new(), failed: Count::new() }
    }

    fn note(&self, succeeded: bool) {
        if succeeded { self.allocated.increment() } else { self.failed.increment() }
    }
}

/// Counts an allocation of an address from a range.
pub(super) fn note_address(range: String, scope: Scope, succeeded: bool) {
    if let Some(allocations) = ADDRESS_ALLOCATIONS.get_or_create(&(range.clone(), scope), || (range, scope)) {
        allocations.note(succeeded);
    }
}

/// Counts an allocation of a node port.
pub(super) fn note_port(scope: Scope, succeeded: bool) {
    PORT_ALLOCATIONS[scope as usize].note(succeeded);
}

/// The use of the addresses in a range.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressUse {
    /// The range.
    pub range: String,
    /// The number of allocated addresses.
    pub taken: u64,
    /// The number of free addresses.
    pub left: f64,
}

/// The use of each range, from the cache. Cost: linear in the number of allocated addresses.
///
/// # Errors
/// 500 if the resources are not served.
pub fn address_use(registry: &Registry) -> Result<Vec<AddressUse>, ApiError> {
    let ranges = ranges(registry)?;
    let mut taken = vec![0_u64; ranges.len()];
    let addresses = registry.collection(&registry.target(GROUP, "ipaddresses")?)?.snapshot();
    for address in addresses.range("", None).filter_map(|entry| entry.name().parse().ok()) {
        for (range, taken) in ranges.iter().zip(&mut taken) {
            *taken += u64::from(range.holds(address));
        }
    }
    let of = |(range, taken): (&keelson_registry::AddressRange, u64)| {
        let left = (range.available() as f64 - taken as f64).max(0.);
        AddressUse { range: range.to_string(), taken, left }
    };
    Ok(ranges.iter().zip(taken).map(of).collect())
}
