//! The group `batch`: jobs and cron jobs.
//!
//! Unlike those of `apps`, their pods run to completion.

pub(crate) mod column_docs;
pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod defaults;
mod strategy;
pub(crate) mod validation;
mod warnings;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .warnings(warnings::warnings)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .strategies(strategy::strategies)
    .closed_fields(strategy::closed_fields);
