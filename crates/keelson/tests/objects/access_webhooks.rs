//! Tests of authentication and authorization webhooks: the order of calls, the cache of their responses, and failures.
//! The webhooks hang, return wrong data, die or are missing.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use keelson_server::{AuthorizationSource, AuthorizerEntry, AuthorizerKind, ReviewVersion, TokenWebhook};
use keelson_testkit::{
    HookProcess, HookReply, HookRequest, HookServer, Raw, TestServer, UpstreamServer, hook_process, upstream_answer,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::certificates::{Authority, named};

pub(super) const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const OWN: &str = "https://kubernetes.default.svc.cluster.local";
/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// The cache time in tests that do not wait for its end.
pub(super) const LONG: Duration = Duration::from_secs(3600);

/// Runs the webhook, if this program was started as its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_decides() {
    hook_process(|mood, request| if mood == "hangs" { HookReply::Hangs } else { decision(&request.body["spec"]) })
        .await;
}

/// Allows requests of ann, denies those of eve, and has no opinion about others.
fn decision(spec: &Value) -> HookReply {
    HookReply::Json(json!({ "status": match spec["user"].as_str().unwrap_or_default() {
        "ann" => json!({ "allowed": true, "reason": "it is ann" }),
        "eve" => json!({ "allowed": false, "denied": true, "reason": "it is eve" }),
        "liar" => json!({ "allowed": true, "denied": true }),
        _ => json!({ "allowed": false, "reason": "nobody known" }),
    } }))
}

/// The requests to a hook since the last read of this value.
#[derive(Clone, Default)]
struct RecordedRequests(Arc<Mutex<VecDeque<HookRequest>>>);

impl RecordedRequests {
    /// Records a request, except for those about the server's own controllers, which come at any time.
    fn note(&self, request: &HookRequest) {
        if !request.body["spec"]["user"].as_str().unwrap_or_default().starts_with("system:") {
            self.0.lock().unwrap().push_back(request.clone());
        }
    }

    /// Starts a hook with these responses, and records its requests.
    async fn hook(&self, answer: impl Fn(&Value) -> HookReply + Send + Sync + 'static) -> HookServer {
        let asked = self.clone();
        HookServer::start(&["127.0.0.1"], move |request| {
            asked.note(&request);
            std::future::ready(answer(&request.body["spec"]))
        })
        .await
    }

    fn all(&self) -> Vec<HookRequest> {
        self.0.lock().unwrap().drain(..).collect()
    }
}

/// A kubeconfig for a webhook that authenticates its caller by a token.
pub(super) fn kubeconfig(directory: &Path, name: &str, url: &str, ca_bundle: &str) -> PathBuf {
    let file = directory.join(name);
    let text = json!({
        "kind": "Config", "apiVersion": "v1", "current-context": "hook",
        "contexts": [{ "name": "hook", "context": { "cluster": "hook", "user": "server" } }],
        "clusters": [{ "name": "hook", "cluster": { "server": url, "certificate-authority-data": ca_bundle } }],
        "users": [{ "name": "server", "user": { "token": "secret" } }],
    });
    fs::write(&file, text.to_string()).unwrap();
    file
}

/// A file with a token `t-NAME` for each of some users.
fn tokens(directory: &Path) -> PathBuf {
    let file = directory.join("tokens.csv");
    let lines = ["ann", "bob", "eve", "liar"].map(|name| format!("t-{name},{name},u-{name}\n"));
    fs::write(&file, lines.concat()).unwrap();
    file
}

pub(super) async fn asks(server: &TestServer, token: &str, path: &str) -> (u16, String) {
    let answer = server.anonymous().get(path).header("authorization", format!("Bearer {token}")).await;
    (answer.status, answer.json()["message"].as_str().unwrap_or_default().to_owned())
}

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "it never becomes so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The response to a TokenReview. The name of the token selects it.
fn identity(token: &str) -> HookReply {
    let known = json!({ "username": "web", "uid": "w", "groups": ["g"], "extra": { "example.org/a": ["b"] } });
    let status = match token {
        "known" => json!({ "authenticated": true, "user": known }),
        "mine" => json!({ "authenticated": true, "user": known, "audiences": [OWN, "x"] }),
        "for-others" => json!({ "authenticated": true, "user": known, "audiences": ["x"] }),
        "fault" => json!({ "authenticated": false, "error": "it is too old" }),
        "contradiction" => {
            json!({ "authenticated": "true", "user": { "username": "admin", "groups": ["system:masters"] } })
        }
        _ => json!({ "authenticated": false, "user": { "username": "admin" } }),
    };
    match token {
        "broken" => HookReply::Closes,
        "refused" => HookReply::Other(403, Vec::new(), "no".to_owned()),
        "nonsense" => HookReply::Json(json!([])),
        _ => HookReply::Json(json!({ "kind": "TokenReview", "status": status })),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_authenticates_tokens_unknown_to_others() {
    let requests = RecordedRequests::default();
    let hook = requests.hook(|spec| identity(spec["token"].as_str().unwrap())).await;
    let files = TempDir::new().unwrap();
    let file = kubeconfig(files.path(), "tokens", &hook.url("/authn"), &hook.ca_bundle());
    let listed = tokens(files.path());
    let server = TestServer::builder()
        .configure(|config| {
            config.token_file = Some(listed);
            config.authentication.webhook = Some(TokenWebhook { file, version: ReviewVersion::V1, keep: LONG });
        })
        .start()
        .await;
    let review = async |token: &str, audiences: Value| {
        let review = json!({ "spec": { "token": token, "audiences": audiences } });
        server.raw().post(REVIEWS, &review).await.expect(201).json()["status"].clone()
    };
    let user = json!({ "username": "web", "uid": "w", "groups": ["g", "system:authenticated"], "extra": { "example.org/a": ["b"] } });
    let taken = json!({ "authenticated": true, "user": user, "audiences": [OWN] });
    assert_eq!(review("known", json!([])).await, taken);
    let sent = requests.all();
    assert_eq!((sent.len(), sent[0].path.as_str()), (1, "/authn?timeout=30s"));
    assert_eq!(sent[0].headers["authorization"], "Bearer secret");
    assert_eq!(sent[0].body["apiVersion"], "authentication.k8s.io/v1");
    assert_eq!(sent[0].body["spec"], json!({ "token": "known", "audiences": [OWN] }));
    // The response is cached for these audiences.
    assert_eq!(asks(&server, "known", "/api").await.0, 200);
    assert_eq!(asks(&server, "known", "/api/v1/pods").await.0, 403);
    assert!(requests.all().is_empty());
    assert_eq!(review("mine", json!(["x", "y"])).await["audiences"], json!(["x"]));
    assert_eq!(review("known", json!(["y"])).await, json!({ "user": {}, "error": "invalid bearer token" }));
    assert_eq!(requests.all().len(), 2);
    // The webhook does not get tokens that other authenticators accept.
    assert_eq!(asks(&server, "t-bob", "/api").await.0, 200);
    assert!(requests.all().is_empty());

    for (token, why) in [
        ("unknown", "invalid bearer token"),
        ("for-others", "invalid bearer token"),
        ("contradiction", "invalid bearer token"),
        ("fault", "[invalid bearer token, it is too old]"),
        ("nonsense", "[invalid bearer token, the answer is not an object]"),
    ] {
        assert_eq!(review(token, json!([])).await, json!({ "user": {}, "error": why }), "{token}");
        assert_eq!(asks(&server, token, "/api").await.0, 401, "{token}");
    }
    assert_eq!(requests.all().len(), 3 + 2 * 2, "that it knows nobody is remembered, that it failed is not");
    let broken = review("broken", json!([])).await["error"].as_str().unwrap().to_owned();
    assert!(broken.starts_with("[invalid bearer token, Post ") && broken.contains("EOF"), "{broken}");
    let tries = requests.all().len();
    assert!((5..=8).contains(&tries), "it is asked again, and more often where a connection was kept: {tries}");
    let refused = review("refused", json!([])).await["error"].clone();
    assert_eq!((refused, requests.all().len()), (json!("[invalid bearer token, unknown]"), 1));

    drop(hook);
    let gone = review("another", json!([])).await["error"].as_str().unwrap().to_owned();
    assert!(gone.contains("connection refused"), "{gone}");
    assert_eq!(asks(&server, "another", "/healthz").await.0, 401);
    assert_eq!(asks(&server, "known", "/api").await.0, 200, "it is remembered still");
    assert_eq!(asks(&server, "t-bob", "/api").await.0, 200);
}

/// A configuration with a webhook before RBAC, with these additional lines.
fn with_webhook(kubeconfig: &Path, lines: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: hook\n  webhook:\n    \
         subjectAccessReviewVersion: v1\n    matchConditionSubjectAccessReviewVersion: v1\n    connectionInfo: {{type: KubeConfigFile, \
         kubeConfigFile: {}}}\n{lines}- {{type: RBAC, name: rbac}}\n",
        kubeconfig.display()
    )
}

pub(super) struct Decided {
    server: TestServer,
    admin: Raw,
    file: PathBuf,
    files: TempDir,
}

impl Decided {
    pub(super) async fn start(url: &str, ca_bundle: &str, lines: &str) -> Self {
        let files = TempDir::new().unwrap();
        let hook = kubeconfig(files.path(), "hook", url, ca_bundle);
        let (file, listed) = (files.path().join("authorization.yaml"), tokens(files.path()));
        fs::write(&file, with_webhook(&hook, lines)).unwrap();
        let source = AuthorizationSource::File(file.clone());
        let server = TestServer::builder()
            .configure(|config| {
                config.token_file = Some(listed);
                config.authorization = source;
            })
            .start()
            .await;
        let admin = server.raw();
        Self { server, admin, file, files }
    }

    /// Replaces the configuration file.
    fn replace(&self, text: &str) {
        let new = self.file.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    fn write(&self, lines: &str) {
        self.replace(&with_webhook(&self.files.path().join("hook"), lines));
    }

    /// Grants users the right to list ConfigMaps.
    async fn let_list_maps(&self, users: &[&str]) {
        for role in users {
            let rules = json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"] }]);
            let made = json!({ "metadata": { "name": role }, "rules": rules });
            self.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &made).await.expect(201);
            let binding = json!({
                "metadata": { "name": role },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
                "subjects": [{ "kind": "User", "name": role }],
            });
            self.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
        }
    }

    pub(super) async fn get(&self, user: &str, path: &str) -> (u16, String) {
        asks(&self.server, &format!("t-{user}"), path).await
    }

    /// Waits until a metric has at least this value.
    async fn until_metric(&self, name: &str, least: f64) {
        until(async || {
            let text = self.admin.get("/metrics").await.expect(200).text();
            let mut lines = text.lines().map(crate::without_server);
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
            value.is_some_and(|value| value >= least)
        })
        .await;
    }
}

pub(super) const KEPT: &str =
    "    timeout: 30s\n    authorizedTTL: 1h\n    unauthorizedTTL: 1h\n    failurePolicy: NoOpinion\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_decides_first_and_gets_the_selectors() {
    let requests = RecordedRequests::default();
    let hook = requests.hook(decision).await;
    let conditions = "    matchConditions:\n    - expression: has(request.resourceAttributes)\n    - expression: \
                      request.resourceAttributes.namespace != 'private'\n";
    let cluster = Decided::start(&hook.url("/authz"), &hook.ca_bundle(), &format!("{KEPT}{conditions}")).await;
    cluster.let_list_maps(&["ann", "bob", "eve"]).await;
    assert!(requests.all().is_empty(), "members of system:masters may do anything before anybody is asked");

    let pods = "/api/v1/namespaces/a/pods?labelSelector=a%3Db,c%20in%20(d,e),!f&fieldSelector=metadata.name!%3Dx";
    assert_eq!(cluster.get("ann", pods).await.0, 200);
    let sent = requests.all();
    assert_eq!((sent.len(), sent[0].path.as_str()), (1, "/authz?timeout=30s"));
    assert_eq!(
        sent[0].body["spec"],
        json!({
            "resourceAttributes": {
                "namespace": "a", "verb": "list", "version": "v1", "resource": "pods",
                "fieldSelector": { "requirements": [{ "key": "metadata.name", "operator": "NotIn", "values": ["x"] }] },
                "labelSelector": { "requirements": [
                    { "key": "a", "operator": "In", "values": ["b"] },
                    { "key": "c", "operator": "In", "values": ["d", "e"] },
                    { "key": "f", "operator": "DoesNotExist" },
                ] },
            },
            "user": "ann", "groups": ["system:authenticated"], "uid": "u-ann",
        })
    );
    assert_eq!(cluster.get("ann", pods).await.0, 200);
    assert!(requests.all().is_empty(), "it is remembered");
    assert_eq!(cluster.get("ann", "/api/v1/namespaces/a/pods").await.0, 200);
    assert_eq!(requests.all().len(), 1, "what is selected is another question");

    let refused = |user: &str, why: &str| {
        format!(
            "pods is forbidden: User {user:?} cannot list resource \"pods\" in API group \"\" in the namespace \"a\": {why}"
        )
    };
    let list = "/api/v1/namespaces/a/pods";
    assert_eq!(cluster.get("eve", list).await, (403, refused("eve", "it is eve")));
    assert_eq!(cluster.get("bob", list).await, (403, refused("bob", "nobody known")));
    let both = "webhook subject access review returned both allow and deny response";
    assert_eq!(cluster.get("liar", list).await, (500, format!("Internal error occurred: {both}")));
    // A denial of the webhook overrides the roles; without an opinion the roles decide.
    let maps = "/api/v1/namespaces/a/configmaps";
    assert_eq!((cluster.get("eve", maps).await.0, cluster.get("bob", maps).await.0), (403, 200));
    requests.all();
    // The webhook is not called if its match conditions are false.
    assert_eq!(cluster.get("eve", "/api/v1/namespaces/private/configmaps").await.0, 200);
    assert_eq!(cluster.get("ann", "/api/v1/namespaces/private/pods").await.0, 403);
    assert_eq!(cluster.get("ann", "/metrics").await.0, 403);
    assert!(requests.all().is_empty());
    cluster
        .until_metric(r#"apiserver_authorization_match_condition_exclusions_total{name="hook",type="Webhook"}"#, 3.0)
        .await;
    let evaluations = "apiserver_authorization_match_condition_evaluation_seconds_count";
    cluster.until_metric(&format!(r#"{evaluations}{{name="hook",type="Webhook"}}"#), 3.0).await;

    // Access reviews call it too, and reviews of rules say that their list is incomplete.
    let review = json!({ "spec": { "user": "eve", "resourceAttributes": { "verb": "get", "resource": "nodes" } } });
    let status = cluster.admin.post(ACCESS, &review).await.expect(201).json()["status"].clone();
    assert_eq!(status, json!({ "allowed": false, "denied": true, "reason": "it is eve" }));
    let rules = json!({ "spec": { "namespace": "a" } });
    let rules = cluster.server.anonymous().post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &rules);
    let rules = rules.header("authorization", "Bearer t-ann").await.expect(201).json()["status"].clone();
    assert_eq!(rules["incomplete"], true);
    assert_eq!(rules["evaluationError"], "webhook authorizer does not support user rule resolution");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_can_not_be_asked_allows_nothing() {
    let mut hook = HookProcess::start("access_webhooks::the_process_that_decides").await;
    let brief = "    timeout: 10s\n    authorizedTTL: 1ms\n    unauthorizedTTL: 1ms\n    failurePolicy: ";
    let cluster = Decided::start(&hook.url("/"), &hook.ca_bundle(), &format!("{brief}NoOpinion\n")).await;
    let (pods, api) = ("/api/v1/namespaces/a/pods", "/api");
    assert_eq!(cluster.get("ann", pods).await.0, 200);
    assert_eq!(cluster.get("bob", api).await.0, 200);

    hook.be("hangs").await;
    let (status, why) = cluster.get("ann", pods).await;
    assert!(status == 500 && why.contains("context deadline exceeded"), "{status} {why}");
    // Roles decide about its failed requests, and other requests do not wait.
    assert_eq!(cluster.get("bob", api).await.0, 200);
    cluster.admin.get(pods).await.expect(200);
    for counted in ["evaluations_total", "duration_seconds_count", "evaluations_fail_open_total"] {
        let name = format!(r#"apiserver_authorization_webhook_{counted}{{name="hook",result="timeout"}}"#);
        cluster.until_metric(&name, 2.0).await;
    }
    let answered = r#"apiserver_authorization_webhook_duration_seconds_count{name="hook",result="success"}"#;
    cluster.until_metric(answered, 2.0).await;

    hook.kill().await;
    let (status, why) = cluster.get("ann", pods).await;
    assert!(status == 500 && why.contains("connection refused"), "{status} {why}");
    assert!(why.starts_with("Internal error occurred: "), "{why}");
    cluster.until_metric(r#"authorization_attempts_total{result="error"}"#, 2.0).await;
    assert_eq!(cluster.get("bob", api).await.0, 200);
    // A review has the error beside its decision, which RBAC makes here.
    let review = async |user: &str, groups: Value| {
        let asked = json!({ "path": "/api", "verb": "get" });
        let review = json!({ "spec": { "user": user, "groups": groups, "nonResourceAttributes": asked } });
        cluster.admin.post(ACCESS, &review).await.expect(201).json()["status"].clone()
    };
    let status = review("ann", json!([])).await;
    assert!(status["evaluationError"].as_str().unwrap().contains("connection refused"), "{status}");
    assert_eq!((&status["allowed"], &status["reason"], &status["denied"]), (&json!(false), &Value::Null, &Value::Null));
    let status = review("ann", json!(["system:authenticated"])).await;
    assert_eq!((&status["allowed"], &status["evaluationError"]), (&json!(true), &Value::Null));
    cluster.write(&format!("{brief}Deny\n"));
    until(async || cluster.get("bob", api).await.0 == 500).await;
    assert_eq!(review("ann", json!(["system:authenticated"])).await["denied"], true);
    cluster.admin.get(pods).await.expect(200);

    hook.restart().await;
    assert_eq!(cluster.get("ann", pods).await.0, 200);
    assert_eq!(cluster.get("bob", api).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_changes_counts_and_a_wrong_one_does_not() {
    let hook = HookServer::start(&["127.0.0.1"], |request| std::future::ready(decision(&request.body["spec"]))).await;
    let cluster = Decided::start(&hook.url("/"), &hook.ca_bundle(), KEPT).await;
    let pods = "/api/v1/namespaces/a/pods";
    assert_eq!((cluster.get("ann", pods).await.0, cluster.get("bob", pods).await.0), (200, 403));
    let reloads = |status: &str| {
        format!(r#"apiserver_authorization_config_controller_automatic_reloads_total{{status="{status}"}}"#)
    };
    cluster.write("    timeout: 1h\n");
    cluster.until_metric(&reloads("failure"), 1.0).await;
    assert_eq!(cluster.get("ann", pods).await.0, 200);
    // A reload of the file cannot add a webhook if there was none at the start.
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";
    cluster.replace(&format!("{head}authorizers: [{{type: Node, name: n}}]\n"));
    cluster.until_metric(&reloads("failure"), 2.0).await;
    assert_eq!(cluster.get("ann", pods).await.0, 200);
    cluster.replace(&format!("{head}authorizers: [{{type: RBAC, name: rbac}}]\n"));
    until(async || cluster.get("ann", pods).await.0 == 403).await;
    cluster.replace(&format!("{head}authorizers: [{{type: AlwaysAllow, name: all}}]\n"));
    until(async || cluster.get("eve", pods).await.0 == 200).await;
    let text = cluster.admin.get("/metrics").await.expect(200).text();
    let info = "\napiserver_authorization_config_controller_last_config_info{apiserver_id_hash=\"sha256:";
    assert_eq!(text.matches(info).count(), 1, "{text}");
    cluster.replace(&format!("{head}authorizers: [{{type: AlwaysDeny, name: none}}]\n"));
    until(async || cluster.get("ann", "/api").await.0 == 403).await;
    let message = r#"forbidden: User "ann" cannot get path "/api": Everything is forbidden."#;
    assert_eq!(cluster.get("ann", "/api").await.1, message);
    cluster.admin.get(pods).await.expect(200);
    cluster.until_metric(&reloads("success"), 3.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_name_one_webhook() {
    let requests = RecordedRequests::default();
    let hook = requests.hook(decision).await;
    let files = TempDir::new().unwrap();
    let file = kubeconfig(files.path(), "hook", &hook.url("/a"), &hook.ca_bundle());
    let listed = tokens(files.path());
    let entries = vec![
        AuthorizerEntry::webhook(&file, ReviewVersion::V1Beta1, LONG, LONG),
        AuthorizerEntry::new(AuthorizerKind::Rbac),
    ];
    let server = TestServer::builder()
        .configure(|config| {
            config.token_file = Some(listed);
            config.authorization = AuthorizationSource::Flags(entries);
        })
        .start()
        .await;
    assert_eq!(asks(&server, "t-ann", "/version").await.0, 200);
    let sent = requests.all();
    assert_eq!(sent[0].body["apiVersion"], "authorization.k8s.io/v1beta1");
    assert_eq!(
        sent[0].body["spec"],
        json!({
            "nonResourceAttributes": { "path": "/version", "verb": "get" }, "user": "ann", "group": ["system:authenticated"],
            "uid": "u-ann",
        })
    );
    fs::write(&file, "{}").unwrap();
    let source = AuthorizationSource::Flags(vec![AuthorizerEntry::webhook(&file, ReviewVersion::V1, LONG, LONG)]);
    let wrong = TestServer::builder().configure(|config| config.authorization = source).try_start().await;
    assert!(wrong.err().unwrap().ends_with("it has no current context"));
}

/// A server with a webhook at `/authn` that accepts every token and one at `/authz` that permits everything. Clients
/// need a certificate of this authority.
async fn demanding(clients: &str) -> UpstreamServer {
    UpstreamServer::start(&["127.0.0.1"], clients, |request| async move {
        let knows = request.uri().path() == "/authn";
        let body: Value = serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
        assert!(body["spec"].is_object());
        let known = json!({ "authenticated": true, "user": { "username": "web" } });
        let status = if knows { known } else { json!({ "allowed": true }) };
        upstream_answer(200, "application/json", json!({ "status": status }).to_string())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_certificate_files_of_webhooks_are_reloaded() {
    let (clients, foreign) = (Authority::new(), Authority::new());
    let hook = demanding(&clients.pem).await;
    let files = TempDir::new().unwrap();
    let write = |name: &str, text: &[u8]| fs::write(files.path().join(name), text).unwrap();
    let [known, unknown] = [&clients, &foreign].map(|authority| authority.sign(&named("the-server", "")));
    write("client.crt", unknown.certificate.as_bytes());
    write("client.key", unknown.key.as_bytes());
    write("ca.crt", &STANDARD.decode(hook.ca_bundle()).unwrap());
    for name in ["authn", "authz"] {
        let text = json!({
            "kind": "Config", "apiVersion": "v1", "current-context": "hook",
            "contexts": [{ "name": "hook", "context": { "cluster": "hook", "user": "server" } }],
            "clusters": [{ "name": "hook", "cluster": {
                "server": format!("https://{}/{name}", hook.addr()), "certificate-authority": "ca.crt" } }],
            "users": [{ "name": "server", "user": { "client-certificate": "client.crt", "client-key": "client.key" } }],
        });
        write(name, text.to_string().as_bytes());
    }
    write("authorization.yaml", with_webhook(&files.path().join("authz"), KEPT).as_bytes());
    let (listed, file) = (tokens(files.path()), files.path().join("authn"));
    let source = AuthorizationSource::File(files.path().join("authorization.yaml"));
    let server = TestServer::builder().configure(|config| {
        config.token_file = Some(listed);
        config.authentication.webhook = Some(TokenWebhook { file, version: ReviewVersion::V1, keep: LONG });
        config.authorization = source;
    });
    let server = server.start().await;
    // Each request has a new token and a new namespace, since responses are cached.
    let codes = async |number: usize| {
        let path = format!("/api/v1/namespaces/n{number}/pods");
        let own = asks(&server, &format!("token-{number}"), "/apis/authentication.k8s.io").await.0;
        (own, asks(&server, "t-bob", &path).await.0)
    };
    let becomes = async |from: usize, expected: (u16, u16)| {
        let begun = Instant::now();
        for number in from.. {
            let found = codes(number).await;
            if found == expected {
                return number + 1;
            }
            assert!(begun.elapsed() < PATIENCE, "it stays {found:?}");
        }
        unreachable!("numbers do not end")
    };
    let (refused, taken) = ((401, 500), (200, 200));
    assert_eq!(codes(0).await, refused, "nobody lets this server in");
    // The certificate file is replaced before its key.
    write("client.crt", known.certificate.as_bytes());
    write("client.key", known.key.as_bytes());
    let next = becomes(1, taken).await;
    write("ca.crt", foreign.pem.as_bytes());
    let next = becomes(next, refused).await;
    write("ca.crt", &STANDARD.decode(hook.ca_bundle()).unwrap());
    becomes(next, taken).await;
}
