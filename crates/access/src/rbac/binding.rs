//! A binding: its role and its subjects.
//!
//! Bound roles need not exist. This file has upstream's messages about missing roles.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use keelson_meta::Object;
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;

/// The largest number of faults in one message.
const MOST_FAULTS: usize = 100;

/// A reference to a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// True for a cluster role, false for a role of the binding's namespace.
    pub is_cluster_role: bool,
    /// The name of the role.
    pub name: String,
}

/// A binding of users, groups and service accounts to a role.
pub(super) struct Binding {
    /// `<namespace>/<name>`, or `<name>` for a cluster role binding.
    pub(super) key: Arc<str>,
    pub(super) role: RoleRef,
    /// The key of the role, from [`RoleRef::key`].
    pub(super) role_key: Box<str>,
    pub(super) subjects: Vec<Subject>,
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    User(Box<str>),
    Group(Box<str>),
    ServiceAccount { namespace: Box<str>, name: Box<str> },
}

impl RoleRef {
    /// The role reference of a binding object.
    pub fn from_binding(binding: &Object) -> Self {
        let text = |field: &str| binding.get(&["roleRef", field]).and_then(Value::as_str).unwrap_or_default();
        Self { is_cluster_role: text("kind") == "ClusterRole", name: text("name").to_owned() }
    }

    /// The plural name of the role's resource.
    pub fn plural(&self) -> &'static str {
        if self.is_cluster_role { "clusterroles" } else { "roles" }
    }

    /// The key of the role in the cache. `namespace` is that of the binding; `None` for a cluster role binding.
    pub fn key(&self, namespace: Option<&str>) -> Cow<'_, str> {
        match namespace {
            Some(namespace) if !self.is_cluster_role => Cow::Owned(format!("{namespace}/{}", self.name)),
            _ => Cow::Borrowed(&self.name),
        }
    }

    /// The message about a missing role that was read from the store.
    pub(super) fn not_found(&self) -> String {
        format!("{}.rbac.authorization.k8s.io {} not found", self.plural(), quote(&self.name))
    }

    /// The message about a missing role in a decision.
    pub(super) fn not_found_by_authorizer(&self) -> String {
        let singular = if self.is_cluster_role { "clusterrole" } else { "role" };
        format!("{singular}.rbac.authorization.k8s.io {} not found", quote(&self.name))
    }
}

/// Joins the first hundred faults in upstream's form, without duplicates; `None` if there are none.
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
    /// Parses a binding of a namespace, or a cluster role binding.
    pub(super) fn new(key: &Arc<str>, namespace: Option<&str>, object: &Object) -> Self {
        let subjects = object.get(&["subjects"]).and_then(Value::as_array).into_iter().flatten();
        let mut seen = HashSet::new();
        // A repeated subject has no effect. Without this, a binding with thousands of them would be added thousands of
        // times.
        let subjects = subjects.filter_map(|subject| Subject::from_value(subject, namespace));
        let subjects = subjects.filter(|subject| seen.insert(subject.clone())).collect();
        let role = RoleRef::from_binding(object);
        Self { key: key.clone(), role_key: role.key(namespace).into(), role, subjects }
    }
}

impl Subject {
    /// Parses a subject. Returns `None` for an unknown kind, and for a service account without a namespace. The
    /// namespace defaults to that of the binding.
    fn from_value(subject: &Value, namespace: Option<&str>) -> Option<Self> {
        let text = |field: &str| subject.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text("name").unwrap_or_default().into();
        match text("kind")? {
            "User" => Some(Self::User(name)),
            "Group" => Some(Self::Group(name)),
            "ServiceAccount" => Some(Self::ServiceAccount { namespace: text("namespace").or(namespace)?.into(), name }),
            _ => None,
        }
    }

    /// The name of the user or group.
    pub(super) fn user_or_group(&self) -> Cow<'_, str> {
        match self {
            Self::User(name) | Self::Group(name) => Cow::Borrowed(name),
            Self::ServiceAccount { namespace, name } => Cow::Owned(format!("system:serviceaccount:{namespace}:{name}")),
        }
    }
}
