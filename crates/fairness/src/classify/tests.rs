//! Classification by examples of the suggested flow schemas.
//!
//! A property test compares the index with a plain comparison of every rule.

use proptest::prelude::*;

use super::*;
use crate::config::Rule;
use crate::defaults;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn suggested() -> Vec<FlowSchema> {
    let mut schemas = defaults::flow_schemas();
    Classifier::sort(&mut schemas);
    schemas
}

fn resource<'a>(group: &'a str, resource: &'a str, namespace: Option<&'a str>) -> Option<ResourceAttributes<'a>> {
    Some(ResourceAttributes { group, resource, subresource: None, namespace })
}

#[test]
fn requests_have_the_suggested_flow_schemas() {
    let schemas = suggested();
    let classifier = Classifier::new(&schemas);
    let check = |user: &str, groups: &[&str], verb: &str, path: &str, about, expect: &str| {
        let groups = texts(groups);
        let request = Attributes { user, groups: &groups, verb, path, resource: about };
        assert_eq!(schemas[classifier.classify(&request)].name, expect, "{user} {verb} {path} {about:?}");
    };
    let (known, unknown) = ("system:authenticated", "system:unauthenticated");
    let pods = resource("", "pods", Some("a"));
    let lease = resource("coordination.k8s.io", "leases", Some("kube-system"));
    check("ann", &[known], "get", "", pods, "global-default");
    check("ann", &["system:masters", known], "get", "", pods, "exempt");
    check("ann", &["system:nodes", "system:masters", known], "get", "/healthz", None, "exempt");
    check("ann", &[known], "get", "/healthz", None, "probes");
    check("ann", &[unknown], "get", "/healthz/ping", None, "probes");
    check("ann", &[known], "post", "/healthz", None, "global-default");
    check("ann", &[], "get", "/healthz", None, "catch-all");
    check("system:kube-scheduler", &[known], "get", "", lease, "system-leader-election");
    check("system:kube-scheduler", &[known], "list", "", lease, "kube-scheduler");
    check("system:node:n", &["system:nodes", known], "list", "", lease, "system-node-high");
    check("system:node:n", &["system:nodes", known], "list", "", pods, "system-nodes");
    let below = |name| resource("", "nodes", None).map(|about| ResourceAttributes { subresource: Some(name), ..about });
    check("system:node:n", &["system:nodes", known], "patch", "", below("status"), "system-node-high");
    check("system:node:n", &["system:nodes", known], "patch", "", below("proxy"), "system-nodes");
    let accounts = ["system:serviceaccounts", known];
    check("system:serviceaccount:a:b", &accounts, "get", "", lease, "service-accounts");
    check("system:serviceaccount:kube-system:b", &accounts, "get", "", lease, "system-leader-election");
    check("system:serviceaccount:kube-system:b", &accounts, "get", "/version", None, "kube-system-service-accounts");
    check("system:serviceaccount:kube-system-2:b", &accounts, "get", "/version", None, "service-accounts");
}

#[test]
fn path_rules_match_the_path_and_its_subpaths() {
    let check = |rule: &str, path: &str, expect: bool| assert_eq!(is_path(rule, path), expect, "{rule} {path}");
    check("*", "/a", true);
    check("/a", "/a", true);
    check("/a", "/a/b", true);
    check("/a", "/ab", false);
    check("/a/*", "/a", false);
    check("/a/*", "/a/b", true);
    check("/", "/a", true);
}

#[test]
fn exempt_is_compared_before_all_precedences() {
    let all = Rule {
        subjects: vec![Subject::Group("*".into())],
        resources: vec![ResourceRule {
            verbs: texts(&["*"]),
            groups: texts(&["*"]),
            resources: texts(&["*"]),
            namespaces: texts(&["*"]),
            cluster_scope: true,
        }],
        pages: Vec::new(),
    };
    let mut schemas = suggested();
    let of_all = FlowSchema { name: "a".into(), precedence: 1, rules: vec![all], ..schemas[0].clone() };
    schemas.push(of_all);
    Classifier::sort(&mut schemas);
    let classifier = Classifier::new(&schemas);
    let check = |groups: &[&str], expect: &str| {
        let groups = texts(groups);
        let about = resource("", "pods", None);
        let request = Attributes { user: "u", groups: &groups, verb: "get", path: "", resource: about };
        assert_eq!(schemas[classifier.classify(&request)].name, expect);
    };
    check(&["system:masters"], "exempt");
    check(&["system:authenticated"], "a");
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("b"), Just("system:serviceaccount:a:b")].prop_map(str::to_owned)
}

fn list() -> impl Strategy<Value = Vec<String>> {
    let names = prop::sample::subsequence(vec!["a", "b", "a/b", "c"], 1..4).prop_map(|names| texts(&names));
    prop_oneof![
        Just(texts(&["*"])),
        names,
        Just((0..20).map(|number| format!("a{number}")).chain(["b".into()]).collect())
    ]
}

fn subject() -> impl Strategy<Value = Subject> {
    let any = || prop_oneof![3 => name(), 1 => Just("*".to_owned())];
    prop_oneof![
        any().prop_map(Subject::User),
        any().prop_map(Subject::Group),
        (name(), any()).prop_map(|(namespace, name)| Subject::ServiceAccount { namespace, name }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let resources = (list(), list(), list(), list(), any::<bool>()).prop_map(
        |(verbs, groups, resources, namespaces, cluster_scope)| ResourceRule {
            verbs,
            groups,
            resources,
            namespaces,
            cluster_scope,
        },
    );
    let paths = prop::sample::subsequence(vec!["/a", "/a/*", "/b/*"], 1..3).prop_map(|names| texts(&names));
    let pages = (list(), paths).prop_map(|(verbs, paths)| PageRule { verbs, paths });
    let parts = (
        prop::collection::vec(subject(), 1..4),
        prop::collection::vec(resources, 0..3),
        prop::collection::vec(pages, 0..2),
    );
    parts.prop_map(|(subjects, resources, pages)| Rule { subjects, resources, pages })
}

/// Compares a request with every rule, field by field.
fn plainly(schemas: &[FlowSchema], request: &Attributes<'_>) -> Option<usize> {
    let has = |list: &[String], name: &str| list == [ALL] || list.iter().any(|known| known == name);
    let is_of = |subject: &Subject| match subject {
        Subject::User(name) => name == ALL || name == request.user,
        Subject::Group(name) => name == ALL || request.groups.contains(name),
        Subject::ServiceAccount { namespace, name } if name == ALL => {
            request.user.starts_with(&format!("{ACCOUNTS}{namespace}:"))
        }
        Subject::ServiceAccount { namespace, name } => request.user == format!("{ACCOUNTS}{namespace}:{name}"),
    };
    let matches = |rule: &Rule| match &request.resource {
        None => rule
            .pages
            .iter()
            .any(|page| has(&page.verbs, request.verb) && page.paths.iter().any(|path| is_path(path, request.path))),
        Some(about) => rule.resources.iter().any(|rule| {
            let name = about.subresource.map_or(about.resource.to_owned(), |sub| format!("{}/{sub}", about.resource));
            has(&rule.verbs, request.verb)
                && has(&rule.groups, about.group)
                && has(&rule.resources, &name)
                && about.namespace.map_or(rule.cluster_scope, |namespace| has(&rule.namespaces, namespace))
        }),
    };
    let schema = |schema: &FlowSchema| schema.rules.iter().any(|rule| rule.subjects.iter().any(is_of) && matches(rule));
    schemas.iter().position(schema)
}

proptest! {
    #[test]
    fn the_index_classifies_as_a_plain_comparison_does(
        rules in prop::collection::vec(prop::collection::vec(rule(), 0..3), 1..8),
        (user, groups, verb) in (name(), prop::collection::vec(name(), 0..3), name()),
        path in prop_oneof![Just("/a"), Just("/a/b"), Just("/b"), Just("/c")],
        about in prop::option::of((name(), name(), prop::option::of(name()), prop::option::of(name()))),
    ) {
        let schemas: Vec<_> = rules.into_iter().enumerate().map(|(number, rules)| FlowSchema {
            name: format!("s{number}"), uid: String::new(), level: String::new(), precedence: 1, distinguisher: None, rules,
        }).collect();
        let resource = about.as_ref().map(|(group, resource, subresource, namespace)| ResourceAttributes {
            group, resource, subresource: subresource.as_deref(), namespace: namespace.as_deref(),
        });
        let request = Attributes { user: &user, groups: &groups, verb: &verb, path, resource };
        let expect = plainly(&schemas, &request).unwrap_or(schemas.len() - 1);
        prop_assert_eq!(Classifier::new(&schemas).classify(&request), expect);
    }
}
