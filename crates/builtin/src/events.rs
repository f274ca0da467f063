//! The group `events.k8s.io`: the newer form of events.
//!
//! Events of both groups are stored in the form of the core group.

pub(crate) mod column_docs;
pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod validation;

use keelson_registry::strategy::MetadataRules;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .validation(validation::KINDS)
    .versions(conversion::FAMILIES)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .metadata_rules(|_| MetadataRules::PlainAndLast);
