//! The group `lifecycle.k8s.io`: evictions and requests for them.
//!
//! Controllers outside of this server evict pods.

mod declaration;
mod strategy;
pub(crate) mod validation;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup =
    BuiltinGroup::new(declaration::DECLARATION).validation(validation::KINDS).strategies(strategy::strategies);
