//! The group `resource.k8s.io`: devices, and claims on them.
//!
//! Some versions differ in their fields, so objects are converted.

pub(crate) mod column_docs;
pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod defaults;
mod strategy;
pub(crate) mod validation;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .deprecations(declaration::DEPRECATIONS)
    .defaults(defaults::defaults)
    .validation(validation::KINDS)
    .versions(conversion::FAMILIES)
    .columns(columns::printer)
    .strategies(strategy::strategies)
    .closed_fields(strategy::closed_fields);
