//! The parts that the API consists of, each with a document of its own in version 3: group versions, and the pages that
//! say what is served.

use keelson_schema::Schemas;

use crate::action::Action;
use crate::definitions::META;
use crate::description::VersionDescription;
use crate::operations::{self, Operation, PathItem};

const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// A part of the API.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'d> {
    /// `/api/`
    CoreVersions,
    /// `/apis/`
    Groups,
    /// `/apis/<group>/`
    Group(&'d str),
    /// `/api/v1/` or `/apis/<group>/<version>/` with all resources.
    Version(&'d VersionDescription),
    /// `/version/`
    CodeVersion,
}

impl Part<'_> {
    /// Its path without slashes at the ends, such as `apis/apps/v1`.
    pub(crate) fn path(self) -> String {
        match self {
            Self::CoreVersions => "api".to_owned(),
            Self::Groups => "apis".to_owned(),
            Self::Group(group) => format!("apis/{group}"),
            Self::Version(version) => version.path(),
            Self::CodeVersion => "version".to_owned(),
        }
    }

    /// Its paths with their operations, ordered by path.
    pub(crate) fn items(self, schemas: &Schemas) -> Vec<PathItem<'_>> {
        let mut items = vec![self.page(schemas)];
        if let Self::Version(version) = self {
            items.extend(operations::paths(version, schemas));
        }
        items
    }

    /// The page that says what is served.
    fn page(self, schemas: &Schemas) -> PathItem<'_> {
        let (id, description, tag, answer) = match self {
            Self::CoreVersions => (
                "getCoreAPIVersions".to_owned(),
                "say which versions the core group is served in",
                "core".to_owned(),
                format!("{META}APIVersions"),
            ),
            Self::Groups => (
                "getAPIVersions".to_owned(),
                "say which groups are served",
                "apis".to_owned(),
                format!("{META}APIGroupList"),
            ),
            Self::Group(group) => (
                format!("get{}APIGroup", operations::title(group)),
                "say which versions the group is served in",
                operations::tag(group),
                format!("{META}APIGroup"),
            ),
            Self::Version(version) => (
                format!("get{}APIResources", operations::infix(version)),
                "say which resources are served",
                format!("{}_{}", operations::tag(&version.group), version.version),
                format!("{META}APIResourceList"),
            ),
            Self::CodeVersion => (
                "getCodeVersion".to_owned(),
                "say which version the server has",
                "version".to_owned(),
                VERSION_INFO.to_owned(),
            ),
        };
        let operation = Operation {
            action: Action::Discover,
            id,
            description: description.to_owned(),
            tag,
            kind: None,
            parameters: Action::Discover.parameters(),
            body: None,
            answer: schemas.definition(&answer),
        };
        PathItem { path: format!("/{}/", self.path()), parameters: vec![], operations: vec![operation] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_an_answer_with_a_definition() {
        let versions = VersionDescription::all(keelson_resources::Catalogue::builtin());
        let groups = versions.iter().map(|version| Part::Group(&version.group));
        let pages = [Part::CoreVersions, Part::Groups, Part::CodeVersion].into_iter();
        for part in pages.chain(groups).chain(versions.iter().map(Part::Version)) {
            let page = part.page(Schemas::builtin());
            assert!(page.operations[0].answer.is_some(), "{}", page.path);
        }
    }
}
