//! Finds the definitions that operations need, and the kinds of each definition.
//!
//! Documents are self-contained, so each repeats exactly the definitions that it refers to.

use std::collections::{BTreeSet, HashMap};

use keelson_meta::GroupVersionKind;
use keelson_schema::{SchemaRef, Schemas};

use crate::description::VersionDescription;

/// The prefix of definitions shared by all groups.
pub(crate) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The kinds of definitions that exist in every group version.
const SHARED_KINDS: [&str; 2] = ["DeleteOptions", "WatchEvent"];

/// The kinds of each definition, by the definition's name.
#[derive(Debug)]
pub(crate) struct Kinds(HashMap<String, Vec<GroupVersionKind>>);

impl Kinds {
    pub(crate) fn new(versions: &[VersionDescription], schemas: &Schemas) -> Self {
        let mut kinds: HashMap<String, Vec<GroupVersionKind>> = HashMap::new();
        for (group, version, kind, schema) in schemas.kinds() {
            if let Some(name) = schema.definition_name() {
                kinds.entry(name.to_owned()).or_default().push(gvk(group, version, kind));
            }
        }
        for kind in SHARED_KINDS {
            kinds.insert(format!("{META}{kind}"), in_all_versions(versions, kind));
        }
        Self(kinds)
    }

    /// The kinds of a definition. Most have none.
    pub(crate) fn kinds(&self, definition: &str) -> &[GroupVersionKind] {
        self.0.get(definition).map_or(&[], Vec::as_slice)
    }
}

fn in_all_versions(versions: &[VersionDescription], kind: &str) -> Vec<GroupVersionKind> {
    let mut all: Vec<_> = versions.iter().map(|version| gvk(&version.group, &version.version, kind)).collect();
    all.sort_by(|a, b| (&a.group, &a.version).cmp(&(&b.group, &b.version)));
    all
}

fn gvk(group: &str, version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
}

/// The shared definitions with these names, and all that they refer to, directly or indirectly.
pub(crate) fn needed<'s>(names: &[String], schemas: &'s Schemas) -> BTreeSet<&'s str> {
    let mut waiting: Vec<SchemaRef<'s>> = names.iter().filter_map(|name| schemas.definition(name)).collect();
    let mut found = BTreeSet::new();
    while let Some(schema) = waiting.pop() {
        if let Some(name) = schema.definition_name()
            && !found.insert(name)
        {
            continue;
        }
        waiting.extend(schema.items());
        waiting.extend(schema.fields());
    }
    found
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::document_scope::DocumentScope;

    fn check(path: &str, expected: &[&str], unexpected: &[&str]) {
        let versions = VersionDescription::all(keelson_builtin::catalogue());
        let described = versions.iter().map(DocumentScope::Version).chain([DocumentScope::CodeVersion]);
        let scope = described.into_iter().find(|scope| scope.path() == path).expect("it is described");
        let items = scope.items(Schemas::builtin());
        let found = needed(&scope.references(&items), Schemas::builtin());
        for name in expected {
            assert!(found.contains(name), "{path} lacks {name}");
        }
        for name in unexpected {
            assert!(!found.contains(name), "{path} has {name}");
        }
    }

    #[test]
    fn definitions_are_followed_through_fields_lists_and_maps() {
        check(
            "apis/apps/v1",
            &[
                "io.k8s.api.apps.v1.DeploymentList",
                "io.k8s.api.autoscaling.v1.Scale",
                "io.k8s.api.core.v1.Container",
                "io.k8s.apimachinery.pkg.api.resource.Quantity",
                "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList",
                "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
                "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
                "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
                "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
            ],
            &["io.k8s.api.core.v1.Node", "io.k8s.api.batch.v1.Job"],
        );
        check("version", &["io.k8s.apimachinery.pkg.version.Info"], &["io.k8s.apimachinery.pkg.apis.meta.v1.Status"]);
    }

    #[test]
    fn a_definition_knows_its_kinds() {
        let kinds = Kinds::new(&VersionDescription::all(keelson_builtin::catalogue()), Schemas::builtin());
        assert_eq!(kinds.kinds("io.k8s.api.apps.v1.Deployment"), [gvk("apps", "v1", "Deployment")]);
        assert_eq!(kinds.kinds("io.k8s.api.core.v1.PodList"), [gvk("", "v1", "PodList")]);
        assert!(kinds.kinds("io.k8s.api.core.v1.PodSpec").is_empty());
        let options = kinds.kinds("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
        assert!(options.contains(&gvk("", "v1", "DeleteOptions")));
        assert!(options.contains(&gvk("autoscaling", "v2", "DeleteOptions")));
    }
}
