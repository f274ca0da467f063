//! The group `autoscaling`: horizontal autoscalers.
//!
//! `Scale`, the body of the subresource `scale` of workloads, is a kind of this group too.

pub(crate) mod column_docs;
pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod defaults;
pub(crate) mod validation;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .defaults(defaults::defaults)
    .validation(validation::KINDS)
    .gated_validation(validation::GATED)
    .versions(conversion::FAMILIES)
    .columns(columns::printer);
