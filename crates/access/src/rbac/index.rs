//! Indexes roles by name and bindings by subject.
//!
//! A decision looks up the bindings of the user and of each of its groups: the cluster-wide ones and those of the
//! namespace. So its cost depends on these bindings only. A role that several of them bind is checked once.

use std::sync::{Arc, OnceLock};

use hashbrown::{HashMap, HashSet};
use keelson_cache::Entry;
use keelson_meta::Object;

use super::HeldRules;
use super::binding::{Binding, RoleRef, Subject, aggregated};
use super::role::Role;
use super::sieve::RulePrefilter;
use crate::authorize::{Attributes, Decision, Verdict};
use crate::follow::{self, decoded};
use crate::user::User;

/// A kind of stored object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ClusterRole,
    Role,
    ClusterRoleBinding,
    RoleBinding,
}

/// The key in the cache: `<namespace>/<name>`, or `<name>` for cluster-scoped objects.
type Key = Arc<str>;

/// A large role that must be decoded before the decision.
#[derive(Clone)]
pub(super) struct UndecodedRole(pub(super) Arc<Role>);

/// Roles and bindings.
#[derive(Default)]
pub(super) struct Index {
    cluster_roles: HashMap<Key, Arc<Role>>,
    roles: HashMap<Key, Arc<Role>>,
    everywhere: Bindings,
    /// The bindings in namespaces, by namespace.
    within: HashMap<Box<str>, Bindings>,
}

/// The bindings of a namespace, or the cluster-wide ones.
#[derive(Default)]
struct Bindings {
    known: HashMap<Key, Arc<Binding>>,
    users: HashMap<Box<str>, Vec<Bound>>,
    groups: HashMap<Box<str>, Vec<Bound>>,
}

/// A binding, with the subject for which it is in the index.
#[derive(Clone)]
struct Bound {
    binding: Arc<Binding>,
    subject: usize,
    /// The text of the reason, built at its first use.
    reason: OnceLock<Arc<str>>,
}

impl follow::Index for Index {
    type Kind = Kind;

    fn clear(&mut self, kind: Kind) {
        self.forget_all(kind);
    }

    fn put(&mut self, kind: Kind, entry: &Entry) {
        match kind {
            Kind::ClusterRole | Kind::Role => {
                self.put_role(kind, &entry.key, Role::stored(&entry.object(), entry.revision));
            }
            Kind::ClusterRoleBinding | Kind::RoleBinding => self.put_binding(kind, &entry.key, &decoded(entry)),
        }
    }

    fn remove(&mut self, kind: Kind, key: &str) {
        self.remove(kind, key);
    }
}

impl Index {
    /// Removes all objects of a kind.
    fn forget_all(&mut self, kind: Kind) {
        match kind {
            Kind::ClusterRole => self.cluster_roles.clear(),
            Kind::Role => self.roles.clear(),
            Kind::ClusterRoleBinding => self.everywhere = Bindings::default(),
            Kind::RoleBinding => self.within.clear(),
        }
    }

    fn put_role(&mut self, kind: Kind, key: &Key, role: Role) {
        let roles = if kind == Kind::Role { &mut self.roles } else { &mut self.cluster_roles };
        roles.insert(key.clone(), Arc::new(role));
    }

    fn put_binding(&mut self, kind: Kind, key: &Key, object: &Object) {
        if kind == Kind::RoleBinding {
            let namespace = namespace_of(key);
            let bindings = self.within.entry(namespace.into()).or_default();
            bindings.put(Binding::new(key, Some(namespace), object));
        } else {
            self.everywhere.put(Binding::new(key, None, object));
        }
    }

    /// Removes an object.
    fn remove(&mut self, kind: Kind, key: &str) {
        match kind {
            Kind::ClusterRole => drop(self.cluster_roles.remove(key)),
            Kind::Role => drop(self.roles.remove(key)),
            Kind::ClusterRoleBinding => self.everywhere.remove(key),
            Kind::RoleBinding => {
                let namespace = namespace_of(key);
                if let Some(bindings) = self.within.get_mut(namespace) {
                    bindings.remove(key);
                    if bindings.known.is_empty() {
                        self.within.remove(namespace);
                    }
                }
            }
        }
    }

    /// Decides about a request. Cluster-wide bindings come before those of the namespace.
    ///
    /// Cost: two hash lookups for the user and for each of its groups, and one for each of their bindings. Each rule of
    /// the bound roles costs a comparison of bits, or a few nanoseconds in a large role.
    ///
    /// # Errors
    /// A large role must be decoded first.
    pub(super) fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Result<Verdict, UndecodedRole> {
        let (mut missing, request) = (Vec::new(), RulePrefilter::of_request(attributes));
        let mut denying = Distinct::default();
        for (bound, namespace) in self.bound(user, attributes_namespace(attributes)) {
            let Some(role) = self.role_bound(&bound.binding, namespace) else {
                missing.push(&bound.binding.role);
                continue;
            };
            if !denying.is_new(role) {
                continue;
            }
            let rules = role.rules().ok_or_else(|| UndecodedRole(role.clone()))?;
            if rules.allow(attributes, request) {
                return Ok(Verdict::new(Decision::Allow, bound.reason(namespace)));
            }
        }
        let reason = aggregated(missing.into_iter().map(RoleRef::not_found_by_authorizer))
            .map(|told| format!("RBAC: {told}"))
            .unwrap_or_default();
        Ok(Verdict::new(Decision::NoOpinion, reason))
    }

    /// The rules of a user in a namespace, or cluster-wide. A role that is bound more than once is listed once.
    ///
    /// # Errors
    /// A large role must be decoded first.
    pub(super) fn rules_of(&self, user: &User, namespace: Option<&str>) -> Result<HeldRules, UndecodedRole> {
        let mut held = HeldRules::default();
        let (mut bindings, mut roles) = (HashSet::new(), Distinct::default());
        for (bound, namespace) in self.bound(user, namespace) {
            // A user that is bound both by name and by group gets the rules once.
            if !bindings.insert(Arc::as_ptr(&bound.binding)) {
                continue;
            }
            match self.role_bound(&bound.binding, namespace) {
                Some(role) if roles.is_new(role) => {
                    let rules = role.rules().ok_or_else(|| UndecodedRole(role.clone()))?;
                    held.rules.extend(rules.stated().cloned());
                }
                Some(_) => {}
                None => held.missing.push(bound.binding.role.clone()),
            }
        }
        Ok(held)
    }

    /// The bindings of a user: cluster-wide ones, and those of a namespace with its name.
    fn bound<'i>(
        &'i self,
        user: &'i User,
        namespace: Option<&'i str>,
    ) -> impl Iterator<Item = (&'i Bound, Option<&'i str>)> {
        let within = namespace.and_then(|namespace| Some((self.within.get(namespace)?, Some(namespace))));
        let places = std::iter::once((&self.everywhere, None)).chain(within);
        places.flat_map(|(bindings, namespace)| bindings.for_user(user).map(move |bound| (bound, namespace)))
    }

    fn role_bound(&self, binding: &Binding, namespace: Option<&str>) -> Option<&Arc<Role>> {
        let roles = match namespace {
            Some(_) if !binding.role.is_cluster_role => &self.roles,
            _ => &self.cluster_roles,
        };
        roles.get(&*binding.role_key)
    }
}

impl Bindings {
    fn put(&mut self, binding: Binding) {
        self.remove(&binding.key.clone());
        let binding = Arc::new(binding);
        for (subject, whom) in binding.subjects.iter().enumerate() {
            let bound = self.place_of(whom).entry(whom.user_or_group().into()).or_default();
            let place = bound.partition_point(|other| other.binding.key <= binding.key);
            bound.insert(place, Bound { binding: binding.clone(), subject, reason: OnceLock::new() });
        }
        self.known.insert(binding.key.clone(), binding);
    }

    fn remove(&mut self, key: &str) {
        let Some(binding) = self.known.remove(key) else { return };
        for whom in &binding.subjects {
            let name = whom.user_or_group();
            let place = self.place_of(whom);
            if let Some(bound) = place.get_mut(&*name) {
                bound.retain(|bound| !Arc::ptr_eq(&bound.binding, &binding));
                if bound.is_empty() {
                    place.remove(&*name);
                }
            }
        }
    }

    fn place_of(&mut self, subject: &Subject) -> &mut HashMap<Box<str>, Vec<Bound>> {
        match subject {
            Subject::Group(_) => &mut self.groups,
            Subject::User(_) | Subject::ServiceAccount { .. } => &mut self.users,
        }
    }

    fn for_user<'b>(&'b self, user: &'b User) -> impl Iterator<Item = &'b Bound> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(&**group));
        self.users.get(&*user.name).into_iter().chain(groups).flatten()
    }
}

impl Bound {
    /// The text of the reason, in kube-apiserver's form. A binding is always used with the same namespace. The text is
    /// kept, since building it takes longer than the decision.
    fn reason(&self, namespace: Option<&str>) -> Arc<str> {
        self.reason.get_or_init(|| self.describe(namespace).into()).clone()
    }

    /// Quotes names like Go.
    fn describe(&self, namespace: Option<&str>) -> String {
        let Self { binding, subject, .. } = self;
        let quote = keelson_meta::go_format::quote;
        let (kind, name) = match namespace {
            None => ("ClusterRoleBinding", binding.key.to_string()),
            Some(namespace) => ("RoleBinding", format!("{}/{namespace}", name_of(&binding.key))),
        };
        let role = if binding.role.is_cluster_role { "ClusterRole" } else { "Role" };
        let whom = match &binding.subjects[*subject] {
            Subject::User(name) => format!("User {}", quote(name)),
            Subject::Group(name) => format!("Group {}", quote(name)),
            Subject::ServiceAccount { namespace, name } => {
                format!("ServiceAccount {}", quote(&format!("{name}/{namespace}")))
            }
        };
        format!("RBAC: allowed by {kind} {} of {role} {} to {whom}", quote(&name), quote(&binding.role.name))
    }
}

/// The roles that were already checked.
#[derive(Default)]
struct Distinct {
    first: Option<*const Role>,
    others: HashSet<*const Role>,
}

impl Distinct {
    /// Returns true at the first call for a role. Allocates nothing for a single role.
    fn is_new(&mut self, role: &Arc<Role>) -> bool {
        let role = Arc::as_ptr(role);
        match self.first {
            None => {
                self.first = Some(role);
                true
            }
            Some(first) => first != role && self.others.insert(role),
        }
    }
}

fn attributes_namespace<'a>(attributes: &Attributes<'a>) -> Option<&'a str> {
    match attributes {
        Attributes::Resource(asked) => asked.namespace.filter(|namespace| !namespace.is_empty()),
        Attributes::Path { .. } => None,
    }
}

fn namespace_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

fn name_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, name)| name)
}

#[cfg(test)]
mod tests;
