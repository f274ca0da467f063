//! Tests of the server's own calls. An internal mark identifies them, not a user name. They skip authorizers, webhooks
//! and policies where the server needs them to become ready.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use keelson_server::AuthorizationSource;
use keelson_testkit::{Endpoint, HookReply, HookServer, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::access_webhooks::kubeconfig;
use super::certificates::{Authority, named};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
/// The user name of the server itself.
const SERVER: &str = "system:apiserver";
/// The group with all rights.
const MASTERS: &str = "system:masters";
/// The longest time for a start, or for background work of the server.
const PATIENCE: Duration = Duration::from_secs(60);
/// The largest timeout of a webhook.
const HOOK_SECONDS: u32 = 30;

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "it never becomes so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Restarts the server, and checks the duration.
async fn restart(server: &mut TestServer) {
    tokio::time::timeout(PATIENCE, server.restart()).await.expect("the server becomes ready");
    until(async || server.raw().get("/readyz").await.status == 200).await;
}

/// A rule of a webhook or a policy that matches all writes.
fn everything() -> Value {
    json!({ "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*",
        "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"] })
}

/// Creates a policy that denies everything that its rule matches, and its binding.
async fn policy(raw: &Raw, name: &str, rule: &Value, more: &Value, of_binding: &Value) {
    let mut spec =
        json!({ "matchConstraints": { "resourceRules": [rule] }, "validations": [{ "expression": "false" }] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let policy = json!({ "metadata": { "name": name }, "spec": spec });
    let mut spec = json!({ "policyName": name, "validationActions": ["Deny"] });
    spec.as_object_mut().unwrap().extend(of_binding.as_object().unwrap().clone());
    let binding = json!({ "metadata": { "name": name }, "spec": spec });
    raw.post(format!("{ADMISSION}/validatingadmissionpolicies"), &policy).await.expect(201);
    raw.post(format!("{ADMISSION}/validatingadmissionpolicybindings"), &binding).await.expect(201);
}

/// Clients with the server's user name: one has it from a certificate, one from a token, and one impersonates it.
struct Namesakes {
    server: TestServer,
    _files: TempDir,
    certified: Raw,
}

impl Namesakes {
    async fn start() -> Self {
        let files = TempDir::new().unwrap();
        let authority = Authority::new();
        let [tokens, clients] = ["tokens.csv", "clients.crt"].map(|name| files.path().join(name));
        fs::write(&tokens, format!("t,{SERVER},u,{MASTERS}\n")).unwrap();
        fs::write(&clients, &authority.pem).unwrap();
        let server = TestServer::builder().configure(|config| {
            config.token_file = Some(tokens);
            config.pki.client_ca = Some(clients);
        });
        let server = server.start().await;
        let pair = authority.sign(&named(SERVER, MASTERS));
        let mut pki = server.running().pki().clone();
        (pki.admin.certificate_pem, pki.admin.key_pem) = (pair.certificate, pair.key);
        let path = files.path().join("client.kubeconfig");
        fs::write(&path, pki.kubeconfig(&server.url())).unwrap();
        let certified = Endpoint::from_kubeconfig(path).await.unwrap().raw();
        Self { server, _files: files, certified }
    }

    /// Sends a POST as each of them, and returns the responses.
    async fn post(&self, path: &str, body: impl Fn(&str) -> Value) -> Vec<(u16, Value)> {
        let (token, admin) = (self.server.anonymous(), self.server.raw());
        let calls = [
            self.certified.post(path, &body("certificate")),
            token.post(path, &body("token")).header("authorization", "Bearer t"),
            admin.post(path, &body("user")).header("impersonate-user", SERVER).header("impersonate-group", MASTERS),
        ];
        let mut answers = Vec::new();
        for call in calls {
            let answer = call.await;
            answers.push((answer.status, answer.json()));
        }
        answers
    }
}

#[tokio::test]
async fn users_with_the_name_of_the_server_have_no_privileges() {
    let namesakes = Namesakes::start().await;
    let raw = namesakes.server.raw();
    // Their create of a storage version does not keep its status, as for every client.
    let status =
        json!({ "storageVersions": [{ "apiServerID": "x", "encodingVersion": "v1", "decodableVersions": ["v1"] }] });
    let version =
        |who: &str| json!({ "metadata": { "name": format!("example.org.{who}s") }, "spec": {}, "status": status });
    for (code, made) in namesakes.post(VERSIONS, version).await {
        assert_eq!((code, made["status"].get("storageVersions")), (201, None), "{made}");
    }
    let rule = json!({ "apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "resources": ["leases"], "operations": ["*"] });
    policy(&raw, "no-leases", &rule, &json!({}), &json!({})).await;
    let lease = |who: &str| json!({ "metadata": { "generateName": format!("{who}-") }, "spec": {} });
    until(async || raw.post(LEASES, &lease("admin")).await.status == 422).await;
    for (code, refused) in namesakes.post(LEASES, lease).await {
        assert_eq!(code, 422, "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("'no-leases'"), "{refused}");
    }
    // The server itself still renews its identity lease.
    let own = async || {
        let all = raw.get(LEASES).await.expect(200).json();
        let of_server =
            |lease: &&Value| lease["metadata"]["labels"]["apiserver.kubernetes.io/identity"] == "kube-apiserver";
        all["items"].as_array().unwrap().iter().find(of_server).map(|lease| lease["spec"]["renewTime"].clone())
    };
    let before = own().await;
    assert!(before.is_some());
    until(async || own().await != before).await;
}

/// Creates webhooks and policies that match everything and reject it, each in another way.
async fn refuse_everything(raw: &Raw, hook: &HookServer) {
    let webhook = |kind: &str, client: Value| {
        json!({ "metadata": { "name": "everything" }, "webhooks": [{
            "name": format!("{kind}.example.org"), "clientConfig": client, "rules": [everything()], "failurePolicy": "Fail",
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": HOOK_SECONDS,
        }] })
    };
    let missing = json!({ "service": { "namespace": "nowhere", "name": "nothing" } });
    let hanging = json!({ "url": hook.url("/hangs"), "caBundle": hook.ca_bundle() });
    for (kind, client) in [("validating", missing), ("mutating", hanging)] {
        let path = format!("{ADMISSION}/{kind}webhookconfigurations");
        raw.post(path, &webhook(kind, client)).await.expect(201);
    }
    policy(raw, "everything", &everything(), &json!({}), &json!({})).await;
    let kind = json!({ "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" } });
    let missing = json!({ "paramRef": { "name": "none", "namespace": "default", "parameterNotFoundAction": "Deny" } });
    policy(raw, "parameters", &everything(), &kind, &missing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_passes_webhooks_and_policies_that_refuse_everything() {
    let hook = HookServer::start(&["127.0.0.1"], |_| async { HookReply::Hangs }).await;
    let mut server = TestServer::builder().sqlite().start().await;
    // The next start recreates these objects if they are missing.
    let made = [
        format!("{RBAC}/clusterroles/view"),
        format!("{RBAC}/clusterrolebindings/system:discovery"),
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/probes".to_owned(),
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.batch".to_owned(),
        format!("{MAPS}/kube-apiserver-legacy-service-account-token-tracking"),
        format!("{MAPS}/extension-apiserver-authentication"),
    ];
    let raw = server.raw();
    refuse_everything(&raw, &hook).await;
    let map = json!({ "metadata": { "name": "x" } });
    until(async || raw.post(format!("{MAPS}?dryRun=All&timeout=1s"), &map).await.status != 201).await;
    // Deletions are rejected too, so the test first removes everything that rejects.
    let free = async |raw: &Raw| {
        for kind in
            ["validatingadmissionpolicybindings", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
        {
            // The policies match the deletions of webhook configurations until the cache has the deletion of their
            // bindings.
            until(async || raw.delete(format!("{ADMISSION}/{kind}")).await.status == 200).await;
        }
        raw.delete(format!("{ADMISSION}/validatingadmissionpolicies")).await.expect(200);
        until(async || raw.post(format!("{MAPS}?dryRun=All"), &map).await.status == 201).await;
    };
    free(&raw).await;
    for path in &made {
        raw.delete(path).await.expect(200);
    }
    refuse_everything(&raw, &hook).await;
    restart(&mut server).await;
    let raw = server.raw();
    for path in &made {
        until(async || raw.get(path).await.status == 200).await;
    }
    let view = raw.get(&made[0]).await.expect(200).json();
    assert!(!view["rules"].as_array().unwrap().is_empty(), "a role that is made of others is filled");
    until(async || raw.post(format!("{MAPS}?dryRun=All&timeout=1s"), &map).await.status != 201).await;
    free(&raw).await;
    raw.post(MAPS, &map).await.expect(201);
}

#[tokio::test]
async fn refused_bootstrap_objects_do_not_delay_readiness() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let message = format!("{MAPS}/extension-apiserver-authentication");
    // A full quota, and a binding to another role with a finalizer.
    let quotas = "/api/v1/namespaces/kube-system/resourcequotas";
    let hard = json!({ "count/configmaps": "0" });
    raw.post(quotas, &json!({ "metadata": { "name": "full" }, "spec": { "hard": hard } })).await.expect(201);
    let limits = |quota: Value| quota["status"]["hard"] == hard;
    if !limits(raw.get(format!("{quotas}/full")).await.expect(200).json()) {
        let status = json!({ "status": { "hard": hard, "used": { "count/configmaps": "0" } } });
        raw.patch(format!("{quotas}/full/status"), "application/merge-patch+json", &status).await.expect(200);
    }
    raw.delete(&message).await.expect(200);
    let bindings = format!("{RBAC}/clusterrolebindings");
    let mut binding = raw.get(format!("{bindings}/system:discovery")).await.expect(200).json();
    raw.delete(format!("{bindings}/system:discovery")).await.expect(200);
    binding["roleRef"]["name"] = json!("view");
    binding["metadata"] = json!({ "name": "system:discovery", "finalizers": ["example.org/held"] });
    raw.post(&bindings, &binding).await.expect(201);
    raw.delete(format!("{RBAC}/clusterroles/system:volume-scheduler")).await.expect(200);

    restart(&mut server).await;
    let raw = server.raw();
    raw.get(format!("{RBAC}/clusterroles/system:volume-scheduler")).await.expect(200);
    assert_eq!(raw.get(&message).await.status, 404);
    raw.delete(format!("{quotas}/full")).await.expect(200);
    until(async || raw.get(&message).await.status == 200).await;
    let release = json!({ "metadata": { "finalizers": null } });
    raw.patch(format!("{bindings}/system:discovery"), "application/merge-patch+json", &release).await;
    until(async || {
        raw.get(format!("{bindings}/system:discovery")).await.json()["roleRef"]["name"] == "system:discovery"
    })
    .await;
}

fn hanging(directory: &Path, hook: &HookServer) -> AuthorizationSource {
    let file = kubeconfig(directory, "hook", &hook.url("/authz"), &hook.ca_bundle());
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: hook\n  webhook:\n    \
         subjectAccessReviewVersion: v1\n    matchConditionSubjectAccessReviewVersion: v1\n    connectionInfo: {{type: KubeConfigFile, \
         kubeConfigFile: {}}}\n    timeout: {HOOK_SECONDS}s\n    authorizedTTL: 1h\n    unauthorizedTTL: 1h\n    failurePolicy: NoOpinion\n\
         - {{type: RBAC, name: rbac}}\n",
        file.display()
    );
    let file = directory.join("authorization.yaml");
    fs::write(&file, text).unwrap();
    AuthorizationSource::File(file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_server_becomes_ready_while_an_authorization_webhook_hangs() {
    let files = TempDir::new().unwrap();
    let hook = HookServer::start(&["127.0.0.1"], |_| async { HookReply::Hangs }).await;
    let source = hanging(files.path(), &hook);
    let builder = TestServer::builder().configure(|config| config.authorization = source);
    let server = tokio::time::timeout(PATIENCE, builder.start()).await.expect("the server becomes ready");
    let raw = server.raw();
    until(async || raw.get("/readyz").await.status == 200).await;
    let edit = raw.get(format!("{RBAC}/clusterroles/edit")).await.expect(200).json();
    assert!(!edit["rules"].as_array().unwrap().is_empty());
    raw.post(MAPS, &json!({ "metadata": { "name": "x" } })).await.expect(201);
}
