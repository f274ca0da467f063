//! The group `policy`: disruption budgets.
//!
//! `Eviction`, the body of the subresource `eviction` of pods, is a kind of this group too.

pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod validation;

use keelson_registry::strategy::MetadataRules;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .validation(validation::KINDS)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .metadata_rules(|_| MetadataRules::PlainAndLast);
