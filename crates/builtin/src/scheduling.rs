//! The group `scheduling.k8s.io`: priority classes, workloads and groups of pods.
//!
//! Pods and groups get the priority of their class when they are created. The scheduler is another program.

pub(crate) mod column_docs;
pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod defaults;
pub(crate) mod strategy;
pub(crate) mod validation;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .versions(conversion::FAMILIES)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .strategies(strategy::strategies)
    .closed_fields(strategy::closed_fields);
