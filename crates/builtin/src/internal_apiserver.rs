//! The group `internal.apiserver.k8s.io`: storage versions.
//!
//! Each API server publishes in them the version that it stores for each resource.

pub(crate) mod column_docs;
pub(crate) mod columns;
mod declaration;
mod strategy;
pub(crate) mod validation;

use keelson_registry::strategy::MetadataRules;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .validation(validation::KINDS)
    .columns(columns::printer)
    .strategies(strategy::strategies)
    .metadata_rules(|_| MetadataRules::Plain);
