//! Strategy of leases. The leases of the servers themselves are written before anything else.
//!
//! Servers find each other through these leases, so a server cannot publish its storage versions before it has one.

use keelson_registry::Target;
use keelson_registry::strategy::{ClosedFields, FieldPath, Strategies, WriteStrategy};

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "leases" => &const { Strategies::ORDINARY.write(&Leases) },
        _ => &Strategies::ORDINARY,
    }
}

/// The fields of a resource that feature gates guard.
pub(crate) fn closed_fields(plural: &str) -> Vec<ClosedFields> {
    match plural {
        "leases" => {
            const FIELDS: &[FieldPath] = &[&["strategy"], &["preferredHolder"]];
            vec![ClosedFields::new("CoordinatedLeaderElection", &["spec"], FIELDS)]
        }
        _ => Vec::new(),
    }
}

/// The strategy of leases.
pub(super) struct Leases;

impl WriteStrategy for Leases {
    fn keeps_alive(&self) -> bool {
        true
    }

    fn precedes_publication(&self, target: &Target) -> bool {
        target.namespace.as_deref() == Some("kube-system")
    }
}
