//! Rules and selectors that decide which requests a webhook or policy gets.
//!
//! A rule is compared with the group, version and resource of the request. With `matchPolicy: Equivalent` it is also
//! compared with other versions and groups of the same objects. The webhook or policy gets objects in the version that
//! matched.

use std::sync::Arc;

use keelson_meta::json::Value;
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, GroupResource, GroupVersionKind, Object};
use keelson_registry::{AdmissionAttributes, KindVersion, Operation, ServedResource, Target};

/// The API group of admission configuration objects.
const OWN_GROUP: &str = "admissionregistration.k8s.io";

/// The kind of plugin. Some objects are exempt. Otherwise a webhook that refuses all requests could never be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchedPlugin {
    /// A webhook, which never gets admission configuration objects.
    Webhook,
    /// A policy, which never gets policies and their bindings. It never gets reviews either. Otherwise a policy that
    /// refuses all requests would keep clients from reading their own user and rights.
    Policy,
    /// A webhook of a manifest, which gets all objects: an operator can change it without the API.
    ManifestWebhook,
    /// A policy of a manifest, which only gets no reviews.
    ManifestPolicy,
}

impl MatchedPlugin {
    fn sees(self, target: &Target) -> bool {
        match self {
            Self::ManifestWebhook => return true,
            Self::ManifestPolicy | Self::Policy if target.resource.is_review() => return false,
            Self::ManifestPolicy => return true,
            Self::Webhook | Self::Policy => {}
        }
        if &*target.resource.group != OWN_GROUP || !target.resource.is_builtin() {
            return true;
        }
        self == Self::Policy && target.resource.plural.ends_with("webhookconfigurations")
    }
}

/// The resource and kind in which a webhook or policy gets a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// The kind of the object, or of the body of a subresource.
    pub(crate) kind: GroupVersionKind,
}

/// One rule.
#[derive(Debug)]
pub(crate) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// The resources, each with a subresource.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// The object names; empty for all objects.
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Namespaced,
    Cluster,
}

/// The requests that a webhook or policy matches.
#[derive(Debug)]
pub(crate) struct Matching {
    asked: MatchedPlugin,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    takes_equivalents: bool,
    namespaces: Option<LabelSelector>,
    objects: Option<LabelSelector>,
}

impl Rule {
    fn from_value(rule: &Value) -> Self {
        let resources = texts(&rule["resources"]);
        Self {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: resources
                .into_iter()
                .map(|resource| match resource.split_once('/') {
                    Some((resource, below)) => (resource.to_owned(), below.to_owned()),
                    None => (resource, String::new()),
                })
                .collect(),
            scope: match rule["scope"].as_str() {
                Some("Namespaced") => Scope::Namespaced,
                Some("Cluster") => Scope::Cluster,
                _ => Scope::All,
            },
            names: texts(&rule["resourceNames"]),
        }
    }

    /// Returns true if the rule matches this group, version and resource.
    fn matches(&self, attributes: &AdmissionAttributes<'_>, group: &str, version: &str, resource: &str) -> bool {
        let is_one = |values: &[String], value: &str| values.iter().any(|known| known == "*" || known == value);
        let below = attributes.subresource();
        is_one(&self.groups, group)
            && is_one(&self.versions, version)
            && is_one(&self.operations, attributes.operation.as_str())
            && self.resources.iter().any(|(known, known_below)| {
                (known == "*" || known == resource) && (known_below == "*" || known_below == below)
            })
            && self.is_in_scope(attributes)
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }

    fn is_in_scope(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => attributes.target.is_namespaced(),
            Scope::Cluster => !attributes.target.is_namespaced(),
        }
    }
}

impl Matching {
    /// Reads the rules and selectors of a webhook, or of the constraints of a policy.
    pub(crate) fn new(asked: MatchedPlugin, stated: &Value, rules: &str) -> Self {
        let each = |field: &str| stated[field].as_array().into_iter().flatten().map(Rule::from_value).collect();
        let selector = |field: &str| match &stated[field] {
            // An invalid selector selects nothing. Validation refuses new ones.
            selector @ Value::Object(_) => LabelSelector::of_object(selector),
            _ => Some(LabelSelector::everything()),
        };
        Self {
            asked,
            rules: each(rules),
            excluded: each("excludeResourceRules"),
            takes_equivalents: stated["matchPolicy"] != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// Returns true if the rules match the request. Selectors are not checked.
    pub(crate) fn concerns(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        let is_named = || matches_itself(&self.rules, attributes);
        !self.rules.is_empty()
            && self.asked.sees(attributes.target)
            && !self.excludes(attributes)
            && (is_named() || self.find(&self.rules, attributes).is_some())
    }

    /// The endpoint for which the rules match the request, if any. Selectors are not checked.
    pub(crate) fn endpoint(&self, attributes: &AdmissionAttributes<'_>) -> Option<Endpoint> {
        if self.rules.is_empty() || !self.asked.sees(attributes.target) || self.excludes(attributes) {
            return None;
        }
        self.find(&self.rules, attributes)
    }

    /// Returns true if the rules match the request, or if there are no rules.
    pub(crate) fn covers(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        !self.excludes(attributes) && (self.rules.is_empty() || self.find(&self.rules, attributes).is_some())
    }

    fn excludes(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        !self.excluded.is_empty() && self.find(&self.excluded, attributes).is_some()
    }

    fn find(&self, rules: &[Rule], attributes: &AdmissionAttributes<'_>) -> Option<Endpoint> {
        let target = attributes.target;
        if matches_itself(rules, attributes) {
            return Some(endpoint(target, &target.resource, &target.version.name));
        }
        if !self.takes_equivalents {
            return None;
        }
        let others = equivalents(target);
        // Like upstream, earlier rules take precedence.
        rules.iter().find_map(|rule| {
            let mut others = others.iter();
            others
                .find(|(of, version)| rule.matches(attributes, &of.group, &version.name, &of.plural))
                .map(|(resource, version)| endpoint(target, resource, &version.name))
        })
    }

    /// Returns true if the selectors match the object and its namespace.
    ///
    /// # Errors
    /// 404 if the namespace does not exist.
    pub(crate) fn selects(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Object>,
    ) -> Result<bool, ApiError> {
        let (Some(namespaces), Some(objects)) = (&self.namespaces, &self.objects) else { return Ok(false) };
        if !objects.is_empty() {
            let is_selected = |object: Option<&Object>| object.is_some_and(|object| objects.selects(object));
            if !is_selected(object) && !is_selected(attributes.old) {
                return Ok(false);
            }
        }
        if namespaces.is_empty() {
            return Ok(true);
        }
        let of_namespaces = is_namespaces(attributes.target);
        if of_namespaces
            && attributes.subresource().is_empty()
            && matches!(attributes.operation, Operation::Create | Operation::Update)
        {
            return Ok(object.is_some_and(|object| namespaces.selects(object)));
        }
        let Some(name) = namespace_of(attributes) else { return Ok(true) };
        Ok(namespaces.selects(&namespace(attributes, name)?))
    }
}

/// Returns true if a rule matches the request in its own group and version.
fn matches_itself(rules: &[Rule], attributes: &AdmissionAttributes<'_>) -> bool {
    let target = attributes.target;
    let (group, version, plural) = (&*target.resource.group, &*target.version.name, &*target.resource.plural);
    rules.iter().any(|rule| rule.matches(attributes, group, version, plural))
}

/// The namespace of a request: that of the object, or the object itself if it is a namespace.
pub(crate) fn namespace_of<'a>(attributes: &AdmissionAttributes<'a>) -> Option<&'a str> {
    let target = attributes.target;
    if is_namespaces(target) {
        // Like upstream, a namespace belongs to itself, even while it is created.
        return Some(attributes.name).filter(|name| !name.is_empty());
    }
    target.namespace.as_deref().filter(|_| target.is_namespaced())
}

/// A namespace from the cache.
///
/// # Errors
/// 404 if it does not exist.
pub(crate) fn namespace(attributes: &AdmissionAttributes<'_>, name: &str) -> Result<Object, ApiError> {
    let namespaces = attributes.target.surface.target("", "namespaces")?;
    let found = namespaces.collection()?.get(name).map(|entry| entry.object().decode(entry.revision));
    found.ok_or_else(|| {
        let resource = GroupResource { group: String::new(), resource: "namespaces".to_owned() };
        ApiError::NotFound { resource, name: name.to_owned() }
    })
}

pub(crate) fn is_namespaces(target: &Target) -> bool {
    target.resource.group.is_empty() && &*target.resource.plural == "namespaces"
}

/// Other versions and groups of the target's objects: resources with one version each.
fn equivalents(target: &Target) -> Vec<(Arc<ServedResource>, Arc<KindVersion>)> {
    let stored = target.stored().map_or(&[][..], |stored| &stored.layout.resources);
    let others = stored.iter().filter(|other| !other.is(&target.resource));
    let others = others.filter_map(|other| target.surface.resource(&other.group, &other.plural));
    let all = [&target.resource].into_iter().chain(others);
    all.flat_map(|resource| resource.versions().iter().map(|version| (resource.clone(), version.clone())))
        .filter(|(_, version)| !Arc::ptr_eq(version, &target.version))
        .collect()
}

/// The endpoint of a request for this resource and version.
fn endpoint(target: &Target, resource: &ServedResource, version: &str) -> Endpoint {
    let kind = match &target.subresource {
        Some(below) if target.taken_kind() != *target.kind() => below.gvk(resource, version),
        _ => resource.gvk(version),
    };
    Endpoint {
        group: resource.group.to_string(),
        version: version.to_owned(),
        resource: resource.plural.to_string(),
        kind,
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
