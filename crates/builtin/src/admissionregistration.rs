//! The group `admissionregistration.k8s.io`: configurations of webhooks, and admission policies.
//!
//! The crate `admission` evaluates them.

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
    .deprecations(declaration::DEPRECATIONS)
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .gated_validation(validation::GATED)
    .warnings(validation::warnings)
    .versions(conversion::FAMILIES)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .strategies(strategy::strategies)
    .metadata_rules(|_| MetadataRules::Plain);
