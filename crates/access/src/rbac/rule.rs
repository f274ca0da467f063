//! One rule of a role: matching of requests, coverage of other rules, and its text form.
//!
//! Strings are compared exactly. The only pattern is `*`, alone or at the end of a path.

use std::fmt;

use keelson_meta::Object;
use keelson_meta::go_format::quote_list;
use keelson_meta::json::{Map, Value, json};

use crate::authorize::{Attributes, ResourceAttributes};

/// Matches any verb, group, resource or path.
pub(super) const ALL: &str = "*";

/// A rule: verbs on resources of API groups, optionally for some names only, or verbs on paths.
///
/// Source: `rbac.authorization.k8s.io/v1`, `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicyRule {
    /// The verbs; `*` for any.
    pub verbs: Vec<String>,
    /// The API groups; `*` for any, an empty string for the core group.
    pub api_groups: Vec<String>,
    /// Resources, or `<resource>/<subresource>`. `*` matches all, and `*/<subresource>` matches the subresource of any
    /// resource.
    pub resources: Vec<String>,
    /// The names of the objects; empty for all.
    pub resource_names: Vec<String>,
    /// Paths; a `*` at the end matches all paths with that prefix.
    pub non_resource_urls: Vec<String>,
}

impl PolicyRule {
    /// The rules of a role object.
    pub fn all_of(role: &Object) -> impl Iterator<Item = Self> {
        Self::each(role.get(&["rules"]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice))
    }

    /// The rules in a list.
    pub fn each(rules: &[Value]) -> impl Iterator<Item = Self> {
        rules.iter().map(Self::from_value)
    }

    /// Parses a rule. Values of the wrong type are ignored.
    fn from_value(rule: &Value) -> Self {
        let texts = |field: &str| {
            let texts = rule.get(field).and_then(Value::as_array).into_iter().flatten();
            texts.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: texts("verbs"),
            api_groups: texts("apiGroups"),
            resources: texts("resources"),
            resource_names: texts("resourceNames"),
            non_resource_urls: texts("nonResourceURLs"),
        }
    }

    /// The rule as JSON, without empty lists.
    pub fn to_value(&self) -> Value {
        let mut rule = Map::new();
        let fields = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ];
        for (name, texts) in fields.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            rule.insert(name, json!(texts));
        }
        Value::Object(rule)
    }

    /// Two rules that allow everything.
    pub fn everything() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), non_resource_urls: all(), ..Self::default() },
        ]
    }

    /// Returns true if the rule allows a request. Cost: comparisons with its strings, without copies.
    pub(super) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        match attributes {
            Attributes::Resource(asked) => {
                has(&self.verbs, asked.verb)
                    && has(&self.api_groups, asked.group)
                    && self.resources.iter().any(|resource| is_resource(resource, asked))
                    && self.allows_name(asked.name.unwrap_or_default())
            }
            Attributes::Path { verb, path } => has(&self.verbs, verb) && self.allows_path(path),
        }
    }

    fn allows_name(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|allowed| allowed == name)
    }

    /// Returns true if the rule matches this path.
    pub(super) fn allows_path(&self, path: &str) -> bool {
        // Several stars at the end have the same meaning as one.
        let is_under = |allowed: &str| allowed.ends_with('*') && path.starts_with(allowed.trim_end_matches('*'));
        self.non_resource_urls.iter().any(|allowed| allowed == path || is_under(allowed))
    }

    /// Returns true if this rule allows everything that `part` allows.
    pub(super) fn covers(&self, part: &Self) -> bool {
        let all_of = |wanted: &[String], held: &[String]| {
            held.iter().any(|text| text == ALL) || wanted.iter().all(|text| held.contains(text))
        };
        let names = &self.resource_names;
        let covers_names = || {
            names.is_empty()
                || (!part.resource_names.is_empty() && part.resource_names.iter().all(|name| names.contains(name)))
        };
        all_of(&part.verbs, &self.verbs)
            && all_of(&part.api_groups, &self.api_groups)
            && part.resources.iter().all(|resource| self.covers_resource(resource))
            && covers_names()
            && part.non_resource_urls.iter().all(|path| self.allows_path(path))
    }

    fn covers_resource(&self, wanted: &str) -> bool {
        let of_any = wanted.split_once('/').map(|(_, subresource)| subresource);
        self.resources
            .iter()
            .any(|held| held == ALL || held == wanted || (of_any.is_some() && held.strip_prefix("*/") == of_any))
    }
}

fn has(held: &[String], asked: &str) -> bool {
    held.iter().any(|text| text == ALL || text == asked)
}

fn is_resource(held: &str, attributes: &ResourceAttributes<'_>) -> bool {
    let Some(subresource) = attributes.subresource.filter(|subresource| !subresource.is_empty()) else {
        return held == ALL || held == attributes.resource;
    };
    let below =
        |resource: &str| held.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(subresource);
    held == ALL || below(attributes.resource) || below(ALL)
}

/// The text is kube-apiserver's: `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let written = fields.iter().filter(|(_, texts)| !texts.is_empty());
        let written: Vec<String> = written.map(|(name, texts)| format!("{name}:{}", quote_list(texts))).collect();
        write!(f, "{{{}}}", written.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> PolicyRule {
        PolicyRule::from_value(
            &json!({ "verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names }),
        )
    }

    fn paths(verbs: &[&str], paths: &[&str]) -> PolicyRule {
        PolicyRule::from_value(&json!({ "verbs": verbs, "nonResourceURLs": paths }))
    }

    #[test]
    fn resources_and_their_subresources_are_allowed_each_by_its_own_name() {
        let asks = |resource: &'static str, subresource: Option<&'static str>| {
            Attributes::Resource(ResourceAttributes {
                verb: "get",
                resource,
                subresource,
                ..ResourceAttributes::default()
            })
        };
        let check = |resources: &[&str], resource, subresource, expected: bool| {
            let allowed = rule(&["get"], &[""], resources, &[]).allows(&asks(resource, subresource));
            assert_eq!(allowed, expected, "{resources:?} {resource} {subresource:?}");
        };
        check(&["pods"], "pods", None, true);
        check(&["pods"], "pods", Some("log"), false);
        check(&["pods/log"], "pods", Some("log"), true);
        check(&["pods/log"], "pods/log", None, true);
        check(&["*/log"], "pods", Some("log"), true);
        check(&["*/log"], "pods", None, false);
        check(&["pods/*"], "pods", Some("log"), false);
        check(&["*"], "pods", Some("log"), true);
        check(&["pod"], "pods", None, false);
    }

    #[test]
    fn paths_are_allowed_whole_or_by_how_they_begin() {
        let check = |allowed: &str, path: &'static str, expected: bool| {
            let verdict = paths(&["get"], &[allowed]).allows(&Attributes::Path { verb: "get", path });
            assert_eq!(verdict, expected, "{allowed} {path}");
        };
        check("/healthz", "/healthz/ping", false);
        check("/healthz*", "/healthz/ping", true);
        check("*", "/metrics", true);
        check("/logs/**", "/logs/a", true);
        check("/logs/**", "/log", false);
        check("/a*b", "/a*b", true);
        check("/a*b", "/acb", false);
    }

    #[test]
    fn a_rule_covers_equal_and_narrower_rules() {
        let all = rule(&["*"], &["*"], &["*"], &[]);
        let pods = rule(&["get", "list"], &[""], &["pods"], &[]);
        assert!(all.covers(&pods) && !pods.covers(&all));
        assert!(pods.covers(&rule(&["get"], &[""], &["pods"], &["a"])));
        assert!(!rule(&["get"], &[""], &["pods"], &["a"]).covers(&rule(&["get"], &[""], &["pods"], &[])));
        assert!(rule(&["get"], &[""], &["*/scale"], &[]).covers(&rule(&["get"], &[""], &["pods/scale"], &[])));
        assert!(!pods.covers(&rule(&["get"], &[""], &["pods/log"], &[])));
        assert!(paths(&["get"], &["/a/*"]).covers(&paths(&["get"], &["/a/b*"])));
        assert!(!paths(&["get"], &["/a/b"]).covers(&paths(&["get"], &["/a/*"])));
        assert!(!all.covers(&paths(&["get"], &["/a"])));
    }

    #[test]
    fn rules_are_written_as_upstream_writes_them() {
        let named = rule(&["get", "list"], &[""], &["secrets"], &["a"]);
        let expected = r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get" "list"]}"#;
        assert_eq!(named.to_string(), expected);
        assert_eq!(paths(&["get"], &["/logs"]).to_string(), r#"{NonResourceURLs:["/logs"], Verbs:["get"]}"#);
    }
}
