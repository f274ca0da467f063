//! The group `apiextensions.k8s.io`: CustomResourceDefinitions.
//!
//! The crate `extensions` serves the custom resources.

pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod defaults;
mod strategy;
pub(crate) mod validation;
mod warnings;

use keelson_meta::Release;
use keelson_registry::strategy::MetadataRules;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .warnings(warnings::warnings)
    .retired(conversion::RETIRED)
    .later_columns(Release::V1_37, columns::printer)
    .strategies(strategy::strategies)
    .metadata_rules(|_| MetadataRules::Plain);
