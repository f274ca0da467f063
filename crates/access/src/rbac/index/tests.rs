//! Compares decisions of the index with a simple model, and measures their cost.
//!
//! The model checks all stored bindings and rules.

use keelson_meta::json::{Value, json};
use proptest::prelude::*;

use super::*;
use crate::authorize::ResourceAttributes;
use crate::rbac::escalation::{missing_rights, rights_beyond};
use crate::rbac::rule::PolicyRule;

/// Rules with few different strings, so that they often overlap.
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

/// A stored role, or a binding with its role and subject.
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
        // The namespace is that of the binding. In a cluster role binding there is none.
        (_, name) => json!({ "kind": "ServiceAccount", "name": name }),
    };
    json!({ "roleRef": { "kind": kind, "name": role }, "subjects": [subject] })
}

/// The rules of a user in a namespace, or cluster-wide, by checking every binding.
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

/// Returns true if a list contains a text or `*`.
fn has(rule: &Value, field: &str, text: &str) -> bool {
    texts(rule, field).contains(&"*") || texts(rule, field).contains(&text)
}

fn has_path(rule: &Value, path: &str) -> bool {
    texts(rule, "nonResourceURLs")
        .iter()
        .any(|known| *known == path || known.strip_suffix('*').is_some_and(|start| path.starts_with(start)))
}

/// Each right of `wanted` that no rule of `held` allows, as a rule of its own.
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

fn allows_plainly(rule: &Value, attributes: &ResourceAttributes<'_>) -> bool {
    let texts = |field: &str| texts(rule, field);
    let has = |field: &str, text: &str| has(rule, field, text);
    let resource = attributes
        .subresource
        .map_or_else(|| attributes.resource.to_owned(), |sub| format!("{}/{sub}", attributes.resource));
    let of_any = attributes.subresource.is_some_and(|sub| texts("resources").contains(&&*format!("*/{sub}")));
    let names = texts("resourceNames");
    has("verbs", attributes.verb)
        && has("apiGroups", attributes.group)
        && (has("resources", &resource) || of_any)
        && (names.is_empty() || names.contains(&attributes.name.unwrap_or_default()))
}

/// All tested requests.
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
            Change::Role(kind, key, rules) => {
                index.put_role(*kind, &(*key).into(), Role::read(&object(json!({ "rules": rules }))));
            }
            Change::Bind(kind, key, role, whom) => {
                index.put_binding(*kind, &(*key).into(), &object(binding(*role, whom)));
            }
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

fn decide(index: &Index, user: &User, attributes: &Attributes<'_>) -> Verdict {
    index.decide(user, attributes).ok().expect("no role is large")
}

fn rules_of(index: &Index, user: &User, namespace: Option<&str>) -> HeldRules {
    index.rules_of(user, namespace).ok().expect("no role is large")
}

/// Many rules that differ from the request only in the name, bound many times, and a binding with one subject many
/// times.
#[test]
fn many_rules_many_bindings_and_many_subjects_cost_little() {
    let begun = std::time::Instant::now();
    let object = |value: Value| Object::from_value(value).unwrap();
    let rule = |number: usize| json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [format!("n{number}")] });
    let rules: Vec<_> = (0..16_000).map(rule).collect();
    let mut index = Index::default();
    index.put_role(Kind::Role, &"n/r".into(), Role::read(&object(json!({ "rules": rules }))));
    let bind = |role: &str| {
        let subject = json!({ "kind": "User", "name": "u" });
        json!({ "roleRef": { "kind": "Role", "name": role }, "subjects": vec![subject; 1000] })
    };
    for number in 0..1000 {
        let role = if number < 500 { "r".to_owned() } else { format!("gone{number}") };
        index.put_binding(Kind::RoleBinding, &format!("n/b{number}").into(), &object(bind(&role)));
    }
    let user = User { name: "u".to_owned(), ..User::default() };
    let asks = |name| {
        let attributes = ResourceAttributes {
            verb: "get",
            resource: "pods",
            name: Some(name),
            namespace: Some("n"),
            ..Default::default()
        };
        decide(&index, &user, &Attributes::Resource(attributes))
    };
    for _ in 0..20 {
        assert!(asks("n15999").is_allowed());
        let refused = asks("other");
        assert!(!refused.is_allowed());
        assert!(refused.reason.len() < 10_000 && refused.reason.ends_with("and more]"), "{}", refused.reason.len());
    }
    assert_eq!(rules_of(&index, &user, Some("n")).rules.len(), 16_000);
    for number in 0..1000 {
        index.remove(Kind::RoleBinding, &format!("n/b{number}"));
    }
    assert!(index.within.is_empty());
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

proptest! {
    #[test]
    fn decisions_are_those_of_a_plain_model(steps in steps()) {
        let index = index_of(&steps);
        for user in users() {
            for asked in questions() {
                let verdict = decide(&index, &user, &Attributes::Resource(asked));
                let held = held_plainly(&steps, &user, asked.namespace);
                let expected = held.iter().any(|rule| allows_plainly(rule, &asked));
                prop_assert_eq!(verdict.is_allowed(), expected, "{:?} {:?} {}", user, asked, verdict.reason);
            }
            let held = held_plainly(&steps, &user, None);
            for (verb, path) in ["get", "list", "post"].into_iter().flat_map(|verb| PATHS.map(|path| (verb, path))) {
                let verdict = decide(&index, &user, &Attributes::Path { verb, path });
                let expected = held.iter().any(|rule| has(rule, "verbs", verb) && has_path(rule, path));
                prop_assert_eq!(verdict.is_allowed(), expected, "{:?} {} {}", user, verb, path);
            }
        }
    }

    #[test]
    fn the_rules_that_are_reported_are_those_that_decide(steps in steps()) {
        let index = index_of(&steps);
        for user in users() {
            for asked in questions() {
                let held = rules_of(&index, &user, asked.namespace);
                let by_rules = held.rules.iter().any(|rule| rule.allows(&Attributes::Resource(asked)));
                prop_assert_eq!(by_rules, decide(&index, &user, &Attributes::Resource(asked)).is_allowed());
            }
        }
    }

    #[test]
    fn granting_missing_rights_is_refused(steps in steps(), wanted in rules()) {
        let index = index_of(&steps);
        let rules: Vec<PolicyRule> = PolicyRule::each(&wanted).collect();
        for user in users() {
            for place in [None, Some("n"), Some("m")] {
                let held = rules_of(&index, &user, place);
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
