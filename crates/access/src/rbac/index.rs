//! Roles by name, and bindings by subject.
//!
//! A decision reads only the bindings of the user and its groups, cluster-wide and of the namespace. Its cost does not
//! depend on other bindings.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use keelson_cache::Entry;
use keelson_meta::Object;

use super::HeldRules;
use super::binding::{Binding, RoleRef, Subject, aggregated};
use super::rule::PolicyRule;
use super::sieve::Sieve;
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

type Rules = Vec<RoleRule>;
/// `<namespace>/<name>`, or `<name>` without a namespace, as in the cache.
type Key = Arc<str>;

/// A rule of a role.
struct RoleRule {
    sieve: Sieve,
    /// Shared with callers that list rules.
    rule: Arc<PolicyRule>,
}

/// Roles and bindings.
#[derive(Default)]
pub(super) struct Index {
    cluster_roles: HashMap<Key, Rules>,
    roles: HashMap<Key, Rules>,
    everywhere: Bindings,
    /// By namespace.
    within: HashMap<Box<str>, Bindings>,
}

/// The bindings of one scope.
#[derive(Default)]
struct Bindings {
    known: HashMap<Key, Arc<Binding>>,
    users: HashMap<Box<str>, Vec<Bound>>,
    groups: HashMap<Box<str>, Vec<Bound>>,
}

/// A binding, with the subject that matched.
#[derive(Clone)]
struct Bound {
    binding: Arc<Binding>,
    subject: usize,
    /// The reason text, after the first use.
    reason: OnceLock<Arc<str>>,
}

impl follow::Index for Index {
    type Kind = Kind;

    fn clear(&mut self, kind: Kind) {
        self.forget_all(kind);
    }

    fn put(&mut self, kind: Kind, entry: &Entry) {
        self.put(kind, &entry.key, &decoded(entry));
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

    /// Adds or replaces an object.
    fn put(&mut self, kind: Kind, key: &Key, object: &Object) {
        match kind {
            Kind::ClusterRole => drop(self.cluster_roles.insert(key.clone(), rules_of(object))),
            Kind::Role => drop(self.roles.insert(key.clone(), rules_of(object))),
            Kind::ClusterRoleBinding => self.everywhere.put(Binding::of(key, None, object)),
            Kind::RoleBinding => {
                let namespace = namespace_of(key);
                let bindings = self.within.entry(namespace.into()).or_default();
                bindings.put(Binding::of(key, Some(namespace), object));
            }
        }
    }

    /// Forgets an object.
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

    /// Decides about a request. Cluster-wide rules come before those of the namespace.
    ///
    /// Cost: two hash lookups for the user and each group, one for each bound role, and a comparison of bits for each
    /// of its rules.
    pub(super) fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        let (mut missing, request) = (Vec::new(), Sieve::of_request(attributes));
        let allows = |rule: &RoleRule| rule.sieve.lets_through(request) && rule.rule.allows(attributes);
        for (bound, namespace) in self.bound(user, attributes_namespace(attributes)) {
            match self.rules_bound(&bound.binding, namespace) {
                Some(rules) if rules.iter().any(allows) => {
                    return Verdict { decision: Decision::Allow, reason: bound.reason(namespace).into() };
                }
                Some(_) => {}
                None => missing.push(bound.binding.role.clone()),
            }
        }
        let reason = aggregated(missing.iter().map(RoleRef::not_found_by_authorizer))
            .map(|told| format!("RBAC: {told}"))
            .unwrap_or_default();
        Verdict { decision: Decision::NoOpinion, reason: reason.into() }
    }

    /// The rules of a user in a namespace, or everywhere.
    pub(super) fn rules_of(&self, user: &User, namespace: Option<&str>) -> HeldRules {
        let mut held = HeldRules::default();
        let mut seen: Vec<*const Binding> = Vec::new();
        for (bound, namespace) in self.bound(user, namespace) {
            // A binding of the user and of a group counts once.
            if seen.contains(&Arc::as_ptr(&bound.binding)) {
                continue;
            }
            seen.push(Arc::as_ptr(&bound.binding));
            match self.rules_bound(&bound.binding, namespace) {
                Some(rules) => held.rules.extend(rules.iter().map(|one| one.rule.clone())),
                None => held.missing.push(bound.binding.role.clone()),
            }
        }
        held
    }

    /// The bindings of a user, cluster-wide and in a namespace, with the namespace of the latter.
    fn bound<'i>(
        &'i self,
        user: &'i User,
        namespace: Option<&'i str>,
    ) -> impl Iterator<Item = (&'i Bound, Option<&'i str>)> {
        let within = namespace.and_then(|namespace| Some((self.within.get(namespace)?, Some(namespace))));
        let places = std::iter::once((&self.everywhere, None)).chain(within);
        places.flat_map(|(bindings, namespace)| bindings.of(user).map(move |bound| (bound, namespace)))
    }

    fn rules_bound(&self, binding: &Binding, namespace: Option<&str>) -> Option<&Rules> {
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

    fn of<'b>(&'b self, user: &'b User) -> impl Iterator<Item = &'b Bound> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(&**group));
        self.users.get(&*user.name).into_iter().chain(groups).flatten()
    }
}

impl Bound {
    /// The reason text for the binding's namespace, the only one that it is used with, in kube-apiserver's words. Built
    /// once, since that takes longer than the decision.
    fn reason(&self, namespace: Option<&str>) -> Arc<str> {
        self.reason.get_or_init(|| self.told(namespace).into()).clone()
    }

    /// Names are quoted as in Go.
    fn told(&self, namespace: Option<&str>) -> String {
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

fn rules_of(role: &Object) -> Rules {
    PolicyRule::all_of(role).map(|rule| RoleRule { sieve: Sieve::of_rule(&rule), rule: Arc::new(rule) }).collect()
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
mod tests {
    use keelson_meta::json::{Value, json};
    use proptest::prelude::*;

    use super::*;
    use crate::authorize::ResourceAttributes;
    use crate::rbac::escalation::{missing_rights, rights_beyond};

    /// A rule over few texts, so that rules overlap.
    fn rules() -> impl Strategy<Value = Vec<Value>> {
        let few = |texts: &'static [&'static str]| proptest::sample::subsequence(texts, 1..3);
        let rule = (
            few(&["get", "list", "*"]),
            few(&["", "apps", "*"]),
            few(&["pods", "pods/log", "*/log", "*"]),
            proptest::sample::subsequence(&["a", "b"][..], 0..2),
        );
        let rule = rule.prop_map(|(verbs, groups, resources, names)| {
            json!({ "verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names })
        });
        let on_paths = (few(&["get", "list", "*"]), few(&["/a", "/a/*", "/b*", "*"]));
        let on_paths = on_paths.prop_map(|(verbs, paths)| json!({ "verbs": verbs, "nonResourceURLs": paths }));
        proptest::collection::vec(prop_oneof![3 => rule, 1 => on_paths], 0..3)
    }

    /// A stored role, a binding with its role and subject, or a removal, each by key.
    #[derive(Clone, Debug)]
    enum Change {
        Role(Kind, &'static str, Vec<Value>),
        Bind(Kind, &'static str, (&'static str, &'static str), &'static str),
        Remove(Kind, &'static str),
    }

    const CLUSTER: [&str; 2] = ["r", "s"];
    const WITHIN: [&str; 3] = ["n/r", "n/s", "m/r"];
    const PATHS: [&str; 5] = ["/a", "/a/b", "/b", "/bc", "/"];
    const SUBJECTS: [&str; 4] = ["user:u", "user:v", "group:g", "account:u"];

    fn steps() -> impl Strategy<Value = Vec<Change>> {
        use proptest::sample::select;
        let cluster = || select(&CLUSTER[..]);
        let within = || select(&WITHIN[..]);
        let role_ref = || (select(&["ClusterRole", "Role"][..]), select(&["r", "s"][..]));
        let step = prop_oneof![
            (cluster(), rules()).prop_map(|(key, rules)| Change::Role(Kind::ClusterRole, key, rules)),
            (within(), rules()).prop_map(|(key, rules)| Change::Role(Kind::Role, key, rules)),
            (cluster(), select(&["r", "s"][..]), select(&SUBJECTS[..])).prop_map(|(key, role, whom)| Change::Bind(
                Kind::ClusterRoleBinding,
                key,
                ("ClusterRole", role),
                whom
            )),
            (within(), role_ref(), select(&SUBJECTS[..])).prop_map(|(key, role, whom)| Change::Bind(
                Kind::RoleBinding,
                key,
                role,
                whom
            )),
            (select(&[Kind::ClusterRole, Kind::ClusterRoleBinding][..]), cluster())
                .prop_map(|(kind, key)| Change::Remove(kind, key)),
            (select(&[Kind::Role, Kind::RoleBinding][..]), within()).prop_map(|(kind, key)| Change::Remove(kind, key)),
        ];
        proptest::collection::vec(step, 0..24)
    }

    fn binding((kind, role): (&str, &str), whom: &str) -> Value {
        let subject = match whom.split_once(':').unwrap() {
            ("user", name) => json!({ "kind": "User", "name": name }),
            ("group", name) => json!({ "kind": "Group", "name": name }),
            // In the binding's namespace, or in none for a cluster role binding.
            (_, name) => json!({ "kind": "ServiceAccount", "name": name }),
        };
        json!({ "roleRef": { "kind": kind, "name": role }, "subjects": [subject] })
    }

    /// The rules of a user by a plain model that scans every binding.
    fn held_plainly<'s>(steps: &'s [Change], user: &User, place: Option<&str>) -> Vec<&'s Value> {
        let mut roles: Vec<(Kind, &str, &[Value])> = Vec::new();
        let mut bindings: Vec<(Kind, &str, (&str, &str), &str)> = Vec::new();
        for step in steps {
            match step {
                Change::Role(kind, key, rules) => {
                    roles.retain(|known| (known.0, known.1) != (*kind, key));
                    roles.push((*kind, key, rules));
                }
                Change::Bind(kind, key, role, whom) => {
                    bindings.retain(|known| (known.0, known.1) != (*kind, key));
                    bindings.push((*kind, key, *role, whom));
                }
                Change::Remove(kind, key) => {
                    roles.retain(|known| (known.0, known.1) != (*kind, key));
                    bindings.retain(|known| (known.0, known.1) != (*kind, key));
                }
            }
        }
        let held = bindings.iter().flat_map(|(kind, key, (role_kind, role), whom)| {
            let namespace = key.split_once('/').map(|(namespace, _)| namespace);
            let counts = *kind == Kind::ClusterRoleBinding || (place.is_some() && place == namespace);
            let is_meant = match (whom.split_once(':').unwrap(), namespace) {
                (("user", name), _) => user.name == name,
                (("group", name), _) => user.is_in(name),
                ((_, name), Some(namespace)) => user.name == format!("system:serviceaccount:{namespace}:{name}"),
                _ => false,
            };
            let wanted = match (*role_kind, namespace) {
                ("Role", Some(namespace)) => (Kind::Role, format!("{namespace}/{role}")),
                _ => (Kind::ClusterRole, (*role).to_owned()),
            };
            let found = roles.iter().filter(move |role| (role.0, role.1) == (wanted.0, &*wanted.1));
            let found = found.filter(move |_| counts && is_meant);
            found.flat_map(|role| role.2.iter()).collect::<Vec<_>>()
        });
        held.collect()
    }

    fn texts<'v>(rule: &'v Value, field: &str) -> Vec<&'v str> {
        rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Returns true if a list has a text or `*`.
    fn has(rule: &Value, field: &str, text: &str) -> bool {
        texts(rule, field).contains(&"*") || texts(rule, field).contains(&text)
    }

    fn has_path(rule: &Value, path: &str) -> bool {
        texts(rule, "nonResourceURLs")
            .iter()
            .any(|known| *known == path || known.strip_suffix('*').is_some_and(|start| path.starts_with(start)))
    }

    /// Each right of the wanted rules that no single held rule has, as a rule of its own.
    fn lacking_plainly(held: &[&Value], wanted: &[Value]) -> Vec<String> {
        let mut lacking = Vec::new();
        for rule in wanted {
            let names = texts(rule, "resourceNames");
            let names: Vec<Option<&str>> =
                if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
            for verb in texts(rule, "verbs") {
                for group in texts(rule, "apiGroups") {
                    for resource in texts(rule, "resources") {
                        for name in &names {
                            let of_any = resource.split_once('/').map(|(_, below)| format!("*/{below}"));
                            let has_it = held.iter().any(|held| {
                                let named = texts(held, "resourceNames");
                                has(held, "verbs", verb)
                                    && has(held, "apiGroups", group)
                                    && (has(held, "resources", resource)
                                        || of_any.as_deref().is_some_and(|any| has(held, "resources", any)))
                                    && (named.is_empty() || name.is_some_and(|name| named.contains(&name)))
                            });
                            let mut right = json!({ "verbs": [verb], "apiGroups": [group], "resources": [resource] });
                            if let (Some(name), Some(right)) = (name, right.as_object_mut()) {
                                right.insert("resourceNames", json!([name]));
                            }
                            lacking.extend((!has_it).then(|| right.to_string()));
                        }
                    }
                }
                for path in texts(rule, "nonResourceURLs") {
                    if !held.iter().any(|held| has(held, "verbs", verb) && has_path(held, path)) {
                        lacking.push(json!({ "verbs": [verb], "nonResourceURLs": [path] }).to_string());
                    }
                }
            }
        }
        lacking.sort_unstable();
        lacking
    }

    fn allows_plainly(rule: &Value, asked: &ResourceAttributes<'_>) -> bool {
        let texts = |field: &str| texts(rule, field);
        let has = |field: &str, text: &str| has(rule, field, text);
        let resource =
            asked.subresource.map_or_else(|| asked.resource.to_owned(), |sub| format!("{}/{sub}", asked.resource));
        let of_any = asked.subresource.is_some_and(|sub| texts("resources").contains(&&*format!("*/{sub}")));
        let names = texts("resourceNames");
        has("verbs", asked.verb)
            && has("apiGroups", asked.group)
            && (has("resources", &resource) || of_any)
            && (names.is_empty() || names.contains(&asked.name.unwrap_or_default()))
    }

    /// All possible requests.
    fn questions() -> Vec<ResourceAttributes<'static>> {
        let mut questions = Vec::new();
        for verb in ["get", "list", "delete"] {
            for group in ["", "apps", "batch"] {
                for (resource, subresource) in
                    [("pods", None), ("pods", Some("log")), ("nodes", Some("log")), ("nodes", None)]
                {
                    for name in [None, Some("a"), Some("c")] {
                        for namespace in [None, Some("n"), Some("m")] {
                            let question = ResourceAttributes {
                                verb,
                                group,
                                resource,
                                subresource,
                                name,
                                namespace,
                                ..Default::default()
                            };
                            questions.push(question);
                        }
                    }
                }
            }
        }
        questions
    }

    fn index_of(steps: &[Change]) -> Index {
        let mut index = Index::default();
        let object = |value: Value| Object::from_value(value).unwrap();
        for step in steps {
            match step {
                Change::Role(kind, key, rules) => index.put(*kind, &(*key).into(), &object(json!({ "rules": rules }))),
                Change::Bind(kind, key, role, whom) => index.put(*kind, &(*key).into(), &object(binding(*role, whom))),
                Change::Remove(kind, key) => index.remove(*kind, key),
            }
        }
        index
    }

    fn users() -> [User; 3] {
        let user = |name: &str, groups: &[&str]| User {
            name: name.to_owned(),
            groups: groups.iter().map(ToString::to_string).collect(),
            ..User::default()
        };
        [user("u", &["g"]), user("v", &[]), user("system:serviceaccount:n:u", &["h"])]
    }

    proptest! {
        #[test]
        fn decisions_are_those_of_a_plain_model(steps in steps()) {
            let index = index_of(&steps);
            for user in users() {
                for asked in questions() {
                    let verdict = index.decide(&user, &Attributes::Resource(asked));
                    let held = held_plainly(&steps, &user, asked.namespace);
                    let expected = held.iter().any(|rule| allows_plainly(rule, &asked));
                    prop_assert_eq!(verdict.is_allowed(), expected, "{:?} {:?} {}", user, asked, verdict.reason);
                }
                let held = held_plainly(&steps, &user, None);
                for (verb, path) in ["get", "list", "post"].into_iter().flat_map(|verb| PATHS.map(|path| (verb, path))) {
                    let verdict = index.decide(&user, &Attributes::Path { verb, path });
                    let expected = held.iter().any(|rule| has(rule, "verbs", verb) && has_path(rule, path));
                    prop_assert_eq!(verdict.is_allowed(), expected, "{:?} {} {}", user, verb, path);
                }
            }
        }

        #[test]
        fn the_rules_that_are_told_are_those_that_decide(steps in steps()) {
            let index = index_of(&steps);
            for user in users() {
                for asked in questions() {
                    let held = index.rules_of(&user, asked.namespace);
                    let by_rules = held.rules.iter().any(|rule| rule.allows(&Attributes::Resource(asked)));
                    prop_assert_eq!(by_rules, index.decide(&user, &Attributes::Resource(asked)).is_allowed());
                }
            }
        }

        #[test]
        fn who_lacks_a_right_that_he_would_give_is_told_so_and_nobody_else(steps in steps(), wanted in rules()) {
            let index = index_of(&steps);
            let rules: Vec<PolicyRule> = PolicyRule::each(&wanted).collect();
            for user in users() {
                for place in [None, Some("n"), Some("m")] {
                    let held = index.rules_of(&user, place);
                    let expected = lacking_plainly(&held_plainly(&steps, &user, place), &wanted);
                    let lacks = missing_rights(&user, &held, &rules).is_some();
                    prop_assert_eq!(lacks, !expected.is_empty(), "{:?} {:?}: {:?}", user, place, expected);
                    let beyond = rights_beyond(&held.rules, &rules);
                    let mut beyond: Vec<_> = beyond.iter().map(|rule| rule.to_value().to_string()).collect();
                    beyond.sort_unstable();
                    prop_assert_eq!(beyond, expected, "{:?} {:?}", user, place);
                }
            }
        }
    }
}
