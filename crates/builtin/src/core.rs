//! The core group: pods, services, nodes, volumes and others.
//!
//! This module also has the rules for pod templates, which other groups share.

pub(crate) mod allocation;
pub(crate) mod column_docs;
pub(crate) mod columns;
mod declaration;
pub(crate) mod defaults;
pub(crate) mod older;
pub(crate) mod strategy;
pub(crate) mod validation;
pub(crate) mod warnings;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .deprecations(declaration::DEPRECATIONS)
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .warnings(warnings::warnings)
    .columns(columns::printer)
    .strategies(strategy::strategies)
    .closed_fields(strategy::closed_fields)
    .metadata_rules(strategy::metadata_rules);
