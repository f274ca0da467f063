//! The audit policy (`audit.k8s.io/v1`, kind `Policy`): the first matching rule sets the level of a request.
//!
//! Rules and error texts are upstream's. A request without a matching rule is not audited.

use keelson_meta::field_error::{self, FieldError};
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;
use keelson_meta::names::dns_subdomain_faults;

use crate::authorize::{Attributes, ResourceAttributes};
use crate::user::User;

const GROUP_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";
/// The group of a rule for resources of all groups.
const ALL_GROUPS: &str = "*";

/// The level of detail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No events.
    #[default]
    None,
    /// User, request metadata and status.
    Metadata,
    /// Also the object in the request.
    Request,
    /// Also the object in the response.
    RequestResponse,
}

impl Level {
    /// All levels in order.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// The name in policies and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// The stage of a request at which an event may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The request is authenticated, and no handler has run.
    RequestReceived,
    /// The response has started: for long-running requests, and for requests refused before authentication.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    const ALL: [Self; 4] = [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// The name in policies and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A policy's decision about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// The level.
    pub level: Level,
    /// True if objects are written without managed fields.
    pub omit_managed_fields: bool,
    omitted: u8,
}

impl Audited {
    /// Returns true if a stage of the request is recorded.
    pub fn has(&self, stage: Stage) -> bool {
        self.level > Level::None && self.omitted & stage.bit() == 0
    }
}

/// An audit policy.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    otherwise: Audited,
}

#[derive(Clone, Debug)]
struct Rule {
    audited: Audited,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
}

#[derive(Clone, Debug)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

impl Policy {
    /// Parses a policy. Like upstream, ignores unknown fields.
    ///
    /// # Errors
    /// The fault, with upstream's message.
    pub fn parse(document: &Value) -> Result<Self, String> {
        let text = |key: &str| document[key].as_str().unwrap_or_default();
        if document.is_null() {
            return Err("unknown group version field audit.k8s.io/__internal, Kind=Policy in policy".to_owned());
        }
        if (text("apiVersion"), text("kind")) != (GROUP_VERSION, KIND) {
            return Err(unknown_kind(text("apiVersion"), text("kind")));
        }
        let mut faults = stage_faults(&document["omitStages"], "omitStages");
        let rules = list(&document["rules"]);
        for (at, rule) in rules.iter().enumerate() {
            faults.extend(rule_faults(rule, &format!("rules[{at}]")));
        }
        if !faults.is_empty() {
            return Err(field_error::join(&faults));
        }
        if rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".to_owned());
        }
        let omit_managed_fields = document["omitManagedFields"].as_bool().unwrap_or_default();
        let omitted = stages(&document["omitStages"]);
        let otherwise = Audited { level: Level::None, omit_managed_fields, omitted };
        Ok(Self { rules: rules.iter().map(|rule| Rule::new(rule, otherwise)).collect(), otherwise })
    }

    /// Decides about a request; `user` is `None` before authentication.
    pub fn decide(&self, user: Option<&User>, attributes: &Attributes<'_>) -> Audited {
        let rule = self.rules.iter().find(|rule| rule.fits(user, attributes));
        rule.map_or(self.otherwise, |rule| rule.audited)
    }
}

impl Rule {
    fn new(rule: &Value, policy: Audited) -> Self {
        let level = Level::ALL.into_iter().find(|level| Some(level.as_str()) == rule["level"].as_str());
        let omit_managed_fields = rule["omitManagedFields"].as_bool().unwrap_or(policy.omit_managed_fields);
        let omitted = policy.omitted | stages(&rule["omitStages"]);
        let resources = list(&rule["resources"]).iter().map(|resources| GroupResources {
            group: resources["group"].as_str().unwrap_or_default().to_owned(),
            resources: texts(&resources["resources"]),
            names: texts(&resources["resourceNames"]),
        });
        Self {
            audited: Audited { level: level.unwrap_or_default(), omit_managed_fields, omitted },
            users: texts(&rule["users"]),
            groups: texts(&rule["userGroups"]),
            verbs: texts(&rule["verbs"]),
            resources: resources.collect(),
            namespaces: texts(&rule["namespaces"]),
            paths: texts(&rule["nonResourceURLs"]),
        }
    }

    fn fits(&self, user: Option<&User>, attributes: &Attributes<'_>) -> bool {
        let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
        if !self.users.is_empty() && !user.is_some_and(|user| has(&self.users, &user.name)) {
            return false;
        }
        if !self.groups.is_empty() && !user.is_some_and(|user| user.groups.iter().any(|group| has(&self.groups, group)))
        {
            return false;
        }
        let (Attributes::Resource(ResourceAttributes { verb, .. }) | Attributes::Path { verb, .. }) = attributes;
        if !self.verbs.is_empty() && !has(&self.verbs, verb) {
            return false;
        }
        match attributes {
            _ if self.namespaces.is_empty() && self.resources.is_empty() && self.paths.is_empty() => true,
            Attributes::Resource(asked) => {
                let is_there = self.namespaces.is_empty() || has(&self.namespaces, asked.namespace.unwrap_or_default());
                let is_of = self.resources.is_empty() || self.resources.iter().any(|resources| resources.fit(asked));
                (!self.namespaces.is_empty() || !self.resources.is_empty()) && is_there && is_of
            }
            Attributes::Path { path, .. } => {
                let is_of_resources = !self.namespaces.is_empty() || !self.resources.is_empty();
                !is_of_resources && self.paths.iter().any(|known| path_fits(known, path))
            }
        }
    }
}

impl GroupResources {
    fn fit(&self, attributes: &ResourceAttributes<'_>) -> bool {
        if self.group != ALL_GROUPS && self.group != attributes.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let is_named = |name: Option<&str>| self.names.iter().any(|known| Some(&**known) == name);
        let name_fits = self.names.is_empty() || is_named(Some(attributes.name.unwrap_or_default()));
        name_fits && self.resources.iter().any(|resource| resource_fits(resource, attributes))
    }
}

/// Returns true if the entry `known` of a rule matches a resource. Forms: `*`, `resource`, `resource/subresource`,
/// `resource/*`, `*/subresource`.
fn resource_fits(known: &str, attributes: &ResourceAttributes<'_>) -> bool {
    match (known.split_once('/'), attributes.subresource) {
        (None, _) if known == "*" => true,
        (None, below) => below.is_none() && known == attributes.resource,
        (Some((above, "*")), _) if above == attributes.resource => true,
        (Some((above, known)), Some(below)) => known == below && (above == "*" || above == attributes.resource),
        (Some(_), None) => false,
    }
}

fn path_fits(known: &str, path: &str) -> bool {
    known == path || known.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}

fn unknown_kind(version: &str, kind: &str) -> String {
    let scheme = "in scheme \"k8s.io/apiserver/pkg/audit/scheme.go:30\"";
    match (version, kind) {
        ("", "") => "failed decoding: Object 'Kind' is missing".to_owned(),
        (_, "") => "failed decoding: Object 'Kind' is missing in policy".to_owned(),
        ("", _) => format!("failed decoding: no version is stated for the kind {}", quote(kind)),
        _ => format!("failed decoding: no kind {} is registered for version {} {scheme}", quote(kind), quote(version)),
    }
}

fn rule_faults(rule: &Value, place: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let level = format!("{place}.level");
    match rule["level"].as_str().unwrap_or_default() {
        "" => faults.push(FieldError::required(level, "")),
        name if Level::ALL.iter().any(|level| level.as_str() == name) => {}
        name => faults.push(FieldError::not_supported(level, name, &Level::ALL.map(Level::as_str))),
    }
    for (at, path) in texts(&rule["nonResourceURLs"]).into_iter().enumerate() {
        let place = || format!("{place}.nonResourceURLs[{at}]");
        if path == "*" {
            continue;
        }
        if !path.starts_with('/') {
            let why = "non-resource URL rules must begin with a '/' character";
            faults.push(FieldError::invalid(place(), path.clone(), why));
        }
        let mut before_last = path.chars();
        before_last.next_back();
        if before_last.as_str().contains('*') {
            let why = "non-resource URL wildcards '*' must be the final character of the rule";
            faults.push(FieldError::invalid(place(), path, why));
        }
    }
    for resources in list(&rule["resources"]) {
        let group = resources["group"].as_str().unwrap_or_default();
        if !group.is_empty() && group != ALL_GROUPS {
            let why = dns_subdomain_faults(group);
            if !why.is_empty() {
                faults.push(FieldError::invalid(format!("{place}.resources.group"), group, why.join(",")));
            }
        }
        if !list(&resources["resourceNames"]).is_empty() && list(&resources["resources"]).is_empty() {
            let why = "using resourceNames requires at least one resource";
            let names = resources["resourceNames"].clone();
            faults.push(FieldError::invalid(format!("{place}.resources.resourceNames"), names, why));
        }
    }
    faults.extend(stage_faults(&rule["omitStages"], &format!("{place}.omitStages")));
    let has = |field: &str| !list(&rule[field]).is_empty();
    if has("nonResourceURLs") && (has("resources") || has("namespaces")) {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        faults.push(FieldError::invalid(format!("{place}.nonResourceURLs"), rule["nonResourceURLs"].clone(), why));
    }
    faults
}

fn stage_faults(stages: &Value, place: &str) -> Vec<FieldError> {
    let allowed = Stage::ALL.map(Stage::as_str);
    let unknown = texts(stages).into_iter().enumerate().filter(|(_, stage)| !allowed.contains(&&**stage));
    let why = format!("allowed stages are {}", allowed.join(","));
    unknown.map(|(at, stage)| FieldError::invalid(format!("{place}[{at}]"), stage, why.clone())).collect()
}

/// The bits of stages whose names were validated.
fn stages(stages: &Value) -> u8 {
    let named = |stage: &Stage| texts(stages).iter().any(|name| name == stage.as_str());
    Stage::ALL.into_iter().filter(named).fold(0, |bits, stage| bits | stage.bit())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "callers write the rules where they need them")]
    fn policy(rules: Value) -> Result<Policy, String> {
        Policy::parse(&json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules }))
    }

    #[allow(clippy::needless_pass_by_value, reason = "callers write the rule where they need it")]
    fn refused(rule: Value, expect: &str) {
        assert_eq!(policy(json!([rule])).unwrap_err(), expect);
    }

    #[test]
    fn wrong_policies_are_refused_in_upstreams_words() {
        refused(json!({ "verbs": ["get"] }), "rules[0].level: Required value");
        refused(
            json!({ "level": "Foo" }),
            r#"rules[0].level: Unsupported value: "Foo": supported values: "None", "Metadata", "Request", "RequestResponse""#,
        );
        refused(
            json!({ "level": "None", "omitStages": ["Foo"] }),
            r#"rules[0].omitStages[0]: Invalid value: "Foo": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
        );
        for other in ["resources", "namespaces"] {
            let mut rule = json!({ "level": "None", "nonResourceURLs": ["/x"] });
            let said = if other == "resources" { json!([{ "group": "" }]) } else { json!(["a"]) };
            rule.as_object_mut().unwrap().insert(other, said);
            refused(
                rule,
                r#"rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs"#,
            );
        }
        refused(
            json!({ "level": "None", "nonResourceURLs": ["x"] }),
            r#"rules[0].nonResourceURLs[0]: Invalid value: "x": non-resource URL rules must begin with a '/' character"#,
        );
        refused(
            json!({ "level": "None", "nonResourceURLs": ["/a*b"] }),
            r#"rules[0].nonResourceURLs[0]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule"#,
        );
        refused(
            json!({ "level": "None", "resources": [{ "group": "", "resourceNames": ["a"] }] }),
            r#"rules[0].resources.resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource"#,
        );
        let two = policy(json!([{ "level": "Foo" }, {}])).unwrap_err();
        assert!(two.starts_with("[rules[0].level: ") && two.ends_with("rules[1].level: Required value]"), "{two}");
    }

    #[test]
    fn only_a_star_matches_all_groups() {
        let policy = policy(json!([
            { "level": "None", "resources": [{ "group": "*", "resources": ["*/status", "leases"] }] },
            { "level": "Request", "resources": [{ "group": "*", "resources": ["pods/*"], "resourceNames": ["one"] }] },
            { "level": "Metadata", "resources": [{ "group": "*" }] },
        ]))
        .unwrap();
        for (group, resource, expect) in [
            ("", "pods/status", Level::None),
            ("example.org", "widgets/status", Level::None),
            ("coordination.k8s.io", "leases", Level::None),
            ("", "pods", Level::Request),
            ("metrics.k8s.io", "pods/exec", Level::Request),
            ("apps", "deployments/scale", Level::Metadata),
        ] {
            assert_eq!(
                policy.decide(None, &attributes_of("get", "a", group, resource)).level,
                expect,
                "{group} {resource}"
            );
        }
        assert_eq!(policy.decide(None, &Attributes::Path { verb: "get", path: "/version" }).level, Level::None);
        for group in ["*.k8s.io", "apps/v1", "Apps", "**"] {
            let refused = super::Policy::parse(&json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
                "rules": [{ "level": "None", "resources": [{ "group": group }] }] }));
            assert!(refused.unwrap_err().starts_with("rules[0].resources.group: Invalid value: "), "{group}");
        }
    }

    #[test]
    fn invalid_policies_are_refused() {
        let check = |document: &Value, expect: &str| assert_eq!(Policy::parse(document).unwrap_err(), expect);
        check(&Value::Null, "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy");
        let empty = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [] });
        check(&empty, "loaded illegal policy with 0 rules");
        let old = json!({ "apiVersion": "audit.k8s.io/v1beta1", "kind": "Policy", "rules": [{ "level": "None" }] });
        check(
            &old,
            "failed decoding: no kind \"Policy\" is registered for version \"audit.k8s.io/v1beta1\" in scheme \
             \"k8s.io/apiserver/pkg/audit/scheme.go:30\"",
        );
        let more =
            json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "foo": 1, "rules": [{ "level": "None" }] });
        assert!(Policy::parse(&more).is_ok());
    }

    fn attributes_of<'a>(verb: &'a str, place: &'a str, group: &'a str, resource: &'a str) -> Attributes<'a> {
        let (resource, below) =
            resource.split_once('/').map_or((resource, None), |(above, below)| (above, Some(below)));
        let namespace = Some(place).filter(|place| !place.is_empty());
        Attributes::Resource(ResourceAttributes {
            verb,
            group,
            version: "v1",
            resource,
            subresource: below,
            namespace,
            name: Some("one"),
            ..ResourceAttributes::default()
        })
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = Policy::parse(&json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "omitManagedFields": true,
            "rules": [
                { "level": "None", "users": ["carol"], "verbs": ["get"], "resources": [{ "group": "", "resources": ["configmaps"] }] },
                { "level": "Request", "userGroups": ["devs"] },
                { "level": "RequestResponse", "namespaces": ["a"], "omitStages": ["Panic"], "omitManagedFields": false },
                { "level": "Metadata", "resources": [
                    { "group": "", "resources": ["pods/log", "nodes/*", "*/status"] },
                    { "group": "apps", "resources": ["*"], "resourceNames": ["one"] },
                    { "group": "batch" },
                ] },
                { "level": "Metadata", "nonResourceURLs": ["/healthz*", "/version"] },
            ],
        }))
        .unwrap();
        let carol = User { name: "carol".to_owned(), ..User::default() };
        let dev = User { groups: vec!["devs".to_owned()], ..User::default() };
        let check = |user: Option<&User>, attributes: Attributes<'_>, expect: Level| {
            assert_eq!(policy.decide(user, &attributes).level, expect, "{attributes:?}");
        };
        check(Some(&carol), attributes_of("get", "a", "", "configmaps"), Level::None);
        check(Some(&carol), attributes_of("list", "a", "", "configmaps"), Level::RequestResponse);
        check(None, attributes_of("get", "a", "", "configmaps"), Level::RequestResponse);
        check(Some(&dev), attributes_of("get", "b", "", "configmaps"), Level::Request);
        check(Some(&dev), Attributes::Path { verb: "get", path: "/nowhere" }, Level::Request);
        for (group, resource, expect) in [
            ("", "pods/log", Level::Metadata),
            ("", "pods", Level::None),
            ("", "nodes", Level::Metadata),
            ("", "nodes/proxy", Level::Metadata),
            ("", "services/status", Level::Metadata),
            ("apps", "deployments/scale", Level::Metadata),
            ("batch", "jobs/status", Level::Metadata),
            ("rbac.authorization.k8s.io", "roles", Level::None),
        ] {
            check(Some(&carol), attributes_of("get", "", group, resource), expect);
        }
        for (path, expect) in
            [("/healthz", Level::Metadata), ("/healthz/ping", Level::Metadata), ("/version/", Level::None)]
        {
            check(None, Attributes::Path { verb: "get", path }, expect);
        }
        let all = policy.decide(None, &attributes_of("get", "a", "", "pods"));
        assert!(!all.has(Stage::RequestReceived) && !all.has(Stage::Panic) && all.has(Stage::ResponseComplete));
        assert!(
            !all.omit_managed_fields
                && policy.decide(Some(&dev), &attributes_of("get", "a", "", "pods")).omit_managed_fields
        );
    }
}
