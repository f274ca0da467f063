//! One version of a group with what its documents need.
//!
//! A fragment is shared by every set of descriptions that it is a part of: when one of thousands of versions changes, the others
//! keep what was made of them.

use std::sync::Arc;

use crate::description::VersionDescription;
use crate::document_scope::DocumentScope;
use crate::piece::Piece;

/// A version of a group. Nothing is rendered until it is asked for.
#[derive(Debug)]
pub struct Fragment {
    description: VersionDescription,
    path: String,
    pub(crate) version: Piece,
    /// The page of the whole group, which is the same for each of its versions; that of the first that has one is used.
    pub(crate) group: Piece,
}

impl Fragment {
    /// A version as it is described.
    pub fn new(description: VersionDescription) -> Arc<Self> {
        let path = description.path();
        Arc::new(Self { description, path, version: Piece::default(), group: Piece::default() })
    }

    /// Its path, such as `apis/apps/v1`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn group_name(&self) -> &str {
        &self.description.group
    }

    /// Whether its group has a page, which custom ones have not.
    pub(crate) fn has_group_page(&self) -> bool {
        self.description.is_builtin()
    }

    pub(crate) fn version_part(&self) -> DocumentScope<'_> {
        DocumentScope::Version(&self.description)
    }

    pub(crate) fn group_part(&self) -> DocumentScope<'_> {
        DocumentScope::Group(&self.description.group)
    }
}
