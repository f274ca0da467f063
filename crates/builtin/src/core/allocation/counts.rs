//! Counts of addresses and node ports for metrics: how many are taken, and how often services asked for one.
//!
//! An allocation is counted when it is chosen. Dry runs, and choices that another service was faster to take, count too.

use std::sync::LazyLock;

use keelson_meta::ApiError;
use keelson_meta::metering::{Count, Series};
use keelson_registry::Registry;

use super::addresses::{GROUP, ranges};

/// Allocations of addresses, by range and whether the service named the address.
pub static ADDRESS_ALLOCATIONS: LazyLock<Series<(String, Scope), Allocations>> =
    LazyLock::new(|| Series::new(Allocations::new));
/// Allocations of node ports, by whether the service named the port.
pub static PORT_ALLOCATIONS: [Allocations; 2] = [Allocations::new(), Allocations::new()];

/// Whether a service named what it wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// It did.
    Static,
    /// Any would do.
    Dynamic,
}

impl Scope {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Static, Self::Dynamic];

    /// The label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        }
    }
}

/// Allocations of one kind.
#[derive(Debug, Default)]
pub struct Allocations {
    /// Those that succeeded.
    pub allocated: Count,
    /// Those that failed.
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

/// Notes an allocation of an address out of a range.
pub(super) fn note_address(range: String, scope: Scope, succeeded: bool) {
    if let Some(allocations) = ADDRESS_ALLOCATIONS.of(&(range.clone(), scope), || (range, scope)) {
        allocations.note(succeeded);
    }
}

/// Notes an allocation of a node port.
pub(super) fn note_port(scope: Scope, succeeded: bool) {
    PORT_ALLOCATIONS[scope as usize].note(succeeded);
}

/// The addresses of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressUse {
    /// The range.
    pub range: String,
    /// How many are taken.
    pub taken: u64,
    /// How many are left.
    pub left: f64,
}

/// The addresses of each range, as the cache has them. Cost: linear in the number of addresses that are taken.
///
/// # Errors
/// 500 when the resources are not served.
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
