//! One version of a group, and its rendered parts of documents.
//!
//! All sets of documents that contain the version share its fragment. When one of thousands of versions changes, the
//! others keep their rendered parts.

use std::sync::Arc;

use crate::description::VersionDescription;
use crate::document_scope::DocumentScope;
use crate::piece::DocumentPart;

/// A version of a group, rendered on demand.
#[derive(Debug)]
pub struct Fragment {
    description: VersionDescription,
    path: String,
    pub(crate) version: DocumentPart,
    /// The page of the whole group. It is equal for all versions, and that of the first version is used.
    pub(crate) group: DocumentPart,
}

impl Fragment {
    /// The fragment of a description.
    pub fn new(description: VersionDescription) -> Arc<Self> {
        let path = description.path();
        Arc::new(Self { description, path, version: DocumentPart::default(), group: DocumentPart::default() })
    }

    /// Its path, such as `apis/apps/v1`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn group_name(&self) -> &str {
        &self.description.group
    }

    /// Returns true if its group has a page. Custom groups have none.
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
