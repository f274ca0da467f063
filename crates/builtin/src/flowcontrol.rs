//! The group `flowcontrol.apiserver.k8s.io`: flow schemas and priority levels.
//!
//! The crate `fairness` uses them.

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
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .strategies(strategy::strategies);
