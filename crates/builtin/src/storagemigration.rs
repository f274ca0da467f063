//! The group `storagemigration.k8s.io`: storage version migrations.
//!
//! The crate `controllers` migrates the objects.

pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
mod strategy;
pub(crate) mod validation;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .validation(validation::KINDS)
    .versions(conversion::FAMILIES)
    .retired(conversion::RETIRED)
    .deprecations(declaration::DEPRECATIONS)
    .columns(columns::printer)
    .strategies(strategy::strategies);
