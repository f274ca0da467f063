//! Reads the roles and bindings that every cluster has out of `policy.txt`.
//!
//! The file is a short form of the reference server's policy, and says at its top how it is written; a test reads all of it.

use keelson_meta::json::{Map, Value, json};

const POLICY: &str = include_str!("policy.txt");

const API_GROUP: &str = "rbac.authorization.k8s.io";
const CONTROLLER: &str = "system:controller:";
/// The namespace of the service accounts of controllers.
const CONTROLLERS_IN: &str = "kube-system";

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
/// The rule for those who report events.
const EVENTS: &str = "create,update,patch core,events.k8s.io events";

/// An object of the policy: the plural name of its resource, its namespace if it has one, and itself.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) plural: &'static str,
    pub(super) namespace: Option<String>,
    pub(super) object: Value,
}

/// All roles and bindings, roles first.
///
/// # Errors
/// The line that can't be read.
pub(super) fn pieces() -> Result<Vec<Piece>, String> {
    parse(POLICY)
}

fn parse(policy: &str) -> Result<Vec<Piece>, String> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut bindings = Vec::new();
    for line in policy.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let read = match line.split_once(' ') {
            Some(("", rule)) => rule_of(rule.trim_start()).and_then(|rule| add_rule(pieces.last_mut()?, rule)),
            Some(("role", role)) => role_of(role).map(|role| pieces.push(role)),
            Some(("controller", name)) => {
                let role = format!("{CONTROLLER}{name}");
                bindings.extend(binding_of(&format!("{role}: account:{CONTROLLERS_IN}/{name}")));
                role_of(&role).map(|role| pieces.push(role))
            }
            Some(("bind", binding)) => binding_of(binding).map(|binding| bindings.push(binding)),
            Some(_) | None => None,
        };
        read.ok_or_else(|| format!("the policy has a line that says nothing: {line:?}"))?;
    }
    pieces.extend(bindings);
    Ok(pieces)
}

/// `NAME [= LABEL] [+LABEL]`, or with a namespace before the name.
fn role_of(text: &str) -> Option<Piece> {
    let mut words = text.split(' ');
    let (namespace, name) = place(words.next()?);
    let mut object = json!({ "metadata": metadata(name) });
    object["rules"] = json!([]);
    while let Some(word) = words.next() {
        if let Some(label) = word.strip_prefix('+') {
            object["metadata"]["labels"][format!("{API_GROUP}/aggregate-to-{label}")] = json!("true");
        } else {
            let selector = json!({ "matchLabels": { format!("{API_GROUP}/aggregate-to-{}", words.next()?): "true" } });
            object["aggregationRule"] = json!({ "clusterRoleSelectors": [selector] });
        }
    }
    let plural = if namespace.is_some() { "roles" } else { "clusterroles" };
    Some(Piece { plural, namespace, object })
}

/// `NAME [ROLE]: SUBJECTS`, or with a namespace before the name.
fn binding_of(text: &str) -> Option<Piece> {
    let (head, subjects) = text.split_once(": ").or_else(|| Some((text.strip_suffix(':')?, "")))?;
    let (binding, role) = head.split_once(' ').map_or((head, None), |(binding, role)| (binding, Some(role)));
    let (namespace, name) = place(binding);
    let subjects =
        subjects.split(',').filter(|subject| !subject.is_empty()).map(subject).collect::<Option<Vec<_>>>()?;
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let mut object = json!({
        "metadata": metadata(name),
        "roleRef": { "apiGroup": API_GROUP, "kind": kind, "name": role.unwrap_or(name) },
    });
    if !subjects.is_empty() {
        object["subjects"] = Value::Array(subjects);
    }
    let plural = if namespace.is_some() { "rolebindings" } else { "clusterrolebindings" };
    Some(Piece { plural, namespace, object })
}

fn place(text: &str) -> (Option<String>, &str) {
    match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, text),
    }
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
        "annotations": { "rbac.authorization.kubernetes.io/autoupdate": "true" },
    })
}

fn subject(text: &str) -> Option<Value> {
    let (kind, name) = text.split_once(':')?;
    Some(match kind {
        "user" => json!({ "kind": "User", "apiGroup": API_GROUP, "name": name }),
        "group" => json!({ "kind": "Group", "apiGroup": API_GROUP, "name": name }),
        "account" => {
            let (namespace, name) = name.split_once('/')?;
            json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
        }
        _ => return None,
    })
}

/// `VERBS GROUPS RESOURCES [= NAMES]`, `VERBS PATH ...`, `* *` for all paths, or `events`.
fn rule_of(text: &str) -> Option<Value> {
    let words: Vec<&str> = text.split(' ').collect();
    let verbs = || verbs(words[0]);
    Some(match words.as_slice() {
        ["events"] => return rule_of(EVENTS),
        [_, "*"] => json!({ "verbs": verbs(), "nonResourceURLs": ["*"] }),
        [_, paths @ ..] if !paths.is_empty() && paths.iter().all(|path| path.starts_with('/')) => {
            json!({ "verbs": verbs(), "nonResourceURLs": sorted(paths.iter().copied()) })
        }
        [_, groups, resources, named @ ..] => {
            let groups = groups.split(',').map(|group| if group == "core" { "" } else { group });
            let mut rule = json!({
                "verbs": verbs(), "apiGroups": sorted(groups), "resources": sorted(resources.split(',')),
            });
            match named {
                [] => {}
                ["=", names] => rule["resourceNames"] = json!(sorted(names.split(','))),
                _ => return None,
            }
            rule
        }
        _ => return None,
    })
}

fn verbs(text: &str) -> Vec<&str> {
    sorted(text.split(',').flat_map(|verb| match verb {
        "read" => READ.to_vec(),
        "write" => WRITE.to_vec(),
        verb => vec![verb],
    }))
}

fn sorted<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut texts: Vec<&str> = texts.collect();
    texts.sort_unstable();
    texts
}

fn add_rule(role: &mut Piece, rule: Value) -> Option<()> {
    role.object.get_mut("rules")?.as_array_mut()?.push(rule);
    Some(())
}

/// The rules among `wanted` that `present` do not allow altogether.
pub(super) fn missing_rules(present: &[Value], wanted: &[Value]) -> Vec<Value> {
    wanted.iter().filter(|rule| !allowed(present, rule)).cloned().collect()
}

/// Whether everything that a rule allows is allowed by one of others.
fn allowed(present: &[Value], wanted: &Value) -> bool {
    let any = |field: &str| texts(wanted, field).len().max(1);
    let parts = texts(wanted, "verbs").into_iter().flat_map(|verb| {
        let places: Vec<[Option<&str>; 4]> = match texts(wanted, "nonResourceURLs").as_slice() {
            [] => (0..any("apiGroups") * any("resources") * any("resourceNames"))
                .map(|number| {
                    let (group, rest) = (number % any("apiGroups"), number / any("apiGroups"));
                    let (resource, name) = (rest % any("resources"), rest / any("resources"));
                    let at = |field: &str, index: usize| texts(wanted, field).get(index).copied();
                    [None, at("apiGroups", group), at("resources", resource), at("resourceNames", name)]
                })
                .collect(),
            urls => urls.iter().map(|url| [Some(*url), None, None, None]).collect(),
        };
        places.into_iter().map(move |place| (verb, place))
    });
    let mut parts = parts;
    parts.all(|(verb, place)| present.iter().any(|rule| allows(rule, verb, place)))
}

fn allows(rule: &Value, verb: &str, [url, group, resource, name]: [Option<&str>; 4]) -> bool {
    let has = |field: &str, wanted: &str| texts(rule, field).iter().any(|text| *text == "*" || *text == wanted);
    if !has("verbs", verb) {
        return false;
    }
    if let Some(url) = url {
        let covers = |text: &&str| {
            *text == "*" || *text == url || text.strip_suffix('*').is_some_and(|start| url.starts_with(start))
        };
        return texts(rule, "nonResourceURLs").iter().any(covers);
    }
    let named = texts(rule, "resourceNames");
    has("apiGroups", group.unwrap_or_default())
        && has("resources", resource.unwrap_or_default())
        && (named.is_empty() || name.is_some_and(|name| named.contains(&name)))
}

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    let list = rule.as_object().and_then(|rule: &Map| rule.get(field)?.as_array());
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_policy_says_something() {
        let pieces = pieces().unwrap();
        let find = |plural: &str, name: &str| {
            let found = pieces.iter().find(|piece| piece.plural == plural && piece.object["metadata"]["name"] == name);
            &found.unwrap_or_else(|| panic!("{plural} {name}")).object
        };
        let edit = find("clusterroles", "edit");
        assert_eq!(edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
        let selector = json!([{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}]);
        assert_eq!(edit["aggregationRule"]["clusterRoleSelectors"], selector);
        let locking = find("roles", "system::leader-locking-kube-scheduler");
        let named = json!({"verbs": ["get", "update"], "apiGroups": [""], "resources": ["configmaps"],
            "resourceNames": ["kube-scheduler"]});
        assert_eq!(locking["rules"][1], named);
        let events = json!({"verbs": ["create", "patch", "update"], "apiGroups": ["", "events.k8s.io"], "resources": ["events"]});
        assert_eq!(find("clusterroles", "system:controller:ttl-controller")["rules"][1], events);
        let bound = &find("clusterrolebindings", "system:controller:ttl-controller")["subjects"];
        assert_eq!(*bound, json!([{"kind": "ServiceAccount", "name": "ttl-controller", "namespace": "kube-system"}]));
        assert_eq!(
            find("clusterroles", "cluster-admin")["rules"][1],
            json!({"verbs": ["*"], "nonResourceURLs": ["*"]})
        );
        assert_eq!(find("clusterrolebindings", "system:node")["subjects"], Value::Null);
        assert!(pieces.len() > 100, "{}", pieces.len());
        assert!(parse("role a\n  get core").is_err() && parse("rule a").is_err() && parse("bind a").is_err());
    }

    #[test]
    fn a_rule_is_missing_when_others_do_not_allow_all_of_it() {
        let rule = |text: &str| rule_of(text).unwrap();
        let check = |present: &[&str], wanted: &str, missing: bool| {
            let present: Vec<Value> = present.iter().map(|text| rule(text)).collect();
            let wanted = [rule(wanted)];
            assert_eq!(!missing_rules(&present, &wanted).is_empty(), missing, "{present:?} {wanted:?}");
        };
        check(&["read core pods"], "get core pods", false);
        check(&["read core pods"], "get core pods,services", true);
        check(&["get core pods", "get core services"], "get core pods,services", false);
        check(&["* * *"], "create apps deployments/scale", false);
        check(&["get core pods = a"], "get core pods", true);
        check(&["get core pods"], "get core pods = a", false);
        check(&["get core pods = a"], "get core pods = a,b", true);
        check(&["get /api/*"], "get /api/v1", false);
        check(&["get /api"], "get /api/v1", true);
        check(&["* *"], "get /metrics", false);
    }
}
