//! The group `node.k8s.io`: runtime classes.
//!
//! A runtime class names a handler of the container runtime.

pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod defaults;
pub(crate) mod validation;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .retired(conversion::RETIRED)
    .columns(columns::printer);
