//! Parses `policy.txt`: the roles and bindings that every cluster has.
//!
//! The file is a short form of kube-apiserver's policy. Its first lines define the format, and a test reads all of it.

use keelson_access::PolicyRule;
use keelson_access::rbac::rights_beyond;
use keelson_meta::json::{Value, json};

const POLICY: &str = include_str!("policy.txt");
/// The policy for clusters with ClusterTrustBundles. kube-apiserver adds it with the feature gate of this name. Service
/// accounts and nodes may read bundles, and kube-controller-manager may publish the bundle with the servers'
/// certificates.
const TRUST_BUNDLES: &str = "\
role system:cluster-trust-bundle-discovery
  read certificates.k8s.io clustertrustbundles
role system:node
  read certificates.k8s.io clustertrustbundles
controller kube-apiserver-serving-clustertrustbundle-publisher
  attest certificates.k8s.io signers = kubernetes.io/kube-apiserver-serving
  create,delete,list,update,watch certificates.k8s.io clustertrustbundles
  events
bind system:cluster-trust-bundle-discovery: group:system:serviceaccounts
";
/// The policy for clusters with PodCertificateRequests. kube-apiserver adds it with the feature gate of this name. Nodes
/// request certificates for their pods, and kube-controller-manager deletes old requests.
const POD_CERTIFICATES: &str = "\
role system:node
  create,get,list,watch certificates.k8s.io podcertificaterequests
controller podcertificaterequestcleaner
  delete,get,list,watch certificates.k8s.io podcertificaterequests
";

/// The resources that the server serves, and that extend the policy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PolicyExtensions {
    pub(super) trust_bundles: bool,
    pub(super) pod_certificates: bool,
}

const API_GROUP: &str = "rbac.authorization.k8s.io";
const CONTROLLER: &str = "system:controller:";
/// The namespace of the service accounts of controllers.
const CONTROLLERS_IN: &str = "kube-system";

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
/// The rule for components that report events.
const EVENTS: &str = "create,update,patch core,events.k8s.io events";

/// An object of the policy, with the plural name of its resource and its namespace.
#[derive(Debug)]
pub(super) struct PolicyObject {
    pub(super) plural: &'static str,
    pub(super) namespace: Option<String>,
    pub(super) object: Value,
}

/// All roles and bindings, roles first. Rules of extensions are merged into the roles that they extend.
///
/// # Errors
/// The line that can't be parsed.
pub(super) fn pieces(extensions: PolicyExtensions) -> Result<Vec<PolicyObject>, String> {
    let mut pieces = parse(POLICY)?;
    let mut further = Vec::new();
    for (is_served, policy) in
        [(extensions.trust_bundles, TRUST_BUNDLES), (extensions.pod_certificates, POD_CERTIFICATES)]
    {
        if is_served {
            further.extend(parse(policy)?);
        }
    }
    for mut more in further {
        let is_same = |piece: &&mut PolicyObject| {
            piece.plural == more.plural && piece.object["metadata"]["name"] == more.object["metadata"]["name"]
        };
        match pieces.iter_mut().find(is_same) {
            Some(piece) => {
                let rules = more.object.get_mut("rules").and_then(Value::as_array_mut).map(std::mem::take);
                for rule in rules.into_iter().flatten() {
                    add_rule(piece, rule).ok_or_else(|| format!("a role has no rules: {piece:?}"))?;
                }
            }
            None => pieces.push(more),
        }
    }
    Ok(pieces)
}

fn parse(policy: &str) -> Result<Vec<PolicyObject>, String> {
    let mut pieces: Vec<PolicyObject> = Vec::new();
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
        read.ok_or_else(|| format!("the policy has an invalid line: {line:?}"))?;
    }
    pieces.extend(bindings);
    Ok(pieces)
}

/// `NAME [= LABEL] [+LABEL]`, or with a namespace before the name.
fn role_of(text: &str) -> Option<PolicyObject> {
    let mut words = text.split(' ');
    let (namespace, name) = place(words.next()?);
    let mut object = json!({ "metadata": metadata(name) });
    while let Some(word) = words.next() {
        if let Some(label) = word.strip_prefix('+') {
            object["metadata"]["labels"][format!("{API_GROUP}/aggregate-to-{label}")] = json!("true");
        } else {
            let selector = json!({ "matchLabels": { format!("{API_GROUP}/aggregate-to-{}", words.next()?): "true" } });
            object["aggregationRule"] = json!({ "clusterRoleSelectors": [selector] });
        }
    }
    let plural = if namespace.is_some() { "roles" } else { "clusterroles" };
    if object.get("aggregationRule").is_none() {
        object["rules"] = json!([]);
    }
    Some(PolicyObject { plural, namespace, object })
}

/// `NAME [ROLE]: SUBJECTS`, or with a namespace before the name.
fn binding_of(text: &str) -> Option<PolicyObject> {
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
    Some(PolicyObject { plural, namespace, object })
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

fn add_rule(role: &mut PolicyObject, rule: Value) -> Option<()> {
    role.object.get_mut("rules")?.as_array_mut()?.push(rule);
    Some(())
}

/// The rights in `wanted` rules that the `present` rules do not grant, one rule for each right as upstream writes them.
pub(super) fn missing_rules(present: &[Value], wanted: &[Value]) -> Vec<Value> {
    let [present, wanted] = [present, wanted].map(|rules| PolicyRule::each(rules).collect::<Vec<_>>());
    rights_beyond(&present, &wanted).iter().map(PolicyRule::to_value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_bootstrap_policy_yields_an_object() {
        let pieces = pieces(PolicyExtensions::default()).unwrap();
        let find = |plural: &str, name: &str| {
            let found = pieces.iter().find(|piece| piece.plural == plural && piece.object["metadata"]["name"] == name);
            &found.unwrap_or_else(|| panic!("{plural} {name}")).object
        };
        let edit = find("clusterroles", "edit");
        assert_eq!(edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
        let selector = json!([{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}]);
        assert_eq!(edit["aggregationRule"]["clusterRoleSelectors"], selector);
        let locking = find("roles", "system::leader-locking-kube-scheduler");
        let leases = json!({"verbs": ["create", "get", "list", "update", "watch"], "apiGroups": ["coordination.k8s.io"], "resources": ["leasecandidates"]});
        assert_eq!(locking["rules"][1], leases);
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
    fn trust_bundles_add_roles_and_a_rule_for_nodes() {
        let plain = pieces(PolicyExtensions::default()).unwrap();
        let with = pieces(PolicyExtensions { trust_bundles: true, pod_certificates: false }).unwrap();
        assert_eq!(with.len(), plain.len() + 4);
        let rules = |pieces: &[PolicyObject], name: &str| {
            let role =
                pieces.iter().find(|piece| piece.plural == "clusterroles" && piece.object["metadata"]["name"] == name);
            role.map(|role| role.object["rules"].as_array().unwrap().clone())
        };
        let read = rule_of("read certificates.k8s.io clustertrustbundles").unwrap();
        let node = rules(&with, "system:node").unwrap();
        assert_eq!((node.len(), node.last()), (rules(&plain, "system:node").unwrap().len() + 1, Some(&read)));
        let publisher = "system:controller:kube-apiserver-serving-clustertrustbundle-publisher";
        assert_eq!(rules(&with, publisher).map(|rules| rules.len()), Some(3));
        assert_eq!(rules(&plain, publisher), None);
        let bound = with.iter().filter(|piece| piece.plural == "clusterrolebindings").count();
        assert_eq!(bound, plain.iter().filter(|piece| piece.plural == "clusterrolebindings").count() + 2);
    }

    #[test]
    fn pod_certificates_add_a_cleaner_and_a_rule_for_nodes() {
        let plain = pieces(PolicyExtensions::default()).unwrap();
        let with = pieces(PolicyExtensions { trust_bundles: false, pod_certificates: true }).unwrap();
        assert_eq!(with.len(), plain.len() + 2);
        let node = with.iter().find(|piece| piece.object["metadata"]["name"] == "system:node").unwrap();
        let rule = rule_of("create,get,list,watch certificates.k8s.io podcertificaterequests").unwrap();
        assert_eq!(node.object["rules"].as_array().unwrap().last(), Some(&rule));
    }

    #[test]
    fn each_right_that_is_missing_is_a_rule_of_its_own() {
        let rules = |texts: &[&str]| texts.iter().map(|text| rule_of(text).unwrap()).collect::<Vec<_>>();
        let check = |present: &[&str], wanted: &str, missing: &[&str]| {
            assert_eq!(missing_rules(&rules(present), &rules(&[wanted])), rules(missing), "{present:?} {wanted}");
        };
        check(&["read core pods"], "get core pods", &[]);
        check(
            &["get core pods"],
            "get,list core pods,services",
            &["list core pods", "get core services", "list core services"],
        );
        check(&["get core pods = a"], "get core pods", &["get core pods"]);
        check(&["get core pods = a"], "get core pods = a,b", &["get core pods = b"]);
        check(&["* * *"], "create apps deployments/scale", &[]);
        check(&["get /api"], "get /api /api/v1", &["get /api/v1"]);
        check(&["* *"], "get /metrics", &[]);
    }
}
