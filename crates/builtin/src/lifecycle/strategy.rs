//! Strategy of evictions and of requests for them.
//!
//! Writes of the status do not change the metadata.

use keelson_registry::strategy::Strategies;

use crate::strategy::STATUS_ALONE;

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "evictionrequests" | "evictions" => &STATUS_ALONE,
        _ => &Strategies::ORDINARY,
    }
}
