//! The operations of a group version, derived from its description. All forms of OpenAPI are rendered from this model.
//!
//! The model must not know the syntax of OpenAPI. Generated clients rely on the ids and tags.

use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Map, Value, json};
use keelson_resources::Verb;
use keelson_schema::{SchemaRef, Schemas};

use crate::action::{Action, Body, Origin};
use crate::custom;
use crate::definitions::META;
use crate::description::{ResourceDescription, SubresourceDescription, VersionDescription};
use crate::parameters::{self, Parameter};
use crate::schema::kind;

/// A path with its operations.
#[derive(Debug)]
pub(crate) struct PathItem {
    pub(crate) path: String,
    pub(crate) parameters: Vec<&'static Parameter>,
    pub(crate) operations: Vec<Operation>,
}

impl PathItem {
    /// Renders the path. The functions render an operation and a parameter.
    pub(crate) fn described(
        &self,
        operation: impl Fn(&Operation) -> Value,
        parameter: impl Fn(&Parameter) -> Value,
    ) -> Value {
        let mut fields: Map =
            self.operations.iter().map(|each| (each.action.method().to_owned(), operation(each))).collect();
        if !self.parameters.is_empty() {
            fields.insert("parameters", self.parameters.iter().copied().map(parameter).collect::<Value>());
        }
        Value::Object(fields)
    }
}

/// One operation on a path.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    pub(crate) origin: Origin,
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) tag: String,
    /// `None` without a resource.
    pub(crate) kind: Option<GroupVersionKind>,
    /// Lists of parameters. The operation has the parameters of all of them.
    pub(crate) parameters: Vec<&'static [Parameter]>,
    /// True if the resource can be watched, so that its lists can be streams.
    pub(crate) is_watched: bool,
    /// The name of the request body's definition. `None` if there is no body, or if it may have any form.
    pub(crate) body: Option<String>,
    /// The name of the response body's definition.
    pub(crate) answer: Option<String>,
}

impl Operation {
    /// The supported media types of its body.
    pub(crate) fn consumes(&self) -> &'static [&'static str] {
        self.action.body().types(self.origin)
    }

    /// The media types of its responses.
    pub(crate) fn produces(&self) -> &'static [&'static str] {
        match self.action {
            // A list of a resource without watches has the media types of single objects, without those of watch
            // streams.
            Action::List if !self.is_watched => Action::Get.produces(self.origin),
            action => action.produces(self.origin),
        }
    }

    /// Writes the end of its description: responses by status code, with the content under this key, and the Kubernetes
    /// extensions.
    pub(crate) fn end(&self, fields: &mut Map, key: &str, content: &Value) {
        let answer = |(code, description): &(&str, &str)| {
            let mut answer = Map::new();
            answer.insert("description", json!(description));
            answer.insert(key, content.clone());
            ((*code).to_owned(), Value::Object(answer))
        };
        let refused = ("401".to_owned(), json!({ "description": "Unauthorized" }));
        let answers: Map = self.action.codes().iter().map(answer).chain([refused]).collect();
        fields.insert("responses", Value::Object(answers));
        if let Some(action) = self.action.name() {
            fields.insert("x-kubernetes-action", json!(action));
        }
        if let Some(of) = &self.kind {
            fields.insert("x-kubernetes-group-version-kind", kind(of));
        }
    }
}

/// All paths of a group version, sorted.
pub(crate) fn paths(version: &VersionDescription, schemas: &Schemas) -> Vec<PathItem> {
    let naming = Naming::new(version, schemas);
    let mut items: Vec<PathItem> = version.resources.iter().flat_map(|resource| naming.paths_of(resource)).collect();
    items.retain(|item| !item.operations.is_empty());
    items.sort_by(|a, b| a.path.cmp(&b.path));
    items
}

/// The group in the ids of operations, such as `RbacAuthorization`.
pub(crate) fn title(group: &str) -> String {
    let stem = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
    // Ids become identifiers in generated clients, which can't contain hyphens.
    stem.split(['.', '-']).map(capitalized).collect()
}

/// The group version in the ids of operations, such as `AppsV1`.
pub(crate) fn infix(version: &VersionDescription) -> String {
    format!("{}{}", title(&version.group), capitalized(&version.version))
}

/// The tag of the operations of a group, such as `rbacAuthorization`.
pub(crate) fn tag(group: &str) -> String {
    let title = title(group);
    let mut letters = title.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// The actions on one object for some verbs, in displayed order.
fn object_actions(verbs: &[Verb]) -> Vec<Action> {
    let all = [
        (Verb::Get, Action::Get),
        (Verb::Update, Action::Put),
        (Verb::Delete, Action::Delete),
        (Verb::Patch, Action::Patch),
    ];
    all.into_iter().filter(|(verb, _)| verbs.contains(verb)).map(|(_, action)| action).collect()
}

/// The actions on a collection for some verbs, in displayed order.
fn collection_actions(verbs: &[Verb]) -> Vec<Action> {
    let all =
        [(Verb::List, Action::List), (Verb::Create, Action::Post), (Verb::DeleteCollection, Action::DeleteCollection)];
    all.into_iter().filter(|(verb, _)| verbs.contains(verb)).map(|(_, action)| action).collect()
}

/// The names of paths and operations of one group version, and its schemas.
struct Naming<'a> {
    base: String,
    infix: String,
    tag: String,
    schemas: &'a Schemas,
}

/// A resource, and what all its operations share.
struct Subject<'n> {
    resource: &'n ResourceDescription,
    /// The path before the plural.
    prefix: &'static str,
    /// The part of an id before the kind.
    scope: &'static str,
}

impl Subject<'_> {
    fn path_parameters(&self, named: bool) -> impl Iterator<Item = &'static Parameter> {
        let name = named.then_some(&parameters::NAME);
        let namespace = self.resource.namespaced.then_some(&parameters::NAMESPACE);
        name.into_iter().chain(namespace).chain([&parameters::PRETTY])
    }

    fn scoped_kind(&self) -> String {
        format!("{}{}", self.scope, self.resource.kind.kind)
    }
}

impl<'a> Naming<'a> {
    fn new(version: &VersionDescription, schemas: &'a Schemas) -> Self {
        let tag = format!("{}_{}", tag(&version.group), version.version);
        Self { base: format!("/{}", version.path()), infix: infix(version), tag, schemas }
    }

    fn paths_of(&self, resource: &ResourceDescription) -> Vec<PathItem> {
        let (prefix, scope) = if resource.namespaced { ("/namespaces/{namespace}", "Namespaced") } else { ("", "") };
        let subject = Subject { resource, prefix, scope };
        let mut items = self.object_paths(&subject);
        // As in kube-apiserver, the deprecated paths of custom resources are served but not published.
        if resource.allows(Verb::Watch) && resource.custom.is_none() {
            items.extend(self.watch_paths(&subject));
        }
        if resource.namespaced && resource.allows(Verb::List) {
            let words = format!("{}ForAllNamespaces", resource.kind.kind);
            items.push(PathItem {
                path: format!("{}/{}", self.base, resource.plural),
                parameters: vec![&parameters::PRETTY],
                operations: vec![self.operation(Action::List, &words, resource, &resource.kind)],
            });
        }
        items
    }

    /// The paths of the collection, its objects and their subresources.
    fn object_paths(&self, subject: &Subject<'_>) -> Vec<PathItem> {
        let collection = format!("{}{}/{}", self.base, subject.prefix, subject.resource.plural);
        let object = format!("{collection}/{{name}}");
        let scoped = subject.scoped_kind();
        let item = |path: String, named: bool, operations| PathItem {
            path,
            parameters: subject.path_parameters(named).collect(),
            operations,
        };
        let operations = |actions: Vec<Action>| {
            let resource = subject.resource;
            let described = |action| {
                let mut operation = self.operation(action, &scoped, resource, &resource.kind);
                if action == Action::Get {
                    // These parameters don't apply to subresources.
                    operation.parameters.push(parameters::query_of_objects());
                }
                operation
            };
            actions.into_iter().map(described).collect()
        };
        let verbs = &subject.resource.verbs;
        let mut items = vec![
            item(collection, false, operations(collection_actions(verbs))),
            item(object.clone(), true, operations(object_actions(verbs))),
        ];
        for part in &subject.resource.subresources {
            let path = format!("{object}/{}", part.name);
            items.push(item(path, true, self.part_operations(subject, part)));
        }
        items
    }

    /// The deprecated paths where a GET is a watch.
    fn watch_paths(&self, subject: &Subject<'_>) -> Vec<PathItem> {
        let (kind, plural) = (&subject.resource.kind, &subject.resource.plural);
        let scoped = subject.scoped_kind();
        let item = |path: String, path_parameters: Vec<&'static Parameter>, action, words: &str| PathItem {
            path,
            parameters: path_parameters.into_iter().chain(parameters::LIST).collect(),
            operations: vec![self.operation(action, words, subject.resource, kind)],
        };
        let collection = format!("{}/watch{}/{plural}", self.base, subject.prefix);
        let mut items = vec![item(
            collection.clone(),
            subject.path_parameters(false).collect(),
            Action::WatchList,
            &format!("{scoped}List"),
        )];
        if subject.resource.allows(Verb::Get) {
            let path = format!("{collection}/{{name}}");
            items.push(item(path, subject.path_parameters(true).collect(), Action::Watch, &scoped));
        }
        if subject.resource.namespaced {
            let words = format!("{}ListForAllNamespaces", kind.kind);
            let path = format!("{}/watch/{plural}", self.base);
            items.push(item(path, vec![&parameters::PRETTY], Action::WatchList, &words));
        }
        items
    }

    fn part_operations(&self, subject: &Subject<'_>, part: &SubresourceDescription) -> Vec<Operation> {
        let words = format!("{}{}", subject.scoped_kind(), capitalized(&part.name));
        let created = part.verbs.contains(&Verb::Create).then_some(Action::Post);
        object_actions(&part.verbs)
            .into_iter()
            .chain(created)
            .map(|action| self.operation(action, &words, subject.resource, &part.kind))
            .collect()
    }

    /// An operation on objects of a resource or on a subresource, which may have another kind.
    fn operation(
        &self,
        action: Action,
        words: &str,
        resource: &ResourceDescription,
        kind: &GroupVersionKind,
    ) -> Operation {
        let (verb, sentence) = action.words();
        let collection = if action == Action::DeleteCollection { "Collection" } else { "" };
        let origin = if resource.custom.is_some() { Origin::Custom } else { Origin::BuiltIn };
        let meta = |name: &str| Some(format!("{META}{name}"));
        Operation {
            action,
            origin,
            id: format!("{verb}{}{collection}{words}", self.infix),
            description: format!("{sentence} {}", kind.kind),
            tag: self.tag.clone(),
            // For the scale subresource of a custom object, upstream names the kind of the resource; for that of a
            // built-in object, the kind `Scale`.
            kind: Some(if origin == Origin::Custom { resource.kind.clone() } else { kind.clone() }),
            parameters: action.parameters(origin),
            is_watched: resource.allows(Verb::Watch),
            body: match action.body() {
                Body::None => None,
                Body::Object => self.definition(resource, kind),
                Body::Patch => meta("Patch"),
                Body::Options => meta("DeleteOptions"),
            },
            answer: match action {
                Action::Discover | Action::Get | Action::Post | Action::Put | Action::Patch => {
                    self.definition(resource, kind)
                }
                Action::List => self.list_definition(resource, kind),
                Action::Delete if resource.returns_deleted => self.definition(resource, kind),
                Action::Delete | Action::DeleteCollection => meta("Status"),
                Action::Watch | Action::WatchList => meta("WatchEvent"),
            },
        }
    }

    /// The name of the definition of a resource's request kind.
    fn definition(&self, resource: &ResourceDescription, kind: &GroupVersionKind) -> Option<String> {
        if resource.custom.is_some() && *kind == resource.kind {
            return Some(custom::definition_name(kind, self.schemas));
        }
        let schema = self.schemas.kind(&kind.group, &kind.version, &kind.kind);
        schema.and_then(SchemaRef::definition_name).map(str::to_owned)
    }

    fn list_definition(&self, resource: &ResourceDescription, kind: &GroupVersionKind) -> Option<String> {
        if let Some(custom) = &resource.custom {
            return Some(custom::definition_name(&custom::list_kind(resource, custom), self.schemas));
        }
        let schema = self.schemas.kind(&kind.group, &kind.version, &format!("{}List", kind.kind));
        schema.and_then(SchemaRef::definition_name).map(str::to_owned)
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn check(group: &str, version: &str, path: &str, expected: &[(&str, &str)]) {
        let versions = VersionDescription::all(keelson_builtin::catalogue());
        let version = versions.iter().find(|known| known.group == group && known.version == version);
        let items = paths(version.expect("a built-in version"), Schemas::builtin());
        let item = items.into_iter().find(|item| item.path == path).expect("a path of the group");
        let actual: Vec<(String, &str)> =
            item.operations.into_iter().map(|o| (o.id, o.action.name().unwrap_or_default())).collect();
        let expected: Vec<(String, &str)> = expected.iter().map(|(id, action)| ((*id).to_owned(), *action)).collect();
        assert_eq!(actual, expected);
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
    fn the_deprecated_paths_of_watches_are_there() {
        check("", "v1", "/api/v1/watch/pods", &[("watchCoreV1PodListForAllNamespaces", "watchlist")]);
        check("", "v1", "/api/v1/watch/namespaces/{namespace}/pods/{name}", &[("watchCoreV1NamespacedPod", "watch")]);
        check("", "v1", "/api/v1/watch/nodes", &[("watchCoreV1NodeList", "watchlist")]);
    }

    #[test]
    fn an_id_names_one_operation() {
        let mut seen = HashSet::new();
        for version in VersionDescription::all(keelson_builtin::catalogue()) {
            let items = paths(&version, Schemas::builtin());
            for operation in items.into_iter().flat_map(|item| item.operations) {
                assert!(seen.insert(operation.id.clone()), "{}", operation.id);
            }
        }
    }

    #[test]
    fn every_body_and_every_answer_has_a_definition() {
        for version in VersionDescription::all(keelson_builtin::catalogue()) {
            let items = paths(&version, Schemas::builtin());
            for operation in items.into_iter().flat_map(|item| item.operations) {
                let takes = operation.action.body() != Body::None;
                assert_eq!(operation.body.is_some(), takes, "body of {}", operation.id);
                assert!(operation.answer.is_some(), "answer of {}", operation.id);
            }
        }
    }

    #[test]
    fn proxied_subresources_are_not_promised() {
        let versions = VersionDescription::all(keelson_builtin::catalogue());
        let core = versions.iter().find(|version| version.group.is_empty()).expect("the core group");
        for item in paths(core, Schemas::builtin()) {
            for word in ["proxy", "exec", "attach", "portforward", "log"] {
                assert!(!item.path.ends_with(&format!("/{word}")), "{}", item.path);
            }
        }
    }
}
