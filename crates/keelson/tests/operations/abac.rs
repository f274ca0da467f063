//! Tests of the authorizer ABAC: policies of a file, beside RBAC and alone, and files that stop the start.
//!
//! The tests run the real binary, since only flags name a policy file.

use std::path::PathBuf;
use std::process::Stdio;

use keelson_testkit::{Answer, ProcessServer, Raw};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const POLICIES: &str = r#"
# Policies of a test
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"ann","namespace":"default","resource":"configmaps","apiGroup":"","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"system:authenticated","nonResourcePath":"/metrics*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"system:unauthenticated","nonResourcePath":"/openapi/*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"cleo","namespace":"","resource":"*","apiGroup":"*"}}
{"user":"old","namespace":"default"}
"#;

/// A directory with a policy file.
fn policies(text: &str) -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("policies.jsonl");
    std::fs::write(&file, text).unwrap();
    (directory, file)
}

async fn start(modes: &str) -> (TempDir, ProcessServer) {
    let (directory, file) = policies(POLICIES);
    let server = ProcessServer::builder(KEELSON).arg("--authorization-mode").arg(modes);
    (directory, server.arg("--authorization-policy-file").arg(file).start().await)
}

/// Requests as another user, who is authenticated.
async fn get(raw: &Raw, user: &str, path: &str) -> Answer {
    let call = raw.get(path).header("impersonate-user", user);
    call.header("impersonate-group", "system:authenticated").await
}

async fn post(raw: &Raw, user: &str, path: &str, body: &Value) -> Answer {
    let call = raw.post(path, body).header("impersonate-user", user);
    call.header("impersonate-group", "system:authenticated").await
}

#[tokio::test]
async fn policies_allow_beside_rbac_and_alone() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    for modes in ["ABAC", "RBAC,ABAC", "ABAC,RBAC"] {
        let (_directory, server) = start(modes).await;
        let raw = server.raw();
        let map = json!({"metadata": {"name": "m"}});
        get(&raw, "ann", MAPS).await.expect(200);
        let refused = post(&raw, "ann", MAPS, &map).await;
        assert_eq!(refused.status, 403, "{modes}");
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        let why = "cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"";
        assert!(message.contains(why) && message.ends_with("No policy matched."), "{message}");
        assert_eq!(get(&raw, "ann", "/api/v1/namespaces/kube-system/configmaps").await.status, 403);
        assert_eq!(get(&raw, "ann", "/api/v1/configmaps").await.status, 403);
        assert_eq!(get(&raw, "ann", "/api/v1/namespaces/default/secrets").await.status, 403);
        post(&raw, "old", MAPS, &map).await.expect(201);
        get(&raw, "bob", "/metrics").await.expect(200);
        assert_eq!(get(&raw, "bob", MAPS).await.status, 403);
        server.anonymous().get("/openapi/v2").await.expect(200);
        assert_eq!(server.anonymous().get("/metrics").await.status, 403);
        // Members of system:masters need no policy.
        raw.get("/api/v1/secrets").await.expect(200);
        let review = json!({"spec": {"namespace": "default"}});
        let rules = post(&raw, "ann", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review).await;
        if modes == "ABAC" {
            // Without RBAC the right to reviews has no role.
            assert_eq!(rules.status, 403);
        } else {
            let rules = rules.expect(201).json();
            let own = json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]});
            assert!(rules["status"]["resourceRules"].as_array().unwrap().contains(&own), "{rules}");
        }
    }
}

#[tokio::test]
async fn rights_of_policies_are_not_passed_on_by_roles() {
    let (_directory, server) = start("RBAC,ABAC").await;
    let raw = server.raw();
    // Cleo may do everything with objects without a namespace, such as cluster roles.
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let role = json!({"metadata": {"name": "all"}, "rules": rules});
    let refused = post(&raw, "cleo", "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
    // The policy allows the verb `escalate` too, as upstream's does.
    refused.expect(201);
    let (_other, file) = policies(
        r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"dan","namespace":"*","resource":"secrets","apiGroup":""}}"#,
    );
    let server = ProcessServer::builder(KEELSON).arg("--authorization-mode").arg("RBAC,ABAC");
    let server = server.arg("--authorization-policy-file").arg(file).start().await;
    let raw = server.raw();
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]);
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    raw.post(format!("{roles}/clusterroles"), &json!({"metadata": {"name": "maker"}, "rules": rules}))
        .await
        .expect(201);
    let binding = json!({
        "metadata": {"name": "maker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maker"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dan"}],
    });
    raw.post(format!("{roles}/clusterrolebindings"), &binding).await.expect(201);
    get(&raw, "dan", "/api/v1/secrets").await.expect(200);
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "secrets"}, "rules": secrets});
    let refused = post(&raw, "dan", &format!("{roles}/namespaces/default/roles"), &role).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("attempting to grant RBAC permissions not currently held"), "{}", refused.text());
}

/// Starts a server that must not start. Returns its output.
async fn refused(arguments: &[&str]) -> String {
    let directory = TempDir::new().unwrap();
    let mut command = Command::new(KEELSON);
    command.args(["serve", "--bind", "127.0.0.1:0", "--data-dir"]).arg(directory.path().join("data")).args(arguments);
    let done = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    assert!(!done.status.success());
    assert!(!directory.path().join("data/pki").exists(), "nothing is made");
    String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
}

#[tokio::test]
async fn a_file_that_is_wrong_stops_the_start() {
    let (_directory, file) = policies("{}\n{\"user\":1}\n");
    let file = file.to_str().unwrap();
    let why = refused(&["--authorization-mode", "ABAC", "--authorization-policy-file", file]).await;
    let expected = format!("error reading policy file {file}, line 2: {{\"user\":1}}: json: cannot unmarshal number");
    assert!(why.contains(&expected), "{why}");
    let why = refused(&["--authorization-mode", "ABAC", "--authorization-policy-file", "/nonexistent"]).await;
    assert!(why.contains("open /nonexistent: no such file or directory"), "{why}");
    let (directory, _) = policies("");
    let config = directory.path().join("authorizers.yaml");
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: ABAC, name: abac}]\n";
    std::fs::write(&config, text).unwrap();
    let why = refused(&["--authorization-config", config.to_str().unwrap()]).await;
    assert!(why.contains("open : no such file or directory"), "{why}");
}
