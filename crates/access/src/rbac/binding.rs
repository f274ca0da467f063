//! A binding: its role and its subjects.
//!
//! Bound roles need not exist. The messages about missing ones are here too, in upstream's words.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use keelson_meta::Object;
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;

/// The most faults that a text tells of.
const MOST_FAULTS: usize = 100;

/// A role that is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// True for a cluster role, false for a role of the binding's namespace.
    pub is_cluster_role: bool,
    /// Its name.
    pub name: String,
}

/// A binding of users, groups and service accounts to a role.
pub(super) struct Binding {
    /// `<namespace>/<name>`, or `<name>` of a cluster role binding.
    pub(super) key: Arc<str>,
    pub(super) role: RoleRef,
    /// The key of the role, from [`RoleRef::key`].
    pub(super) role_key: Box<str>,
    pub(super) subjects: Vec<Subject>,
}

/// Whom a binding binds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    User(Box<str>),
    Group(Box<str>),
    ServiceAccount { namespace: Box<str>, name: Box<str> },
}

impl RoleRef {
    /// The role reference of a binding object.
    pub fn of(binding: &Object) -> Self {
        let text = |field: &str| binding.get(&["roleRef", field]).and_then(Value::as_str).unwrap_or_default();
        Self { is_cluster_role: text("kind") == "ClusterRole", name: text("name").to_owned() }
    }

    /// The plural name of its resource.
    pub fn plural(&self) -> &'static str {
        if self.is_cluster_role { "clusterroles" } else { "roles" }
    }

    /// The role's key in the cache, for a binding in a namespace or a cluster role binding.
    pub fn key(&self, namespace: Option<&str>) -> Cow<'_, str> {
        match namespace {
            Some(namespace) if !self.is_cluster_role => Cow::Owned(format!("{namespace}/{}", self.name)),
            _ => Cow::Borrowed(&self.name),
        }
    }

    /// The message of a missing role after a read from the store.
    pub(super) fn not_found(&self) -> String {
        format!("{}.rbac.authorization.k8s.io {} not found", self.plural(), quote(&self.name))
    }

    /// The message of a missing role from an authorizer.
    pub(super) fn not_found_by_authorizer(&self) -> String {
        let singular = if self.is_cluster_role { "clusterrole" } else { "role" };
        format!("{singular}.rbac.authorization.k8s.io {} not found", quote(&self.name))
    }
}

/// Several faults as one text, as upstream writes them, each once; `None` where there is none. The first hundred are told.
pub(super) fn aggregated(faults: impl Iterator<Item = String>) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for fault in faults {
        if texts.contains(&fault) {
            continue;
        }
        if texts.len() == MOST_FAULTS {
            texts.push("and more".to_owned());
            break;
        }
        texts.push(fault);
    }
    match texts.len() {
        0 | 1 => texts.pop(),
        _ => Some(format!("[{}]", texts.join(", "))),
    }
}

impl Binding {
    /// The binding in an object, for a namespace or everywhere.
    pub(super) fn of(key: &Arc<str>, namespace: Option<&str>, object: &Object) -> Self {
        let subjects = object.get(&["subjects"]).and_then(Value::as_array).into_iter().flatten();
        let mut seen = HashSet::new();
        // A subject that is stated again gives nothing more, and a binding of thousands would be sorted in as often.
        let subjects = subjects.filter_map(|subject| Subject::of(subject, namespace));
        let subjects = subjects.filter(|subject| seen.insert(subject.clone())).collect();
        let role = RoleRef::of(object);
        Self { key: key.clone(), role_key: role.key(namespace).into(), role, subjects }
    }
}

impl Subject {
    /// Parses a subject; `None` for an unknown kind, and for a service account without a namespace. Within a namespaced
    /// binding, the namespace defaults to the binding's.
    fn of(subject: &Value, namespace: Option<&str>) -> Option<Self> {
        let text = |field: &str| subject.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text("name").unwrap_or_default().into();
        match text("kind")? {
            "User" => Some(Self::User(name)),
            "Group" => Some(Self::Group(name)),
            "ServiceAccount" => Some(Self::ServiceAccount { namespace: text("namespace").or(namespace)?.into(), name }),
            _ => None,
        }
    }

    /// The user or group name of the subject.
    pub(super) fn user_or_group(&self) -> Cow<'_, str> {
        match self {
            Self::User(name) | Self::Group(name) => Cow::Borrowed(name),
            Self::ServiceAccount { namespace, name } => Cow::Owned(format!("system:serviceaccount:{namespace}:{name}")),
        }
    }
}
