//! ABAC: policies of a file, one JSON object a line, that allow requests by user, group, resource and path.
//!
//! The file is read once. Policies only allow: a request that no policy matches goes to the next authorizer. Rules and
//! messages are upstream's.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures::future::{BoxFuture, Either, ready};
use keelson_codec::yaml;
use keelson_meta::go_format::quote;
use keelson_meta::json::{Map, Value, ValueKind};

use crate::authorize::{Attributes, Authorizer, Decision, PendingVerdict, ResourceAttributes, Verdict};
use crate::rbac::{HeldRules, PolicyRule};
use crate::user::{AUTHENTICATED, User};
use crate::watched_file::read_bounded;

/// The largest policy file in bytes.
const FILE_BYTES: u64 = 16 << 20;
/// The length of a line from which upstream's reader refuses it.
const LINE_BYTES: usize = 64 << 10;
const GROUP: &str = "abac.authorization.kubernetes.io";
const ALL: &str = "*";

/// The policies of a file.
pub struct Abac {
    policies: Vec<Policy>,
    unversioned_lines: usize,
}

/// The reason why a policy file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbacError {
    /// The file cannot be read.
    #[error("open {file}: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// The error of the system.
        why: String,
    },
    /// A line is not a policy.
    #[error("error reading policy file {file}, line {line}: {text}: {why}")]
    Line {
        /// The file.
        file: String,
        /// The number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
        /// The fault.
        why: String,
    },
    /// The file cannot be read to its end.
    #[error("error reading policy file {file}: {why}")]
    File {
        /// The file.
        file: String,
        /// The fault.
        why: String,
    },
}

/// One policy. Empty values match nothing, except for a user or group beside the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Policy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    non_resource_path: String,
}

impl Abac {
    /// Reads a policy file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not a policy.
    pub fn read(file: &Path) -> Result<Self, AbacError> {
        let name = file.display().to_string();
        let bytes = read_bounded(file, FILE_BYTES).map_err(|error| {
            let why = match std::fs::metadata(file) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
                _ => error.to_string(),
            };
            AbacError::Unreadable { file: name.clone(), why }
        })?;
        Self::parse(&name, &bytes)
    }

    /// The number of lines in the older form without a version.
    pub fn unversioned_lines(&self) -> usize {
        self.unversioned_lines
    }

    fn parse(file: &str, bytes: &[u8]) -> Result<Self, AbacError> {
        let (mut policies, mut unversioned_lines) = (Vec::new(), 0);
        for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if line.len() >= LINE_BYTES {
                return Err(AbacError::File { file: file.to_owned(), why: "bufio.Scanner: token too long".to_owned() });
            }
            let trimmed = line.trim_ascii();
            if trimmed.is_empty() || trimmed.starts_with(b"#") {
                continue;
            }
            let (policy, is_versioned) = Policy::parse(trimmed).map_err(|why| AbacError::Line {
                file: file.to_owned(),
                line: at + 1,
                text: String::from_utf8_lossy(line).into_owned(),
                why,
            })?;
            policies.push(policy);
            unversioned_lines += usize::from(!is_versioned);
        }
        Ok(Self { policies, unversioned_lines })
    }

    fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        match self.policies.iter().any(|policy| policy.allows(user, attributes)) {
            true => Verdict::new(Decision::Allow, ""),
            false => Verdict::new(Decision::NoOpinion, "No policy matched."),
        }
    }

    fn rules_of(&self, user: &User, namespace: Option<&str>) -> HeldRules {
        let namespace = namespace.unwrap_or_default();
        let own = self
            .policies
            .iter()
            .filter(|policy| policy.is_for(user) && (policy.namespace == ALL || policy.namespace == namespace));
        HeldRules { shown: own.flat_map(Policy::rules).map(Arc::new).collect(), ..HeldRules::default() }
    }
}

impl Authorizer for Abac {
    /// Cost: comparisons with each policy, as upstream.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        Either::Left(ready(self.decide(user, attributes)))
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        Box::pin(ready(self.rules_of(user, namespace)))
    }
}

impl fmt::Debug for Abac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Abac").field("policies", &self.policies.len()).finish()
    }
}

impl Policy {
    /// Parses a line. Returns false as well for a policy without a version.
    fn parse(line: &[u8]) -> Result<(Self, bool), String> {
        let value = yaml::parse(line).map_err(|error| error.to_string())?.value;
        let Some(object) = value.as_object() else {
            return Err("couldn't get version/kind; json parse error: the line is not an object".to_owned());
        };
        let texts = Texts { object, place: "Policy" };
        let (version, kind) = (texts.text("apiVersion")?, texts.text("kind")?);
        let is_kind = kind.is_empty() || kind == "Policy";
        match version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/')) {
            Some("v1beta1") if kind == "Policy" => Ok((Self::versioned(object)?, true)),
            Some("v0") if is_kind => Ok((Self::unversioned(&texts)?, false)),
            None if is_kind && version.is_empty() => Ok((Self::unversioned(&texts)?, false)),
            _ => Err(format!("no kind {} is registered for version {}", quote(kind), quote(version))),
        }
    }

    fn versioned(object: &Map) -> Result<Self, String> {
        let empty = Map::default();
        let spec = match object.get("spec") {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(spec)) => spec,
            Some(other) => return Err(mistyped("Policy.spec", "v1beta1.PolicySpec", other)),
        };
        let spec = Texts { object: spec, place: "PolicySpec.spec" };
        let text = |name: &str| spec.text(name).map(str::to_owned);
        let mut policy = Self {
            user: text("user")?,
            group: text("group")?,
            readonly: spec.flag("readonly")?,
            api_group: text("apiGroup")?,
            resource: text("resource")?,
            namespace: text("namespace")?,
            non_resource_path: text("nonResourcePath")?,
        };
        policy.name_authenticated();
        Ok(policy)
    }

    /// Converts a policy of the form without a version: absent values match more than in the later form.
    fn unversioned(texts: &Texts<'_>) -> Result<Self, String> {
        let text = |name: &str| texts.text(name).map(str::to_owned);
        let [user, group, resource, namespace] = [text("user")?, text("group")?, text("resource")?, text("namespace")?];
        let or_all = |value: &str| if value.is_empty() { ALL.to_owned() } else { value.to_owned() };
        let is_for_paths = namespace.is_empty() && resource.is_empty();
        let mut policy = Self {
            readonly: texts.flag("readonly")?,
            api_group: ALL.to_owned(),
            resource: or_all(&resource),
            namespace: or_all(&namespace),
            non_resource_path: if is_for_paths { ALL.to_owned() } else { String::new() },
            user,
            group,
        };
        if policy.user.is_empty() && policy.group.is_empty() {
            AUTHENTICATED.clone_into(&mut policy.group);
        }
        policy.name_authenticated();
        Ok(policy)
    }

    /// A user or group `*` means all authenticated users.
    fn name_authenticated(&mut self) {
        if self.user == ALL || self.group == ALL {
            self.user.clear();
            AUTHENTICATED.clone_into(&mut self.group);
        }
    }

    fn allows(&self, user: &User, attributes: &Attributes<'_>) -> bool {
        let verb = match attributes {
            Attributes::Resource(ResourceAttributes { verb, .. }) | Attributes::Path { verb, .. } => *verb,
        };
        let is_allowed_verb = !self.readonly || matches!(verb, "get" | "list" | "watch");
        is_allowed_verb && self.is_for(user) && self.is_about(attributes)
    }

    fn is_for(&self, user: &User) -> bool {
        let Self { user: name, group, .. } = self;
        (!name.is_empty() || !group.is_empty())
            && (name.is_empty() || *name == user.name)
            && (group.is_empty() || user.is_in(group))
    }

    fn is_about(&self, attributes: &Attributes<'_>) -> bool {
        let is = |stated: &str, value: &str| stated == ALL || stated == value;
        match attributes {
            Attributes::Resource(ResourceAttributes { group, resource, namespace, .. }) => {
                is(&self.namespace, namespace.unwrap_or_default())
                    && is(&self.resource, resource)
                    && is(&self.api_group, group)
            }
            Attributes::Path { path, .. } => {
                let stated = self.non_resource_path.as_str();
                stated == *path || stated.ends_with('*') && path.starts_with(stated.trim_end_matches('*'))
            }
        }
    }

    fn rules(&self) -> impl Iterator<Item = PolicyRule> {
        let verbs: &[&str] = if self.readonly { &["get", "list", "watch"] } else { &[ALL] };
        let verbs = move || verbs.iter().map(ToString::to_string).collect();
        let resources = (!self.resource.is_empty()).then(|| PolicyRule {
            verbs: verbs(),
            api_groups: vec![self.api_group.clone()],
            resources: vec![self.resource.clone()],
            ..PolicyRule::default()
        });
        let paths = (!self.non_resource_path.is_empty()).then(|| PolicyRule {
            verbs: verbs(),
            non_resource_urls: vec![self.non_resource_path.clone()],
            ..PolicyRule::default()
        });
        resources.into_iter().chain(paths)
    }
}

/// The fields of an object. Unknown ones are ignored, as upstream does.
struct Texts<'v> {
    object: &'v Map,
    place: &'static str,
}

impl<'v> Texts<'v> {
    fn text(&self, name: &str) -> Result<&'v str, String> {
        match self.object.get(name) {
            None | Some(Value::Null) => Ok(""),
            Some(value) => value.as_str().ok_or_else(|| mistyped(&format!("{}.{name}", self.place), "string", value)),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        match self.object.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| mistyped(&format!("{}.{name}", self.place), "bool", value)),
        }
    }
}

fn mistyped(field: &str, wanted: &str, found: &Value) -> String {
    let found = match found {
        Value::Number(_) => "number",
        other => ValueKind::from_value(other).name(),
    };
    format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Abac {
        Abac::parse("f", text.as_bytes()).unwrap()
    }

    fn versioned(spec: &str) -> Abac {
        parsed(&format!(r#"{{"apiVersion":"{GROUP}/v1beta1","kind":"Policy","spec":{{{spec}}}}}"#))
    }

    fn user(name: &str, groups: &[&str]) -> User {
        User { name: name.to_owned(), groups: groups.iter().map(ToString::to_string).collect(), ..User::default() }
    }

    fn resource<'a>(verb: &'a str, group: &'a str, resource: &'a str, namespace: &'a str) -> Attributes<'a> {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        Attributes::Resource(ResourceAttributes { verb, group, resource, namespace, ..ResourceAttributes::default() })
    }

    fn path<'a>(verb: &'a str, path: &'a str) -> Attributes<'a> {
        Attributes::Path { verb, path }
    }

    #[test]
    fn users_and_groups_select_policies() {
        let all = r#""namespace":"*","resource":"*","apiGroup":"*""#;
        let (ann, bob) = (user("ann", &["a", "system:authenticated"]), user("bob", &["system:authenticated"]));
        let nobody = user("system:anonymous", &["system:unauthenticated"]);
        let check = |spec: &str, expected: [bool; 3]| {
            let abac = versioned(&format!("{spec}{all}"));
            let allows = |user| abac.decide(user, &resource("create", "", "pods", "n")).is_allowed();
            assert_eq!([&ann, &bob, &nobody].map(allows), expected, "{spec}");
        };
        check("", [false, false, false]);
        check(r#""user":"ann","#, [true, false, false]);
        check(r#""group":"a","#, [true, false, false]);
        check(r#""user":"bob","group":"a","#, [false, false, false]);
        check(r#""user":"ann","group":"a","#, [true, false, false]);
        check(r#""user":"*","#, [true, true, false]);
        check(r#""group":"*","#, [true, true, false]);
        check(r#""group":"system:authenticated","#, [true, true, false]);
        check(r#""group":"system:unauthenticated","#, [false, false, true]);
    }

    #[test]
    fn resources_and_paths_are_matched_as_upstream_matches_them() {
        let ann = user("ann", &[]);
        let abac = versioned(r#""user":"ann","namespace":"n","resource":"pods","apiGroup":"","readonly":true"#);
        let allows = |abac: &Abac, attributes: &Attributes<'_>| abac.decide(&ann, attributes).is_allowed();
        for verb in ["get", "list", "watch"] {
            assert!(allows(&abac, &resource(verb, "", "pods", "n")));
        }
        for refused in [
            resource("create", "", "pods", "n"),
            resource("deletecollection", "", "pods", "n"),
            resource("get", "apps", "pods", "n"),
            resource("get", "", "secrets", "n"),
            resource("get", "", "pods", "m"),
            resource("get", "", "pods", ""),
            path("get", "/api"),
        ] {
            assert!(!allows(&abac, &refused), "{refused:?}");
        }
        let cluster = versioned(r#""user":"ann","resource":"nodes""#);
        assert!(allows(&cluster, &resource("delete", "", "nodes", "")));
        assert!(!allows(&cluster, &resource("get", "", "nodes", "n")));
        let paths = versioned(r#""user":"ann","nonResourcePath":"/logs/*","readonly":true"#);
        assert!(allows(&paths, &path("get", "/logs/a")) && allows(&paths, &path("get", "/logs/")));
        assert!(!allows(&paths, &path("post", "/logs/a")) && !allows(&paths, &path("get", "/logs")));
        assert!(!allows(&paths, &resource("get", "", "pods", "")));
        assert!(allows(&versioned(r#""user":"ann","nonResourcePath":"*""#), &path("post", "/x")));
    }

    #[test]
    fn unversioned_policies_are_converted() {
        let ann = user("ann", &["system:authenticated"]);
        let allows = |line: &str, attributes: &Attributes<'_>| parsed(line).decide(&ann, attributes).is_allowed();
        assert!(allows("{}", &resource("create", "x", "pods", "n")) && allows("{}", &path("post", "/x")));
        assert!(allows(r#"{"user":"ann","resource":"pods"}"#, &resource("create", "x", "pods", "n")));
        assert!(!allows(r#"{"user":"ann","resource":"pods"}"#, &path("get", "/x")));
        assert!(!allows(r#"{"user":"ann","namespace":"n"}"#, &path("get", "/x")));
        assert!(!allows(r#"{"user":"bob"}"#, &path("get", "/x")));
        assert!(allows(r#"{"user":"*","readonly":true}"#, &path("get", "/x")));
        assert!(!allows(r#"{"user":"*","readonly":true}"#, &path("put", "/x")));
    }

    #[test]
    fn malformed_policy_lines_are_reported_with_their_position() {
        let refused = |text: &str| Abac::parse("/f", text.as_bytes()).err().map(|error| error.to_string()).unwrap();
        let head = format!(r#""apiVersion":"{GROUP}/v1beta1","kind":"Policy""#);
        let at =
            |line: usize, text: &str, why: &str| format!("error reading policy file /f, line {line}: {text}: {why}");
        let other = r#"{"apiVersion":"v1","kind":"Policy"}"#;
        assert_eq!(
            refused(&format!("# a comment\n\n{other}\n")),
            at(3, other, "no kind \"Policy\" is registered for version \"v1\"")
        );
        let odd = format!(r#"{{{head},"spec":{{"user":1}}}}"#);
        let why = "json: cannot unmarshal number into Go struct field PolicySpec.spec.user of type string";
        assert_eq!(refused(&odd), at(1, &odd, why));
        let odd = format!(r#"{{{head},"spec":{{"readonly":"true"}}}}"#);
        let why = "json: cannot unmarshal string into Go struct field PolicySpec.spec.readonly of type bool";
        assert_eq!(refused(&odd), at(1, &odd, why));
        assert!(refused("{\"user\":").starts_with("error reading policy file /f, line 1: {\"user\":: "));
        assert!(refused("[]").contains("line 1: []: "));
        let long = format!("{{\"user\":\"{}\"}}", "x".repeat(LINE_BYTES));
        assert_eq!(refused(&long), "error reading policy file /f: bufio.Scanner: token too long");
        let missing = Abac::read("/nonexistent/policies".as_ref()).unwrap_err();
        assert_eq!(missing.to_string(), "open /nonexistent/policies: no such file or directory");
    }

    #[test]
    fn rules_are_those_of_the_users_policies() {
        let text = [
            format!(
                r#"{{"apiVersion":"{GROUP}/v1beta1","kind":"Policy","spec":{{"user":"ann","namespace":"n","resource":"pods","readonly":true}}}}"#
            ),
            format!(
                r#"{{"apiVersion":"{GROUP}/v1beta1","kind":"Policy","spec":{{"group":"a","namespace":"*","nonResourcePath":"/x"}}}}"#
            ),
        ];
        let abac = parsed(&text.join("\n"));
        let ann = user("ann", &["a"]);
        let rules = |namespace| abac.rules_of(&ann, namespace).shown;
        assert_eq!(rules(Some("n")).len(), 2);
        assert_eq!(rules(Some("n"))[0].verbs, ["get", "list", "watch"]);
        assert_eq!(rules(None).iter().map(|rule| rule.non_resource_urls.clone()).collect::<Vec<_>>(), [["/x"]]);
        assert!(abac.rules_of(&user("bob", &[]), Some("n")).shown.is_empty());
    }
}
