//! The operations of a group version, read off the catalogue: one model for every form of OpenAPI.
//!
//! Subresources that a kubelet or a pod would answer are left out, since this server does not answer them.

use keelson_meta::GroupVersionKind;
use keelson_resources::{Group, Resource, ServedVersion, Subresource, Verb};

use crate::parameters::{self, Parameter};

/// A path with its operations.
#[derive(Debug)]
pub(crate) struct PathItem {
    pub(crate) path: String,
    pub(crate) parameters: Vec<&'static Parameter>,
    pub(crate) operations: Vec<Operation>,
}

/// One operation on a path.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) tag: String,
    pub(crate) kind: GroupVersionKind,
    /// Lists of parameters, all of which the operation takes.
    pub(crate) parameters: Vec<&'static [Parameter]>,
}

/// What an operation does; each goes with one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Get,
    List,
    Post,
    Put,
    Patch,
    Delete,
    DeleteCollection,
}

/// What stands in a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    Object,
    Patch,
    Options,
}

/// The media types of patches that this server applies.
pub(crate) const PATCH_TYPES: &[&str] = &["application/json-patch+json", "application/merge-patch+json"];
/// The media types of objects.
pub(crate) const OBJECT_TYPES: &[&str] = &["application/json", "application/yaml"];

impl Action {
    /// The key of the operation on its path.
    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Get | Self::List => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete | Self::DeleteCollection => "delete",
        }
    }

    /// The value of `x-kubernetes-action`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    pub(crate) const fn body(self) -> Body {
        match self {
            Self::Get | Self::List => Body::None,
            Self::Post | Self::Put => Body::Object,
            Self::Patch => Body::Patch,
            Self::Delete | Self::DeleteCollection => Body::Options,
        }
    }

    /// The verb in the operation's id and in its description.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Get => ("read", "read the specified"),
            Self::List => ("list", "list or watch objects of kind"),
            Self::Post => ("create", "create"),
            Self::Put => ("replace", "replace the specified"),
            Self::Patch => ("patch", "change parts of the specified"),
            Self::Delete => ("delete", "delete"),
            Self::DeleteCollection => ("delete", "delete a collection of"),
        }
    }

    fn parameters(self) -> Vec<&'static [Parameter]> {
        match self {
            Self::Get => vec![],
            Self::List => vec![parameters::LIST],
            Self::Post | Self::Put => vec![parameters::WRITE],
            Self::Patch => vec![parameters::PATCH],
            Self::Delete => vec![parameters::DELETE],
            Self::DeleteCollection => vec![parameters::LIST, parameters::DELETE],
        }
    }
}

/// The actions on one object for some verbs, in the order in which they are shown.
fn object_actions(verbs: &[Verb]) -> Vec<Action> {
    let all = [
        (Verb::Get, Action::Get),
        (Verb::Update, Action::Put),
        (Verb::Delete, Action::Delete),
        (Verb::Patch, Action::Patch),
    ];
    all.into_iter().filter(|(verb, _)| verbs.contains(verb)).map(|(_, action)| action).collect()
}

/// The actions on a collection for some verbs, in the order in which they are shown.
fn collection_actions(verbs: &[Verb]) -> Vec<Action> {
    let all =
        [(Verb::List, Action::List), (Verb::Create, Action::Post), (Verb::DeleteCollection, Action::DeleteCollection)];
    all.into_iter().filter(|(verb, _)| verbs.contains(verb)).map(|(_, action)| action).collect()
}

/// All paths of a group version, ordered by path.
pub(crate) fn paths(group: &Group, version: &str) -> Vec<PathItem> {
    let naming = Naming::new(group, version);
    let mut items: Vec<PathItem> =
        group.served_in(version).flat_map(|(resource, served)| naming.paths_of(resource, served)).collect();
    items.retain(|item| !item.operations.is_empty());
    items.sort_by(|a, b| a.path.cmp(&b.path));
    items
}

/// How the paths and operations of one group version are named.
struct Naming<'a> {
    base: String,
    /// The group version within an operation's id, such as `AppsV1`.
    infix: String,
    tag: String,
    version: &'a str,
}

impl<'a> Naming<'a> {
    fn new(group: &Group, version: &'a str) -> Self {
        let stem =
            if group.name.is_empty() { "core" } else { group.name.strip_suffix(".k8s.io").unwrap_or(group.name) };
        let title: String = stem.split('.').map(capitalized).collect();
        let tag = format!("{}{}_{version}", title[..1].to_lowercase(), &title[1..]);
        Self { base: group.version_path(version), infix: format!("{title}{}", capitalized(version)), tag, version }
    }

    fn paths_of(&self, resource: &Resource, served: &ServedVersion) -> Vec<PathItem> {
        let (prefix, scope, namespace) = if resource.is_namespaced() {
            ("/namespaces/{namespace}", "Namespaced", Some(&parameters::NAMESPACE))
        } else {
            ("", "", None)
        };
        let collection = format!("{}{prefix}/{}", self.base, resource.plural);
        let object = format!("{collection}/{{name}}");
        let subject = format!("{scope}{}", resource.kind);
        let kind = resource.gvk(self.version);
        let item = |path: String, name: Option<&'static Parameter>, operations: Vec<Operation>| PathItem {
            path,
            parameters: name.into_iter().chain(namespace).chain([&parameters::PRETTY]).collect(),
            operations,
        };
        let operations =
            |actions: Vec<Action>| actions.into_iter().map(|a| self.operation(a, &subject, &kind)).collect();

        let mut items = vec![
            item(collection, None, operations(collection_actions(served.verbs))),
            item(object.clone(), Some(&parameters::NAME), operations(object_actions(served.verbs))),
        ];
        for part in served.subresources.iter().filter(|part| !part.proxied) {
            let path = format!("{object}/{}", part.name);
            items.push(item(path, Some(&parameters::NAME), self.part_operations(resource, part, &subject)));
        }
        if resource.is_namespaced() && served.allows(Verb::List) {
            items.push(PathItem {
                path: format!("{}/{}", self.base, resource.plural),
                parameters: vec![&parameters::PRETTY],
                operations: vec![self.operation(Action::List, &format!("{}ForAllNamespaces", resource.kind), &kind)],
            });
        }
        items
    }

    fn part_operations(&self, resource: &Resource, part: &Subresource, subject: &str) -> Vec<Operation> {
        let kind = part.gvk(resource, self.version);
        let subject = format!("{subject}{}", capitalized(part.name));
        let created = part.allows(Verb::Create).then_some(Action::Post);
        object_actions(part.verbs)
            .into_iter()
            .chain(created)
            .map(|action| self.operation(action, &subject, &kind))
            .collect()
    }

    fn operation(&self, action: Action, subject: &str, kind: &GroupVersionKind) -> Operation {
        let (verb, sentence) = action.words();
        let collection = if action == Action::DeleteCollection { "Collection" } else { "" };
        Operation {
            action,
            id: format!("{verb}{}{collection}{subject}", self.infix),
            description: format!("{sentence} {}", kind.kind),
            tag: self.tag.clone(),
            kind: kind.clone(),
            parameters: action.parameters(),
        }
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use keelson_resources::Catalogue;

    use super::*;

    fn ids(group: &str, version: &str, path: &str) -> Vec<(String, &'static str)> {
        let group = Catalogue::builtin().group(group).expect("a built-in group");
        let items = paths(group, version);
        let item = items.into_iter().find(|item| item.path == path).expect("a path of the group");
        item.operations.into_iter().map(|operation| (operation.id, operation.action.name())).collect()
    }

    fn check(group: &str, version: &str, path: &str, expected: &[(&str, &str)]) {
        let expected: Vec<(String, &str)> = expected.iter().map(|(id, action)| ((*id).to_owned(), *action)).collect();
        assert_eq!(ids(group, version, path), expected);
    }

    #[test]
    fn operations_bear_the_names_that_generated_clients_know() {
        check(
            "",
            "v1",
            "/api/v1/namespaces/{namespace}/pods",
            &[
                ("listCoreV1NamespacedPod", "list"),
                ("createCoreV1NamespacedPod", "post"),
                ("deleteCoreV1CollectionNamespacedPod", "deletecollection"),
            ],
        );
        check("", "v1", "/api/v1/pods", &[("listCoreV1PodForAllNamespaces", "list")]);
        check(
            "rbac.authorization.k8s.io",
            "v1",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}",
            &[
                ("readRbacAuthorizationV1ClusterRole", "get"),
                ("replaceRbacAuthorizationV1ClusterRole", "put"),
                ("deleteRbacAuthorizationV1ClusterRole", "delete"),
                ("patchRbacAuthorizationV1ClusterRole", "patch"),
            ],
        );
        check(
            "",
            "v1",
            "/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            &[("createCoreV1NamespacedPodEviction", "post")],
        );
    }

    #[test]
    fn an_id_names_one_operation() {
        let mut seen = HashSet::new();
        for group in Catalogue::builtin().groups() {
            for version in group.versions {
                for operation in paths(group, version.name).into_iter().flat_map(|item| item.operations) {
                    assert!(seen.insert(operation.id.clone()), "{}", operation.id);
                }
            }
        }
    }

    #[test]
    fn proxied_subresources_are_not_promised() {
        let group = Catalogue::builtin().group("").expect("the core group");
        for item in paths(group, "v1") {
            for word in ["proxy", "exec", "attach", "portforward", "log"] {
                assert!(!item.path.ends_with(&format!("/{word}")), "{}", item.path);
            }
        }
    }
}
