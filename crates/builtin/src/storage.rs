//! The group `storage.k8s.io`: storage classes, CSI drivers, attachments.
//!
//! Volumes and their claims are in the core group.

pub(crate) mod column_docs;
pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod defaults;
pub(crate) mod strategy;
pub(crate) mod validation;
mod warnings;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .deprecations(declaration::DEPRECATIONS)
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .warnings(warnings::warnings)
    .versions(conversion::FAMILIES)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .strategies(strategy::strategies)
    .closed_fields(strategy::closed_fields);
