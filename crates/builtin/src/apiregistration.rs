//! The group `apiregistration.k8s.io`: registrations of aggregated API servers.
//!
//! The crate `aggregator` follows the stored objects.

pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod defaults;
mod strategy;
pub(crate) mod validation;

use keelson_registry::strategy::MetadataRules;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .strategies(strategy::strategies)
    .metadata_rules(|_| MetadataRules::Plain);
