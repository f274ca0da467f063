//! The group `coordination.k8s.io`: leases.
//!
//! Leases are small and are written often, even when the store is full.

pub(crate) mod column_docs;
pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
mod strategy;
pub(crate) mod validation;

use keelson_registry::strategy::MetadataRules;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .deprecations(declaration::DEPRECATIONS)
    .validation(validation::KINDS)
    .versions(conversion::FAMILIES)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .strategies(strategy::strategies)
    .closed_fields(strategy::closed_fields)
    .metadata_rules(|_| MetadataRules::Plain);
