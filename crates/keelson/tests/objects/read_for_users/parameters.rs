//! Tests of the parameters of admission policies, which an expression can reveal to every client.
//!
//! A user who refers to them in a policy or a binding needs the right to read them, for every verb.

use serde_json::{Value, json};

use super::{ADMISSION, APPLY, ENCODED, JSON_PATCH, Lab, MERGE, PASSWORD, message, rule};

/// Both kinds of policies, with the plural of their bindings and the verb that a parameter selector needs.
const KINDS: [(&str, &str, &str); 2] = [
    ("validatingadmissionpolicies", "validatingadmissionpolicybindings", "get"),
    ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "list"),
];
const MAPS: &str = "/api/v1/namespaces/mine/configmaps";

/// A policy with parameters of this kind, whose message contains their password.
fn policy(plural: &str, name: &str, kind: Option<(&str, &str)>) -> Value {
    let rules = json!([{ "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }]);
    let mut spec = json!({ "matchConstraints": { "resourceRules": rules } });
    let shown = if kind.is_some() { "string(params.data.password)" } else { "'none'" };
    if plural.starts_with("validating") {
        spec["validations"] = json!([{ "expression": "false", "messageExpression": shown }]);
        spec["auditAnnotations"] = json!([{ "key": "shown", "valueExpression": shown }]);
    } else {
        let copy = format!("Object{{metadata: Object.metadata{{annotations: {{'shown': {shown}}}}}}}");
        let mutation = json!({ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": copy } });
        spec["mutations"] = json!([mutation]);
        spec["reinvocationPolicy"] = json!("Never");
    }
    if let Some((api_version, kind)) = kind {
        spec["paramKind"] = json!({ "apiVersion": api_version, "kind": kind });
    }
    let kind = if plural.starts_with("validating") { "ValidatingAdmissionPolicy" } else { "MutatingAdmissionPolicy" };
    json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

fn binding(plural: &str, name: &str, policy: &str, reference: Option<Value>) -> Value {
    let mut spec = json!({ "policyName": policy });
    if plural.starts_with("validating") {
        spec["validationActions"] = json!(["Deny"]);
    }
    if let Some(mut reference) = reference {
        reference["parameterNotFoundAction"] = json!("Allow");
        spec["paramRef"] = reference;
    }
    let kind = if plural.starts_with("validating") {
        "ValidatingAdmissionPolicyBinding"
    } else {
        "MutatingAdmissionPolicyBinding"
    };
    json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

fn keys() -> Value {
    json!({ "name": "keys", "namespace": "theirs" })
}

impl Lab {
    /// Starts a server with eve, who writes policies and bindings, reads all ConfigMaps, and writes those in her
    /// namespace.
    async fn with_eve() -> Self {
        let lab = Self::start().await;
        let plurals: Vec<&str> = KINDS.iter().flat_map(|(policies, bindings, _)| [*policies, *bindings]).collect();
        let rules = json!([
            rule("admissionregistration.k8s.io", &plurals, &["get", "create", "update", "patch", "delete"]),
            rule("", &["configmaps"], &["get", "list"]),
        ]);
        lab.give("eve", "policies", None, rules).await;
        lab.give("eve", "maps", Some("mine"), json!([rule("", &["configmaps"], &["*"])])).await;
        assert_eq!(lab.asks("eve", "GET", "/api/v1/namespaces/theirs/secrets/keys", &json!({})).await.status, 403);
        lab
    }

    /// Checks that the server rejects eve's request for this field with this reason.
    async fn refuses(&self, how: &str, path: &str, body: &Value, field: &str, reason: &str) {
        let answer = self.asks("eve", how, path, body).await;
        assert_eq!(answer.status, 422, "{how} {path}: {}", answer.text());
        let expected = format!(" is invalid: {field}: Forbidden: {reason}");
        assert!(message(&answer).ends_with(&expected), "{how} {path}: {}", answer.text());
    }

    /// Checks that the server accepts eve's request.
    async fn takes(&self, how: &str, path: &str, body: &Value) {
        let answer = self.asks("eve", how, path, body).await;
        assert!(matches!(answer.status, 200 | 201), "{how} {path}: {}", answer.text());
    }

    /// Checks that no response to eve contains the password.
    async fn shows_no_password(&self) {
        for name in ["x", "y"] {
            let map = json!({ "metadata": { "name": name } });
            let text = self.asks("eve", "POST", &format!("{MAPS}?dryRun=All"), &map).await.text();
            assert!(!text.contains(PASSWORD) && !text.contains(ENCODED), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_with_param_kind_requires_get_on_all_objects_of_the_kind() {
    let lab = Lab::with_eve().await;
    let reason =
        "user eve must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
    let secret = Some(("v1", "Secret"));
    for (policies, ..) in KINDS {
        let (all, one, new) = (
            format!("{ADMISSION}/{policies}"),
            format!("{ADMISSION}/{policies}/p"),
            format!("{ADMISSION}/{policies}/q"),
        );
        let refuses = async |how: &str, path: &str, body: &Value| {
            lab.refuses(how, path, body, "spec.paramKind", reason).await;
        };
        let taken = policy(policies, "q", secret);
        refuses("POST", &all, &taken).await;
        refuses("POST", &format!("{all}?dryRun=All"), &taken).await;
        refuses(APPLY, &format!("{new}?fieldManager=eve"), &taken).await;
        lab.admin.get(&*new).await.expect(404);

        // Eve may read ConfigMaps, so only a change to another kind is rejected.
        lab.takes("POST", &all, &policy(policies, "p", None)).await;
        lab.takes("PUT", &one, &with_revision(&lab, &one, policy(policies, "p", Some(("v1", "ConfigMap")))).await)
            .await;
        refuses("PUT", &one, &with_revision(&lab, &one, policy(policies, "p", secret)).await).await;
        let kind = json!({ "spec": { "paramKind": { "kind": "Secret" } } });
        refuses(MERGE, &one, &kind).await;
        refuses(MERGE, &format!("{one}?dryRun=All"), &kind).await;
        refuses("application/strategic-merge-patch+json", &one, &kind).await;
        let replace = json!([{ "op": "replace", "path": "/spec/paramKind/kind", "value": "Secret" }]);
        refuses(JSON_PATCH, &one, &replace).await;
        refuses(APPLY, &format!("{one}?fieldManager=eve&force=true"), &policy(policies, "p", secret)).await;
        let stored = lab.admin.get(&*one).await.expect(200).json();
        assert_eq!(stored["spec"]["paramKind"]["kind"], "ConfigMap");
        lab.takes("DELETE", &one, &json!({})).await;

        // Eve may change the policy of an administrator, but not its kind.
        lab.admin.post(&*all, &policy(policies, "q", secret)).await.expect(201);
        lab.takes(MERGE, &new, &json!({ "metadata": { "labels": { "a": "b" } } })).await;
        let other = json!({ "spec": { "paramKind": { "apiVersion": "apps/v1", "kind": "Deployment" } } });
        let reason = reason.replace("kind=Secret, apiVersion=v1", "kind=Deployment, apiVersion=apps/v1");
        lab.refuses(MERGE, &new, &other, "spec.paramKind", &reason).await;
        lab.admin.delete(new).await.expect(200);
    }
    lab.shows_no_password().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_param_kind_requires_get_on_all_resources_of_its_group() {
    let lab = Lab::with_eve().await;
    let group = "policies.example.org";
    lab.give("eve", "limits", None, json!([rule(group, &["limits"], &["get"])])).await;
    for (policies, bindings, _) in KINDS {
        let all = format!("{ADMISSION}/{policies}");
        for (api_version, kind) in [("policies.example.org/v1", "Limit"), ("v1", "None"), ("v2", "ConfigMap")] {
            let reason = format!(
                "user eve must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, apiVersion={api_version})"
            );
            let unknown = policy(policies, "unknown", Some((api_version, kind)));
            lab.refuses("POST", &all, &unknown, "spec.paramKind", &reason).await;
        }
        // A policy that does not exist or has no parameters may later get parameters of any kind.
        let reason = "user eve does not have \"get\" permission on the object referenced by paramRef";
        let named = json!({ "name": "one", "namespace": "mine" });
        let bound = binding(bindings, "b", "none", Some(named.clone()));
        lab.refuses("POST", &format!("{ADMISSION}/{bindings}"), &bound, "spec.paramRef", reason).await;
        lab.admin.post(&*all, &policy(policies, "plain", None)).await.expect(201);
        let bound = binding(bindings, "b", "plain", Some(named));
        lab.refuses("POST", &format!("{ADMISSION}/{bindings}"), &bound, "spec.paramRef", reason).await;
    }
    lab.give("eve", "group", None, json!([rule(group, &["*"], &["get"])])).await;
    for (policies, ..) in KINDS {
        let known = policy(policies, "limited", Some(("policies.example.org/v1", "Limit")));
        lab.takes("POST", &format!("{ADMISSION}/{policies}"), &known).await;
    }
    // A cluster administrator by role, not by group, has the right.
    lab.bind("root", "/apis/rbac.authorization.k8s.io/v1", "clusterrole", ("ClusterRole", "cluster-admin")).await;
    for (policies, bindings, _) in KINDS {
        let unknown = policy(policies, "any", Some(("other.example.org/v1", "Limit")));
        lab.asks("root", "POST", &format!("{ADMISSION}/{policies}"), &unknown).await.expect(201);
        let bound = binding(bindings, "any", "none", Some(json!({ "name": "one" })));
        lab.asks("root", "POST", &format!("{ADMISSION}/{bindings}"), &bound).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_with_param_ref_requires_the_right_to_read_these_objects() {
    let lab = Lab::with_eve().await;
    for (policies, bindings, selecting) in KINDS {
        let (all, one) = (format!("{ADMISSION}/{bindings}"), format!("{ADMISSION}/{bindings}/b"));
        for (name, kind) in [("leak", ("v1", "Secret")), ("maps", ("v1", "ConfigMap"))] {
            lab.admin.post(format!("{ADMISSION}/{policies}"), &policy(policies, name, Some(kind))).await.expect(201);
        }
        let refuses = async |how: &str, path: &str, body: &Value, verb: &str| {
            let reason = format!("user eve does not have \"{verb}\" permission on the object referenced by paramRef");
            lab.refuses(how, path, body, "spec.paramRef", &reason).await;
        };
        let selected = || json!({ "namespace": "theirs", "selector": { "matchLabels": { "kind": "keys" } } });
        let leaking = |reference: Value| binding(bindings, "b", "leak", Some(reference));
        refuses("POST", &all, &leaking(keys()), "get").await;
        refuses("POST", &all, &leaking(json!({ "name": "keys" })), "get").await;
        refuses("POST", &all, &leaking(selected()), selecting).await;
        refuses("POST", &all, &leaking(json!({ "selector": {} })), selecting).await;
        refuses("POST", &format!("{all}?dryRun=All"), &leaking(keys()), "get").await;
        refuses(APPLY, &format!("{one}?fieldManager=eve"), &leaking(keys()), "get").await;
        lab.admin.get(&*one).await.expect(404);

        // Only the reference changes.
        lab.takes("POST", &all, &binding(bindings, "b", "leak", None)).await;
        refuses("PUT", &one, &with_revision(&lab, &one, leaking(keys())).await, "get").await;
        let mut reference = keys();
        reference["parameterNotFoundAction"] = json!("Allow");
        refuses(MERGE, &one, &json!({ "spec": { "paramRef": reference } }), "get").await;
        let add = json!([{ "op": "add", "path": "/spec/paramRef", "value": reference }]);
        refuses(JSON_PATCH, &one, &add, "get").await;
        refuses(APPLY, &format!("{one}?fieldManager=eve&force=true"), &leaking(selected()), selecting).await;
        lab.takes("DELETE", &one, &json!({})).await;
        // Only the policy changes, to one with parameters of another kind.
        lab.takes("POST", &all, &binding(bindings, "b", "maps", Some(keys()))).await;
        refuses(MERGE, &one, &json!({ "spec": { "policyName": "leak" } }), "get").await;
        lab.takes(MERGE, &one, &json!({ "spec": { "paramRef": { "name": "others" } } })).await;
        lab.takes("DELETE", &one, &json!({})).await;
    }
    lab.shows_no_password().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameter_rights_are_checked_only_when_a_binding_is_written() {
    let lab = Lab::with_eve().await;
    let (policies, bindings, _) = KINDS[0];
    let (all, one) = (format!("{ADMISSION}/{bindings}"), format!("{ADMISSION}/{bindings}/b"));
    lab.admin
        .post(format!("{ADMISSION}/{policies}"), &policy(policies, "leak", Some(("v1", "Secret"))))
        .await
        .expect(201);
    let named = json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["keys"], "verbs": ["get"] });
    lab.give("eve", "keys", Some("theirs"), json!([named])).await;
    let reason = "user eve does not have \"get\" permission on the object referenced by paramRef";
    // The right to one secret covers neither a selector nor the secrets of that name in other namespaces.
    for reference in [json!({ "namespace": "theirs", "selector": {} }), json!({ "name": "keys" })] {
        let bound = binding(bindings, "b", "leak", Some(reference));
        lab.refuses("POST", &all, &bound, "spec.paramRef", reason).await;
    }
    lab.takes("POST", &all, &binding(bindings, "b", "leak", Some(keys()))).await;
    let refused = lab.asks("eve", "POST", MAPS, &json!({ "metadata": { "name": "x" } })).await.expect(422);
    assert!(message(&refused).ends_with(&format!("denied request: {ENCODED}")), "{}", refused.text());

    lab.admin.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/theirs/rolebindings/eve-keys").await.expect(200);
    lab.takes(MERGE, &one, &json!({ "metadata": { "labels": { "a": "b" } } })).await;
    let wider = json!({ "spec": { "validationActions": ["Deny", "Audit"] } });
    lab.refuses(MERGE, &one, &wider, "spec.paramRef", reason).await;
    lab.takes(MERGE, &one, &json!({ "spec": { "paramRef": null } })).await;
}

/// An object with the revision of the stored one.
async fn with_revision(lab: &Lab, path: &str, mut object: Value) -> Value {
    let stored = lab.admin.get(path).await.expect(200).json();
    object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    object
}
