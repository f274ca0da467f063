//! The parts of the API that have a document: group versions, and the pages that list the served API.
//!
//! Each part has its own version 3 document, and adds paths and definitions to the version 2 document.

use keelson_meta::json::{Value, json};
use keelson_schema::Schemas;

use crate::action::{Action, Origin};
use crate::custom::{self, CustomKind};
use crate::definitions::META;
use crate::description::{ResourceDescription, VersionDescription};
use crate::operations::{self, Operation, PathItem};
use crate::schema::Dialect;
use crate::shared::SharedDefinitions;

const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// A part of the API.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DocumentScope<'d> {
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

impl<'d> DocumentScope<'d> {
    /// The path of the document without slashes at its ends, such as `apis/apps/v1`.
    pub(crate) fn path(self) -> String {
        match self {
            Self::CoreVersions => "api".to_owned(),
            Self::Groups => "apis".to_owned(),
            Self::Group(group) => format!("apis/{group}"),
            Self::Version(version) => version.path(),
            Self::CodeVersion => "version".to_owned(),
        }
    }

    /// Returns true for a built-in part. There may be thousands of other parts.
    pub(crate) fn is_builtin(self) -> bool {
        match self {
            Self::CoreVersions | Self::Groups | Self::Group(_) | Self::CodeVersion => true,
            Self::Version(version) => version.is_builtin(),
        }
    }

    /// The `info` object of its document.
    pub(crate) fn info(self, shared: &SharedDefinitions) -> Value {
        if self.is_builtin() {
            shared.info()
        } else {
            json!({ "title": "Kubernetes CRD Swagger", "version": "v0.1.0" })
        }
    }

    /// Its paths with their operations, sorted.
    pub(crate) fn items(self, schemas: &Schemas) -> Vec<PathItem> {
        let mut items: Vec<PathItem> = self.is_builtin().then(|| self.page(schemas)).into_iter().collect();
        if let Self::Version(version) = self {
            items.extend(operations::paths(version, schemas));
        }
        items
    }

    /// The definitions that only this document has, by name. All other definitions are shared with other documents.
    ///
    /// Cost: parsing the schemas of its custom kinds.
    pub(crate) fn own_definitions(self, dialect: Dialect, schemas: &Schemas) -> Vec<(String, Value)> {
        let definitions = |(resource, custom)| custom::definitions(resource, custom, dialect, schemas);
        self.custom_kinds().flat_map(definitions).collect()
    }

    /// The custom kinds of the document, each with its resource.
    fn custom_kinds(self) -> impl Iterator<Item = (&'d ResourceDescription, &'d CustomKind)> {
        let resources = match self {
            Self::Version(version) => version.resources.as_slice(),
            Self::CoreVersions | Self::Groups | Self::Group(_) | Self::CodeVersion => &[],
        };
        resources.iter().filter_map(|resource| Some((resource, resource.custom.as_ref()?)))
    }

    /// The names of its own definitions, each with its kind.
    ///
    /// Cost: no schema is parsed.
    pub(crate) fn own_names(
        self,
        schemas: &Schemas,
    ) -> impl Iterator<Item = (String, (&'d ResourceDescription, &'d CustomKind))> {
        self.custom_kinds().flat_map(|(resource, custom)| {
            custom::definition_names(resource, custom, schemas).map(|name| (name, (resource, custom)))
        })
    }

    /// The names of shared definitions that these operations or own definitions refer to.
    pub(crate) fn references(self, items: &[PathItem]) -> Vec<String> {
        let operations = items.iter().flat_map(|item| &item.operations);
        let names = operations.flat_map(|operation| [&operation.body, &operation.answer]).flatten().cloned();
        let is_custom =
            matches!(self, Self::Version(version) if version.resources.iter().any(|it| it.custom.is_some()));
        let of_own = custom::SHARED.iter().filter(|_| is_custom).map(|name| format!("{META}{name}"));
        names.chain(of_own).collect()
    }

    /// The page that lists the served API.
    fn page(self, schemas: &Schemas) -> PathItem {
        let (id, description, tag, answer) = match self {
            Self::CoreVersions => (
                "getCoreAPIVersions".to_owned(),
                "get the versions of the core group",
                "core".to_owned(),
                format!("{META}APIVersions"),
            ),
            Self::Groups => {
                ("getAPIVersions".to_owned(), "get the served groups", "apis".to_owned(), format!("{META}APIGroupList"))
            }
            Self::Group(group) => (
                format!("get{}APIGroup", operations::title(group)),
                "get the served versions of the group",
                operations::tag(group),
                format!("{META}APIGroup"),
            ),
            Self::Version(version) => (
                format!("get{}APIResources", operations::infix(version)),
                "get the served resources",
                format!("{}_{}", operations::tag(&version.group), version.version),
                format!("{META}APIResourceList"),
            ),
            Self::CodeVersion => (
                "getCodeVersion".to_owned(),
                "get the version of the server",
                "version".to_owned(),
                VERSION_INFO.to_owned(),
            ),
        };
        let origin = if matches!(self, Self::CodeVersion) { Origin::Server } else { Origin::BuiltIn };
        let operation = Operation {
            action: Action::Discover,
            origin,
            id,
            description: description.to_owned(),
            tag,
            kind: None,
            parameters: Action::Discover.parameters(origin),
            is_watched: false,
            body: None,
            answer: schemas.definition(&answer).map(|_| answer),
        };
        PathItem { path: format!("/{}/", self.path()), parameters: vec![], operations: vec![operation] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_an_answer_with_a_definition() {
        let versions = VersionDescription::all(keelson_builtin::catalogue());
        let groups = versions.iter().map(|version| DocumentScope::Group(&version.group));
        let pages = [DocumentScope::CoreVersions, DocumentScope::Groups, DocumentScope::CodeVersion].into_iter();
        for scope in pages.chain(groups).chain(versions.iter().map(DocumentScope::Version)) {
            let page = scope.page(Schemas::builtin());
            assert!(page.operations[0].answer.is_some(), "{}", page.path);
        }
    }
}
