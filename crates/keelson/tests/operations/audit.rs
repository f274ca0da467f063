//! Tests of audit events: each level and stage in the log, and requests whose events cannot be written.
//!
//! The events equal those of kube-apiserver for the same requests.

mod admission;
mod requests;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::Method;
use keelson_server::AuditMode;
use keelson_testkit::{Answer, Call, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The timeout for events.
const PATIENCE: Duration = Duration::from_secs(120);

/// A policy with a different level for each of several namespaces.
const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, nonResourceURLs: ["/healthz*", "/readyz*", "/livez*", /metrics]}
- {level: None, users: ["system:apiserver"]}
- {level: None, userGroups: ["system:serviceaccounts:kube-system"]}
- {level: RequestResponse, namespaces: [all]}
- {level: Request, namespaces: [sent]}
- {level: Metadata, namespaces: [meta]}
- {level: RequestResponse, namespaces: [bare], omitManagedFields: true, omitStages: [RequestReceived, ResponseStarted]}
- {level: RequestResponse, resources: [{group: authentication.k8s.io}]}
- {level: RequestResponse, nonResourceURLs: [/version, /nonsense]}
- {level: Metadata, omitStages: [RequestReceived]}
"#;

/// A server with an audit log, and the users bob and admin with tokens.
struct Audited {
    server: TestServer,
    admin: Raw,
    files: TempDir,
}

impl Audited {
    async fn start() -> Self {
        let files = TempDir::new().unwrap();
        let path = |name: &str| files.path().join(name);
        fs::write(path("policy.yaml"), POLICY).unwrap();
        fs::write(path("tokens.csv"), "t-bob,bob,u-bob\nt-admin,admin,u-admin,system:masters\n").unwrap();
        let (policy, tokens, log) = (path("policy.yaml"), path("tokens.csv"), path("logs/audit.log"));
        let server = TestServer::builder().configure(move |config| {
            config.token_file = Some(tokens);
            config.registry.revision_wait = PATIENCE;
            config.audit.policy_file = Some(policy);
            config.audit.log.path = Some(log);
        });
        let server = server.start().await;
        let admin = server.raw();
        for namespace in ["all", "sent", "meta", "bare"] {
            admin.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.expect(201);
        }
        Self { server, admin, files }
    }

    fn log(&self) -> PathBuf {
        self.files.path().join("logs/audit.log")
    }

    /// The events of a request in the log so far.
    fn written(&self, id: &str) -> Vec<Value> {
        let lines = fs::read_to_string(self.log()).unwrap_or_default();
        // The last line may be incomplete.
        let events = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["auditID"] == id).collect()
    }

    /// Sends a request as a user of the token file. Waits for the last event, and returns the response and the events.
    async fn events(&self, user: &str, call: impl FnOnce(&Raw) -> Call) -> (Answer, Vec<Value>) {
        let id = format!("{user}-{}", next_number());
        let raw = self.server.anonymous();
        let mut call = call(&raw).header("audit-id", &id).header("user-agent", "recorder/1.0");
        if !user.is_empty() {
            call = call.header("authorization", format!("Bearer t-{user}"));
        }
        let answer = call.await;
        assert_eq!(answer.headers["audit-id"], id);
        let begun = Instant::now();
        loop {
            let events = self.written(&id);
            let is_last = |event: &Value| {
                event["stage"] == "ResponseComplete"
                    || event["stage"] == "ResponseStarted" && event["user"] == json!({})
            };
            if events.iter().any(is_last) {
                return (answer, events.into_iter().map(masked).collect());
            }
            assert!(begun.elapsed() < PATIENCE, "{id}: {events:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A unique number.
fn next_number() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An event without the fields that differ in each run.
fn masked(mut event: Value) -> Value {
    let members = event.as_object_mut().unwrap();
    for (member, expect) in [
        ("kind", json!("Event")),
        ("apiVersion", json!("audit.k8s.io/v1")),
        ("sourceIPs", json!(["127.0.0.1"])),
        ("userAgent", json!("recorder/1.0")),
    ] {
        assert_eq!(members.remove(member), Some(expect), "{member}");
    }
    for time in ["requestReceivedTimestamp", "stageTimestamp"] {
        let text = members.remove(time).unwrap();
        let text = text.as_str().unwrap();
        assert!(text.len() == "2026-01-02T03:04:05.000000Z".len() && text.ends_with('Z'), "{time}: {text}");
    }
    assert!(members.remove("auditID").is_some());
    event
}

/// The common part of the events of a user's request for a config map.
fn event(level: &str, stage: &str, verb: &str, uri: &str, name: &str) -> Value {
    let namespace = uri.split('/').nth(4).unwrap();
    let mut object = json!({ "resource": "configmaps", "namespace": namespace, "apiVersion": "v1" });
    if !name.is_empty() {
        object["name"] = json!(name);
    }
    let user = json!({ "username": "admin", "uid": "u-admin", "groups": ["system:masters", "system:authenticated"] });
    json!({ "level": level, "stage": stage, "requestURI": uri, "verb": verb, "user": user, "objectRef": object })
}

/// Adds a response to the event.
fn answered(mut event: Value, code: u16) -> Value {
    event["responseStatus"] = json!({ "metadata": {}, "code": code });
    event["annotations"] = json!({ "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "" });
    event
}

fn map(name: &str) -> Value {
    json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": name }, "data": { "a": "b" } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_audit_level_logs_its_parts_of_a_request() {
    let audited = Audited::start().await;
    for (namespace, level) in [("all", "RequestResponse"), ("sent", "Request"), ("meta", "Metadata")] {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let one = format!("{maps}/a");
        let (answer, events) = audited.events("admin", |raw| raw.post(&maps, &map("a"))).await;
        let mut last = answered(event(level, "ResponseComplete", "create", &maps, "a"), 201);
        if level != "Metadata" {
            last["requestObject"] = map("a");
        }
        if level == "RequestResponse" {
            last["responseObject"] = answer.json();
        }
        assert_eq!(events, [event(level, "RequestReceived", "create", &maps, ""), last]);

        let (answer, events) = audited.events("admin", |raw| raw.get(&one)).await;
        let mut last = answered(event(level, "ResponseComplete", "get", &one, "a"), 200);
        if level == "RequestResponse" {
            last["responseObject"] = answer.json();
        }
        assert_eq!(events, [event(level, "RequestReceived", "get", &one, "a"), last]);

        let change = json!({ "data": { "x": "y" } });
        let patch = |raw: &Raw| raw.patch(&one, "application/merge-patch+json", &change);
        let (answer, events) = audited.events("admin", patch).await;
        let mut last = answered(event(level, "ResponseComplete", "patch", &one, "a"), 200);
        if level != "Metadata" {
            last["requestObject"] = change.clone();
        }
        if level == "RequestResponse" {
            last["responseObject"] = answer.json();
        }
        assert_eq!(events[1..], [last]);

        let (answer, events) = audited.events("admin", |raw| raw.delete(&one)).await;
        let mut last = answered(event(level, "ResponseComplete", "delete", &one, "a"), 200);
        let details = json!({ "name": "a", "kind": "configmaps", "uid": answer.json()["details"]["uid"] });
        last["responseStatus"] = json!({ "metadata": {}, "status": "Success", "details": details, "code": 200 });
        if level == "RequestResponse" {
            last["responseObject"] = answer.json();
        }
        assert_eq!(events[1..], [last]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_audited_as_json_and_watches_in_three_stages() {
    let audited = Audited::start().await;
    let maps = "/api/v1/namespaces/all/configmaps";
    audited.admin.post(maps, &map("a")).await.expect(201);
    let (plain, events) = audited.events("admin", |raw| raw.get(maps)).await;
    let mut last = answered(event("RequestResponse", "ResponseComplete", "list", maps, ""), 200);
    last["responseObject"] = plain.json();
    assert_eq!(events[1], last);
    for form in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
        let (_, events) = audited.events("admin", |raw| raw.get(format!("{maps}/a")).header("accept", form)).await;
        let shown = &events[1]["responseObject"];
        assert_eq!((&shown["kind"], &shown["data"]), (&json!("ConfigMap"), &json!({ "a": "b" })), "{form}: {shown}");
    }
    let (pretty, events) = audited.events("admin", |raw| raw.get(format!("{maps}?pretty=true"))).await;
    assert_eq!(events[1]["responseObject"], pretty.json());

    let (_, events) =
        audited.events("admin", |raw| raw.get("/api/v1/namespaces/bare/configmaps/kube-root-ca.crt")).await;
    assert_eq!(events.len(), 1, "two stages are left out: {events:?}");
    audited.admin.post("/api/v1/namespaces/bare/configmaps", &map("a")).await.expect(201);
    for path in ["/api/v1/namespaces/bare/configmaps/a", "/api/v1/namespaces/bare/configmaps"] {
        let (answer, events) = audited.events("admin", |raw| raw.get(path)).await;
        assert!(
            answer.text().contains("managedFields") && !events[0].to_string().contains("managedFields"),
            "{events:?}"
        );
        assert_eq!(events[0]["responseObject"]["kind"], answer.json()["kind"]);
    }

    let watch = format!("{maps}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da");
    let (_, events) = audited.events("admin", |raw| raw.get(&watch)).await;
    let of = |stage| event("RequestResponse", stage, "watch", &watch, "a");
    let expect = [of("RequestReceived"), answered(of("ResponseStarted"), 200), answered(of("ResponseComplete"), 200)];
    assert_eq!(events, expect);
}

/// The log has the first event of a hanging request before the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_audit_logs_a_request_before_its_response() {
    let audited = Audited::start().await;
    let id = format!("waiting-{}", next_number());
    let future = "/api/v1/namespaces/all/configmaps?resourceVersion=999999999&resourceVersionMatch=NotOlderThan";
    let waiting = tokio::spawn(audited.admin.get(future).header("audit-id", &id).try_send());
    let begun = Instant::now();
    while audited.written(&id).is_empty() {
        assert!(begun.elapsed() < PATIENCE && !waiting.is_finished());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stages: Vec<Value> = audited.written(&id).into_iter().map(|mut event| event["stage"].take()).collect();
    assert_eq!(stages, ["RequestReceived"]);
    assert!(!waiting.is_finished(), "the revision is one that nobody has written");
    waiting.abort();
    while audited.written(&id).len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "the end of a request whose client has gone is written down too");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_audited_with_user_and_reason() {
    let audited = Audited::start().await;
    let maps = "/api/v1/namespaces/all/configmaps";
    let (answer, events) = audited.events("nobody", |raw| raw.post(maps, &map("a"))).await;
    assert_eq!((answer.status, events.len()), (401, 1), "{events:?}");
    let mut started = event("RequestResponse", "ResponseStarted", "create", maps, "");
    started["user"] = json!({});
    let refusal = json!({ "metadata": {}, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401 });
    started["responseStatus"] = refusal;
    started["responseObject"] = answer.json();
    assert_eq!(events, [started]);

    let (answer, events) = audited.events("bob", |raw| raw.post(maps, &map("a"))).await;
    let mut last = answered(event("RequestResponse", "ResponseComplete", "create", maps, ""), 403);
    last["user"] = json!({ "username": "bob", "uid": "u-bob", "groups": ["system:authenticated"] });
    last["annotations"]["authorization.k8s.io/decision"] = json!("forbid");
    last["responseObject"] = answer.json();
    let mut status = answer.json();
    for member in ["kind", "apiVersion"] {
        status.as_object_mut().unwrap().remove(member);
    }
    last["responseStatus"] = status;
    assert_eq!(events[1], last);

    let (answer, events) = audited.events("admin", |raw| raw.get(format!("{maps}?timeout=soon"))).await;
    assert_eq!((answer.status, &events[0]["stage"]), (400, &json!("ResponseStarted")), "{events:?}");
    let wrong = map("Bad_Name");
    let (_, events) = audited.events("admin", |raw| raw.post(maps, &wrong)).await;
    assert_eq!(
        (&events[1]["objectRef"]["name"], &events[1]["responseStatus"]["code"]),
        (&json!("Bad_Name"), &json!(422))
    );
    assert_eq!(events[1]["requestObject"], wrong);
    let unknown = "/apis/nope.example.org/v1/namespaces/all/things";
    let (_, events) = audited.events("admin", |raw| raw.get(unknown)).await;
    assert_eq!(events[1]["responseStatus"], json!({ "metadata": {}, "code": 404 }));
    assert_eq!(events[1]["objectRef"]["apiGroup"], "nope.example.org");
    assert!(events[1]["responseObject"].is_null());
    let (_, events) = audited.events("admin", |raw| raw.get("/nonsense")).await;
    assert_eq!(events[1]["responseStatus"], json!({ "metadata": {}, "code": 404 }));
    assert!(events[1]["objectRef"].is_null() && events[1]["verb"] == "get");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impersonation_proxies_and_authorization_decisions_are_audited() {
    let audited = Audited::start().await;
    let maps = "/api/v1/namespaces/meta/configmaps";
    let acting =
        |raw: &Raw| raw.get(maps).header("impersonate-user", "x").header("impersonate-group", "system:masters");
    let (_, events) = audited.events("admin", acting).await;
    let other = json!({ "username": "x", "groups": ["system:masters", "system:authenticated"] });
    assert!(events[0]["impersonatedUser"].is_null() && events[1]["impersonatedUser"] == other, "{events:?}");
    assert_eq!(events[1]["user"]["username"], "admin");
    assert!(events[1]["authenticationMetadata"].is_null(), "admin may act as anybody");
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([
        { "apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"] },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["impersonate-on:user-info:list"] },
    ]);
    audited
        .admin
        .post(format!("{rbac}/clusterroles"), &json!({ "metadata": { "name": "acts" }, "rules": rules }))
        .await
        .expect(201);
    let acts = json!({ "metadata": { "name": "acts" }, "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "acts" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob" }] });
    audited.admin.post(format!("{rbac}/clusterrolebindings"), &acts).await.expect(201);
    let (answer, events) = audited.events("bob", |raw| raw.get(maps).header("impersonate-user", "x")).await;
    assert_eq!((answer.status, &events[1]["impersonatedUser"]["username"]), (403, &json!("x")), "{events:?}");
    assert_eq!(events[1]["authenticationMetadata"], json!({ "impersonationConstraint": "impersonate:user-info" }));
    let id = "by-proxies";
    let forwarded =
        audited.admin.get(maps).header("x-forwarded-for", "203.0.113.7, 203.0.113.8").header("audit-id", id);
    forwarded.await.expect(200);
    let begun = Instant::now();
    let line = loop {
        let log = fs::read_to_string(audited.log()).unwrap();
        if let Some(line) = log.lines().find(|line| line.contains(id) && line.ends_with('}')) {
            break line.to_owned();
        }
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(line.contains(r#""sourceIPs":["203.0.113.7","203.0.113.8","127.0.0.1"]"#), "{line}");
    let role = json!({ "metadata": { "name": "r" }, "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob" }] });
    audited.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &role).await.expect(201);
    let (_, events) = audited.events("bob", |raw| raw.get(maps)).await;
    let reason = r#"RBAC: allowed by ClusterRoleBinding "r" of ClusterRole "cluster-admin" to User "bob""#;
    assert_eq!(events[1]["annotations"]["authorization.k8s.io/reason"], reason);
    let (_, events) = audited.events("admin", |raw| raw.get("/api/v1/componentstatuses")).await;
    assert_eq!(events[0]["annotations"]["k8s.io/deprecated"], "true");
    audited
        .admin
        .post("/api/v1/namespaces/meta/serviceaccounts", &json!({ "metadata": { "name": "sa" } }))
        .await
        .expect(201);
    let request = json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {} });
    let token = "/api/v1/namespaces/meta/serviceaccounts/sa/token";
    let (_, events) = audited.events("admin", |raw| raw.post(token, &request)).await;
    let id = events[1]["annotations"]["authentication.kubernetes.io/issued-credential-id"].as_str().unwrap();
    assert!(id.starts_with("JTI=") && id.len() == 40, "{id}");
    let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background" });
    let all = "/api/v1/namespaces/all/configmaps/a";
    audited.admin.post("/api/v1/namespaces/all/configmaps", &map("a")).await.expect(201);
    let (_, events) = audited.events("admin", |raw| raw.call(Method::DELETE, all).json(&options)).await;
    let internal =
        json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", "propagationPolicy": "Background" });
    assert_eq!(events[1]["requestObject"], internal);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_of_a_client_is_taken_over_whatever_it_is() {
    let server = TestServer::start().await;
    let raw = server.anonymous();
    for id in ["word", &"x".repeat(70), "a b;c"] {
        for path in ["/livez", "/api/v1/pods", "/nowhere"] {
            assert_eq!(raw.get(path).header("audit-id", id).await.headers["audit-id"], id, "{path}");
        }
    }
    assert_eq!(raw.get("/livez").header("audit-id", "").await.headers["audit-id"].len(), 36);
}

/// The value of the metric whose line begins with this text.
async fn counted(server: &TestServer, metric: &str) -> f64 {
    let metrics = server.raw().get("/metrics").await.expect(200).text();
    let line = metrics.lines().find(|line| line.starts_with(metric)).unwrap_or_else(|| panic!("{metric}\n{metrics}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Starts a server that audits everything, on a log file that cannot be written.
async fn with_a_full_disk(mode: AuditMode, files: &TempDir) -> TestServer {
    let policy = files.path().join("policy.yaml");
    let all = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: None, nonResourceURLs: [/metrics]}\n";
    fs::write(&policy, format!("{all}- level: RequestResponse\n")).unwrap();
    let server = TestServer::builder().configure(move |config| {
        config.audit.policy_file = Some(policy);
        config.audit.log.path = Some("/dev/full".into());
        config.audit.log.backend.mode = mode;
    });
    server.start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_events_and_ends_nothing() {
    let files = TempDir::new().unwrap();
    for (mode, code) in [(AuditMode::Batch, 201), (AuditMode::Blocking, 201), (AuditMode::BlockingStrict, 500)] {
        let server = with_a_full_disk(mode, &files).await;
        let maps = "/api/v1/namespaces/default/configmaps";
        let before = counted(&server, "apiserver_audit_requests_rejected_total").await;
        let answer = server.raw().post(maps, &map("a")).await;
        assert_eq!(answer.status, code, "{mode:?}: {}", answer.text());
        let begun = Instant::now();
        while counted(&server, r#"apiserver_audit_error_total{plugin="log"}"#).await == 0.0 {
            assert!(begun.elapsed() < PATIENCE, "{mode:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let rejected = counted(&server, "apiserver_audit_requests_rejected_total").await - before;
        assert_eq!(rejected >= 1.0, mode == AuditMode::BlockingStrict, "{mode:?}: {rejected}");
        assert!(counted(&server, "apiserver_audit_event_total").await >= 1.0);
        assert!(counted(&server, r#"apiserver_audit_level_total{level="RequestResponse"}"#).await >= 1.0);
        assert!(server.running().supervisor().tasks().iter().all(|(_, failure)| failure.is_none()));
    }
}

#[tokio::test]
async fn invalid_audit_settings_stop_the_start_with_upstream_errors() {
    let files = TempDir::new().unwrap();
    let policy = files.path().join("policy.yaml");
    let refused = async |text: &str, change: fn(&mut keelson_server::AuditConfig)| {
        fs::write(&policy, text).unwrap();
        let file = policy.clone();
        let server = TestServer::builder().configure(move |config| {
            config.audit.policy_file = Some(file);
            change(&mut config.audit);
        });
        let told = server.try_start().await.err().expect("it is refused");
        told.replace(&policy.display().to_string(), "FILE")
    };
    let policy_of = |rules: &str| format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}\n");
    let nothing = |_: &mut keelson_server::AuditConfig| {};
    for (text, why) in [
        (String::new(), "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy"),
        (policy_of("[]"), "loaded illegal policy with 0 rules"),
        (policy_of("[{verbs: [get]}]"), "rules[0].level: Required value"),
    ] {
        assert_eq!(refused(&text, nothing).await, format!("loading audit policy file: {why}: from file FILE"));
    }
    let good = policy_of("[{level: None}]");
    let told = refused(&good, |audit| {
        audit.log.path = Some("-".into());
        audit.log.max_backups = -1;
    });
    assert_eq!(told.await, "--audit-log-maxbackup -1 can't be a negative number");
    let told = refused(&good, |audit| {
        audit.log.path = Some("-".into());
        audit.log.backend.batching.buffer = 0;
    });
    assert_eq!(told.await, "invalid audit batch log buffer size 0, must be a positive number");
    let missing = refused(&good, |audit| audit.webhook.config_file = Some("/nowhere/webhook.yaml".into())).await;
    let message = "reading --audit-webhook-config-file: /nowhere/webhook.yaml: No such file";
    assert!(missing.starts_with(message), "{missing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_annotations_of_policies_are_recorded() {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let audited = Audited::start().await;
    let rules =
        json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }]);
    let policy = json!({ "metadata": { "name": "vap" }, "spec": {
        "matchConstraints": { "resourceRules": rules },
        "validations": [
            { "expression": "size(object.data) < 2", "message": "too much" },
            { "expression": "!has(object.data.a)", "message": "no a" },
        ],
        "auditAnnotations": [{ "key": "size", "valueExpression": "'size ' + string(size(object.data))" }],
    } });
    audited.admin.post(POLICIES, &policy).await.expect(201);
    let binding = json!({ "metadata": { "name": "vap-b" }, "spec": { "policyName": "vap", "validationActions": ["Audit", "Warn"] } });
    audited.admin.post(POLICIES.replace("policies", "policybindings"), &binding).await.expect(201);
    let many: Vec<Value> =
        (0..60).map(|number| json!({ "expression": "!has(object.data.c)", "message": format!("{number}") })).collect();
    let policy = json!({ "metadata": { "name": "many" },
        "spec": { "matchConstraints": { "resourceRules": rules }, "validations": many } });
    audited.admin.post(POLICIES, &policy).await.expect(201);
    let binding =
        json!({ "metadata": { "name": "many-b" }, "spec": { "policyName": "many", "validationActions": ["Audit"] } });
    audited.admin.post(POLICIES.replace("policies", "policybindings"), &binding).await.expect(201);
    let failures_of = |events: &[Value]| {
        let failures = events[1]["annotations"]["validation.policy.admission.k8s.io/validation_failure"].as_str();
        failures.map(|failures| serde_json::from_str::<Vec<Value>>(failures).unwrap()).unwrap_or_default()
    };
    let begun = Instant::now();
    loop {
        let with_c = json!({ "metadata": { "generateName": "c-" }, "data": { "c": "1" } });
        let (_, events) = audited.events("admin", |raw| raw.post("/api/v1/namespaces/meta/configmaps", &with_c)).await;
        let failures = failures_of(&events);
        if !failures.is_empty() {
            assert_eq!(failures.len(), 50, "the annotation has a limit");
            let texts = failures.iter().map(|failure| failure["message"].as_str().unwrap().to_owned());
            assert!(texts.eq((0..50).map(|at: usize| at.to_string())));
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{events:?}");
    }
    let begun = Instant::now();
    let annotations = loop {
        let two = json!({ "metadata": { "generateName": "two-" }, "data": { "a": "1", "b": "2" } });
        let (answer, events) =
            audited.events("admin", |raw| raw.post("/api/v1/namespaces/meta/configmaps", &two)).await;
        assert_eq!(answer.status, 201);
        if events[1]["annotations"]["vap/size"].is_string() {
            break events[1]["annotations"].clone();
        }
        // A policy takes effect when the server has read it.
        assert!(begun.elapsed() < PATIENCE, "{events:?}");
    };
    assert_eq!(annotations["vap/size"], "size 2");
    let failures = annotations["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap();
    let failure = |message: &str, place: u32| {
        json!({ "message": message, "policy": "vap", "binding": "vap-b", "expressionIndex": place,
            "validationActions": ["Audit", "Warn"] })
    };
    let expect = json!([failure("too much", 0), failure("no a", 1)]);
    assert_eq!(serde_json::from_str::<Value>(failures).unwrap(), expect);
}

/// The audited requests change with the policy; an invalid one changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_changes_counts_while_the_server_runs() {
    let audited = Audited::start().await;
    let level = async || {
        let (_, events) = audited.events("admin", |raw| raw.get("/api/v1/namespaces/meta/configmaps")).await;
        events.last().unwrap()["level"].as_str().unwrap().to_owned()
    };
    let until_read = async |status: &str| {
        let name = format!(r#"keelson_file_reads_total{{contents="audit-policy",status="{status}"}} "#);
        let begun = Instant::now();
        let read = |line: &str| line.strip_prefix(&name).is_some_and(|count| count.parse::<f64>().unwrap() >= 1.0);
        while !audited.admin.get("/metrics").await.expect(200).text().lines().any(read) {
            assert!(begun.elapsed() < PATIENCE, "the policy is not read again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert_eq!(level().await, "Metadata");
    let file = audited.files.path().join("policy.yaml");
    fs::write(&file, POLICY.replace("{level: Metadata, namespaces: [meta]}", "{level: Request, namespaces: [meta]}"))
        .unwrap();
    until_read("success").await;
    assert_eq!(level().await, "Request");
    fs::write(&file, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Everything}]\n").unwrap();
    until_read("failure").await;
    assert_eq!(level().await, "Request");
}
