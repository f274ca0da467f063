//! Tests of the rights of users by roles and bindings, and of the rights that they grant to others.
//!
//! The texts are those of kube-apiserver.

use std::fs;

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";

/// A server with the users ann (of devs), bob, and dave (of devs and leads), and a namespace with a ConfigMap.
struct Cluster {
    server: TestServer,
    admin: Raw,
    files: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let files = TempDir::new().unwrap();
        let tokens = files.path().join("tokens.csv");
        fs::write(&tokens, "t-ann,ann,u-ann,devs\nt-bob,bob,u-bob\nt-dave,dave,u-dave,\"devs,leads\"\n").unwrap();
        let server = TestServer::builder().configure(move |config| config.token_file = Some(tokens)).start().await;
        let admin = server.raw();
        for namespace in ["a", "b"] {
            admin.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.expect(201);
        }
        let map = json!({ "metadata": { "name": "one" } });
        admin.post("/api/v1/namespaces/a/configmaps", &map).await.expect(201);
        Self { server, admin, files }
    }

    async fn role(&self, namespace: Option<&str>, name: &str, rules: Value) {
        let place = place("role", namespace);
        self.admin.post(place, &json!({ "metadata": { "name": name }, "rules": rules })).await.expect(201);
    }

    async fn bind(&self, namespace: Option<&str>, name: &str, role: &str, subject: (&str, &str)) {
        let binding = binding(name, role, subject);
        self.admin.post(place("rolebinding", namespace), &binding).await.expect(201);
    }

    /// The code and the message of a response to a user of the token file.
    async fn asks(&self, user: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let raw = self.server.anonymous();
        let call = match (method, body) {
            ("POST", Some(body)) => raw.post(path, body),
            ("PUT", Some(body)) => raw.put(path, body),
            ("PATCH", Some(body)) => raw.patch(path, MERGE, body),
            ("DELETE", _) => raw.delete(path),
            _ => raw.get(path),
        };
        let answer = call.header("authorization", format!("Bearer t-{user}")).await;
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        (answer.status, message)
    }

    async fn get(&self, user: &str, path: &str) -> u16 {
        self.asks(user, "GET", path, None).await.0
    }
}

fn place(singular: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{RBAC}/namespaces/{namespace}/{singular}s"),
        None => format!("{RBAC}/cluster{singular}s"),
    }
}

/// A binding of a role, or of a cluster role (`cluster:<name>`).
pub(super) fn binding(name: &str, role: &str, (kind, subject): (&str, &str)) -> Value {
    let (role_kind, role) = role.strip_prefix("cluster:").map_or(("Role", role), |role| ("ClusterRole", role));
    json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role },
        "subjects": [{ "kind": kind, "name": subject }],
    })
}

#[allow(clippy::needless_pass_by_value, reason = "callers write the lists where they need them")]
fn rule(verbs: &str, resources: &str) -> Value {
    let split = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    json!({ "verbs": split(verbs), "apiGroups": [""], "resources": split(resources) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_have_only_the_rights_of_their_bindings() {
    let cluster = Cluster::start().await;
    let (maps, one) = ("/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/a/configmaps/one");
    let refused = |verb: &str, scope: &str| {
        format!(r#"configmaps is forbidden: User "bob" cannot {verb} resource "configmaps" in API group "" {scope}"#)
    };
    assert_eq!(cluster.asks("bob", "GET", maps, None).await, (403, refused("list", r#"in the namespace "a""#)));
    assert_eq!(
        cluster.asks("bob", "GET", "/api/v1/configmaps?watch=1", None).await,
        (403, refused("watch", "at the cluster scope"))
    );
    let path =
        |user: &str, verb: &str, path: &str| (403, format!(r#"forbidden: User "{user}" cannot {verb} path "{path}""#));
    assert_eq!(cluster.asks("bob", "GET", "/metrics", None).await, path("bob", "get", "/metrics"));
    assert_eq!(cluster.get("bob", "/apis").await, 200, "discovery is everybody's");
    let nobody = cluster.server.anonymous();
    nobody.get("/version").await.expect(200);
    let nothing = nobody.get("/apis").await.expect(403).json();
    assert_eq!(nothing["message"], path("system:anonymous", "get", "/apis").1);

    cluster.role(None, "reader", json!([rule("get,list", "configmaps")])).await;
    cluster.bind(Some("a"), "devs", "cluster:reader", ("Group", "devs")).await;
    // The binding applies to the next request, only in its namespace and only to members.
    assert_eq!(cluster.get("ann", one).await, 200);
    assert_eq!(cluster.get("ann", maps).await, 200);
    assert_eq!(cluster.get("ann", "/api/v1/namespaces/b/configmaps").await, 403);
    assert_eq!(cluster.get("bob", one).await, 403);
    assert_eq!(cluster.asks("ann", "DELETE", one, None).await.0, 403);

    // A right to one object by name. A list needs a field selector with that name.
    let named =
        json!([{ "verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"] }]);
    cluster.role(Some("a"), "named", named).await;
    cluster.bind(Some("a"), "bob", "named", ("User", "bob")).await;
    assert_eq!(cluster.get("bob", one).await, 200);
    assert_eq!(cluster.get("bob", &format!("{maps}/two")).await, 403);
    assert_eq!(cluster.get("bob", maps).await, 403);
    assert_eq!(cluster.get("bob", &format!("{maps}?fieldSelector=metadata.name%3Done")).await, 200);

    // A removed right is gone for the next request.
    cluster.admin.delete(format!("{}/devs", place("rolebinding", Some("a")))).await.expect(200);
    assert_eq!(cluster.get("ann", one).await, 403);
    let empty = json!({ "rules": [] });
    cluster.admin.patch(format!("{}/named", place("role", Some("a"))), MERGE, &empty).await.expect(200);
    assert_eq!(cluster.get("bob", one).await, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_and_apply_of_new_objects_need_create() {
    let cluster = Cluster::start().await;
    let leases = json!({ "verbs": ["update", "patch"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"] });
    cluster.role(Some("a"), "changer", json!([rule("update,patch", "configmaps,secrets"), leases])).await;
    cluster.bind(Some("a"), "changer", "changer", ("User", "bob")).await;
    let apply = async |path: &str, body: &Value| {
        let raw = cluster.server.anonymous();
        let call = raw.patch(format!("{path}?fieldManager=t"), "application/apply-patch+yaml", body);
        let answer = call.header("authorization", "Bearer t-bob").await;
        (answer.status, answer.json()["message"].as_str().unwrap_or_default().to_owned())
    };
    let map = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": {} });
    let path = "/api/v1/namespaces/a/configmaps/two";
    let refused = |what: &str, resource: &str, group: &str| {
        let message = format!(
            r#"{what} is forbidden: User "bob" cannot create resource "{resource}" in API group "{group}" in the namespace "a""#
        );
        (403, message)
    };
    assert_eq!(apply(path, &map("two")).await, refused(r#"configmaps "two""#, "configmaps", ""));
    let lease = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "bob" } });
    let lease_path = "/apis/coordination.k8s.io/v1/namespaces/a/leases/l";
    let group = "coordination.k8s.io";
    let refused = refused(r#"leases.coordination.k8s.io "l""#, "leases", group);
    assert_eq!(cluster.asks("bob", "PUT", lease_path, Some(&lease)).await, refused);
    cluster.admin.get(path).await.expect(404);
    cluster.admin.get(lease_path).await.expect(404);
    // An existing object can be changed. A missing one is created if the user may create an object with this name.
    assert_eq!(apply("/api/v1/namespaces/a/configmaps/one", &map("one")).await.0, 200);
    let named = json!([
        { "verbs": ["create"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["two"] },
        { "verbs": ["create"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"] },
    ]);
    cluster.role(Some("a"), "maker", named).await;
    cluster.bind(Some("a"), "maker", "maker", ("User", "bob")).await;
    assert_eq!(apply(path, &map("two")).await.0, 201);
    assert_eq!(cluster.asks("bob", "PUT", lease_path, Some(&lease)).await.0, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_of_very_many_rights_is_refused_at_once() {
    let cluster = Cluster::start().await;
    cluster
        .role(
            Some("a"),
            "granter",
            json!([{
                "verbs": ["create"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"],
            }]),
        )
        .await;
    cluster.bind(Some("a"), "granter", "granter", ("User", "bob")).await;
    let texts = |count: usize, start: &str| (0..count).map(|number| format!("{start}{number}")).collect::<Vec<_>>();
    let boom = |count: usize| {
        let rule = json!({
            "verbs": texts(count, "v"), "apiGroups": texts(count, "g"), "resources": texts(count, "r"),
            "resourceNames": texts(count, "n"),
        });
        json!({ "metadata": { "name": "boom" }, "rules": [rule] })
    };
    // 1.6 million rules, which are not compared, and 160 thousand, of which the error lists a thousand lines.
    for (count, expected) in [(36, "which are not compared one by one"), (20, "and more")] {
        let (status, message) = cluster.asks("bob", "POST", &place("role", Some("a")), Some(&boom(count))).await;
        assert!(status == 403 && message.contains(expected), "{status} {}", message.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn granting_missing_rights_is_forbidden() {
    let cluster = Cluster::start().await;
    let writes = json!(["get", "create", "update", "patch"]);
    let all_of = |resources: Value| json!({ "verbs": writes, "apiGroups": ["rbac.authorization.k8s.io"], "resources": resources });
    cluster.role(None, "lead", json!([all_of(json!(["*"])), rule("get,list", "pods")])).await;
    cluster.bind(None, "lead", "cluster:lead", ("Group", "leads")).await;
    cluster.role(Some("a"), "strong", json!([rule("get,list,delete", "services"), rule("get", "pods")])).await;
    let roles = place("role", Some("a"));
    let role = |name: &str, rules: Value| json!({ "metadata": { "name": name }, "rules": rules });
    let dave = r#"user "dave" (groups=["devs" "leads" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:"#;

    let held = role("held", json!([rule("get", "pods"), all_of(json!(["roles"]))]));
    assert_eq!(cluster.asks("dave", "POST", &roles, Some(&held)).await.0, 201);
    let more = role("more", json!([rule("get,watch,create", "pods,services"), rule("delete", "services")]));
    let lines = [
        r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "create"]}"#,
        r#"{APIGroups:[""], Resources:["services"], Verbs:["get" "watch" "create" "delete"]}"#,
    ];
    let message = format!("roles.rbac.authorization.k8s.io \"more\" is forbidden: {dave}\n{}", lines.join("\n"));
    assert_eq!(cluster.asks("dave", "POST", &roles, Some(&more)).await, (403, message));
    let invalid = role("invalid", json!([{ "verbs": [], "apiGroups": [""], "resources": ["services"] }]));
    assert_eq!(cluster.asks("dave", "POST", &roles, Some(&invalid)).await.0, 422, "what is wrong is told before");

    // A change of a label counts as a new grant of a stronger role, since it may be aggregated; a change of finalizers
    // does not.
    let strong = format!("{roles}/strong");
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(cluster.asks("dave", "PATCH", &strong, Some(&label)).await.0, 403);
    let finalizers = json!({ "metadata": { "finalizers": ["example.com/x"] } });
    assert_eq!(cluster.asks("dave", "PATCH", &strong, Some(&finalizers)).await.0, 200);
    let aggregated = json!({ "metadata": { "name": "sum" }, "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] } });
    let message = "clusterroles.rbac.authorization.k8s.io \"sum\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    assert_eq!(cluster.asks("dave", "POST", &place("role", None), Some(&aggregated)).await, (403, message.to_owned()));

    let bindings = place("rolebinding", Some("a"));
    let bind = |role: &str| binding("b", role, ("User", "bob"));
    assert_eq!(cluster.asks("dave", "POST", &bindings, Some(&bind("held"))).await.0, 201);
    let line = r#"{APIGroups:[""], Resources:["services"], Verbs:["get" "list" "delete"]}"#;
    let message = format!("rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: {dave}\n{line}");
    assert_eq!(cluster.asks("dave", "POST", &bindings, Some(&bind("strong"))).await, (403, message));
    let message = "rolebindings.rbac.authorization.k8s.io \"nope\" not found".to_owned();
    assert_eq!(cluster.asks("dave", "POST", &bindings, Some(&bind("nope"))).await, (404, message));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn escalate_and_bind_replace_own_rights() {
    let cluster = Cluster::start().await;
    let on = |verbs: Value, resource: &str, names: Value| json!({ "verbs": verbs, "apiGroups": ["rbac.authorization.k8s.io"], "resources": [resource], "resourceNames": names });
    let rules = json!([
        on(json!(["create", "update"]), "roles", json!([])),
        on(json!(["escalate"]), "roles", json!(["known"])),
        on(json!(["create"]), "rolebindings", json!([])),
        on(json!(["bind"]), "clusterroles", json!(["view", "not-yet"])),
    ]);
    cluster.role(None, "maker", rules).await;
    cluster.bind(None, "bob", "cluster:maker", ("User", "bob")).await;
    let roles = place("role", Some("a"));
    let known = json!({ "metadata": { "name": "known" }, "rules": [rule("*", "*")] });
    assert_eq!(cluster.asks("bob", "POST", &roles, Some(&known)).await.0, 403, "a path of a collection names no role");
    assert_eq!(cluster.asks("bob", "PUT", &format!("{roles}/known"), Some(&known)).await.0, 201);
    let bindings = place("rolebinding", Some("a"));
    for (name, role, code) in [("v", "cluster:view", 201), ("n", "cluster:not-yet", 201), ("e", "cluster:edit", 403)] {
        let binding = binding(name, role, ("User", "ann"));
        let (status, message) = cluster.asks("bob", "POST", &bindings, Some(&binding)).await;
        assert_eq!(status, code, "{role}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_have_the_reason_and_the_rules() {
    let cluster = Cluster::start().await;
    cluster.role(Some("a"), "pods", json!([rule("get", "pods")])).await;
    cluster.bind(Some("a"), "ann-pods", "pods", ("User", "ann")).await;
    cluster.bind(Some("a"), "lost", "cluster:gone", ("User", "bob")).await;
    let account = json!({
        "metadata": { "name": "robots" }, "roleRef": { "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "robot", "namespace": "b" }],
    });
    cluster.admin.post(place("rolebinding", None), &account).await.expect(201);
    let review = async |user: &str, groups: Value, verb: &str| {
        let asked = json!({ "verb": verb, "resource": "pods", "namespace": "a" });
        let spec = json!({ "user": user, "groups": groups, "resourceAttributes": asked });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        cluster.admin.post(path, &json!({ "spec": spec })).await.expect(201).json()["status"].clone()
    };
    let because = |reason: &str| json!({ "allowed": true, "reason": format!("RBAC: allowed by {reason}") });
    let none = json!([]);
    assert_eq!(
        review("ann", none.clone(), "get").await,
        because(r#"RoleBinding "ann-pods/a" of Role "pods" to User "ann""#)
    );
    assert_eq!(review("ann", none.clone(), "list").await, json!({ "allowed": false }));
    assert_eq!(review("x", json!(["system:masters"]), "get").await, json!({ "allowed": true }));
    let robot = r#"ClusterRoleBinding "robots" of ClusterRole "cluster-admin" to ServiceAccount "robot/b""#;
    assert_eq!(review("system:serviceaccount:b:robot", none.clone(), "get").await, because(robot));
    let lost = json!({ "allowed": false, "reason": "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found" });
    assert_eq!(review("bob", none, "get").await, lost);

    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = async |user: &str, spec: Value| {
        let call = cluster.server.anonymous().post(path, &json!({ "spec": spec }));
        call.header("authorization", format!("Bearer t-{user}")).await
    };
    let body = rules("ann", json!({ "namespace": "a" })).await.expect(201).json();
    assert_eq!((&body["metadata"], &body["spec"]), (&json!({}), &json!({})), "nothing of the question is told again");
    let held = body["status"].clone();
    let expected = json!([
        { "verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"] },
        { "verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"] },
        { "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] },
    ]);
    assert_eq!((&held["resourceRules"], &held["incomplete"]), (&expected, &json!(false)));
    assert_eq!(held["nonResourceRules"].as_array().unwrap().len(), 2, "{held}");
    let lost = rules("bob", json!({ "namespace": "a" })).await.expect(201).json();
    assert_eq!(lost["status"]["evaluationError"], "clusterrole.rbac.authorization.k8s.io \"gone\" not found");
    assert_eq!(rules("bob", json!({})).await.expect(400).json()["message"], "no namespace on request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_without_attributes_or_of_other_namespaces_are_refused() {
    let cluster = Cluster::start().await;
    cluster.role(Some("a"), "pods", json!([rule("get", "pods")])).await;
    cluster.bind(Some("a"), "ann-pods", "pods", ("User", "ann")).await;
    let unclear =
        cluster.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &json!({ "spec": { "user": "ann" } }));
    let fault = ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
    assert_eq!(unclear.await.expect(422).json()["message"], fault);
    let local = "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews";
    let about = |namespace: &str| json!({ "spec": { "user": "ann", "resourceAttributes": { "verb": "get", "resource": "pods", "namespace": namespace } } });
    let body = cluster.admin.post(local, &about("a")).await.expect(201).json();
    assert_eq!(body["status"]["allowed"], true, "{body}");
    let response = cluster.admin.post(local, &about("b")).await.expect(422).json()["message"].clone();
    assert!(response.as_str().unwrap().ends_with("must match metadata.namespace"), "{response}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bootstrap_tokens_need_the_flag_and_their_secret() {
    let token = "abc123.0123456789abcdef";
    let data = json!({
        "token-id": "abc123", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:workers",
    });
    let secret = json!({ "metadata": { "name": "bootstrap-token-abc123" }, "type": "bootstrap.kubernetes.io/token", "stringData": data });
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let whoami = async |server: &TestServer, token: &str| {
        let call = server.anonymous().post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}));
        let answer = call.header("authorization", format!("Bearer {token}")).await;
        (answer.status, answer.json()["status"]["userInfo"].clone())
    };
    let off = TestServer::start().await;
    off.raw().post(secrets, &secret).await.expect(201);
    assert_eq!(whoami(&off, token).await.0, 401);

    let server = TestServer::builder().configure(|config| config.bootstrap_tokens = true).start().await;
    let admin = server.raw();
    assert_eq!(whoami(&server, token).await.0, 401);
    admin.post(secrets, &secret).await.expect(201);
    let groups = ["system:bootstrappers", "system:bootstrappers:workers", "system:authenticated"];
    let expected = json!({ "username": "system:bootstrap:abc123", "groups": groups });
    assert_eq!(whoami(&server, token).await, (201, expected.clone()));
    assert_eq!(whoami(&server, "abc123.0123456789abcdee").await.0, 401);
    let review = json!({ "spec": { "token": token } });
    let body = admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.expect(201).json();
    assert_eq!((&body["status"]["authenticated"], &body["status"]["user"]), (&json!(true), &expected));
    // The user has the rights that are bound to its group, and no others.
    let nodes = server.anonymous().get("/api/v1/nodes").header("authorization", format!("Bearer {token}"));
    assert_eq!(nodes.await.status, 403);
    admin.delete(format!("{secrets}/bootstrap-token-abc123")).await.expect(200);
    let begun = std::time::Instant::now();
    while whoami(&server, token).await.0 != 401 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "a token outlives its secret");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_credentials_can_be_refused() {
    let server = TestServer::builder().configure(|config| config.anonymous = Some(false)).start().await;
    for path in ["/healthz", "/version", "/api", "/metrics", "/api/v1/pods", "/nonsense"] {
        let answer = server.anonymous().get(path).await.expect(401).json();
        assert_eq!(answer["reason"], "Unauthorized", "{path}");
    }
    server.raw().get("/healthz").await.expect(200);
    // A user who may impersonate others may also impersonate the anonymous user.
    server.raw().get("/healthz").header("impersonate-user", "system:anonymous").await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impersonation_needs_the_right_and_has_no_other_rights() {
    let cluster = Cluster::start().await;
    let may = json!([
        { "verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"] },
        { "verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["devs"] },
        { "verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"], "resourceNames": ["view"] },
        { "verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["uids"], "resourceNames": ["u-1"] },
    ]);
    cluster.role(None, "actor", may).await;
    cluster.bind(None, "dave", "cluster:actor", ("User", "dave")).await;
    let review = json!({});
    let acts = async |headers: &[(&str, &str)]| {
        let mut call = cluster.server.anonymous().post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review);
        call = call.header("authorization", "Bearer t-dave");
        for &(name, value) in headers {
            call = call.header(name, value);
        }
        let answer = call.await;
        (answer.status, answer.json())
    };
    let all = [("impersonate-user", "bob"), ("impersonate-group", "devs"), ("impersonate-extra-scopes", "view")];
    let (status, told) = acts(&all).await;
    let mut bob =
        json!({ "username": "bob", "groups": ["devs", "system:authenticated"], "extra": { "scopes": ["view"] } });
    assert_eq!((status, &told["status"]["userInfo"]), (201, &bob));
    let (status, told) = acts(&[all[0], all[1], all[2], ("impersonate-uid", "u-1")]).await;
    bob["uid"] = json!("u-1");
    assert_eq!((status, &told["status"]["userInfo"]), (201, &bob));
    for (headers, refused) in [
        (
            vec![("impersonate-user", "ann")],
            r#"users "ann" is forbidden: User "dave" cannot impersonate resource "users" in API group "" at the cluster scope"#,
        ),
        (
            vec![all[0], ("impersonate-group", "system:masters")],
            r#"groups "system:masters" is forbidden: User "dave" cannot impersonate resource "groups" in API group "" at the cluster scope"#,
        ),
        (
            vec![all[0], ("impersonate-uid", "u")],
            r#"uids.authentication.k8s.io "u" is forbidden: User "dave" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope"#,
        ),
        (
            vec![all[0], ("impersonate-extra-scopes", "edit")],
            r#"userextras.authentication.k8s.io "edit" is forbidden: User "dave" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope"#,
        ),
    ] {
        let (status, told) = acts(&headers).await;
        assert_eq!((status, told["message"].as_str()), (403, Some(refused)));
    }
    let ask = cluster.admin.get("/api/v1/namespaces/a/configmaps/one").header("impersonate-user", "bob");
    let refused = ask.await.expect(403);
    assert_eq!(refused.json()["message"].as_str().unwrap().matches("User \"bob\"").count(), 1);
    assert_eq!(refused.header("x-content-type-options"), "nosniff", "as of whatever a filter refuses");
    let refused = cluster.server.anonymous().get("/api/v1/nodes").await.expect(403);
    assert_eq!(refused.header("x-content-type-options"), "nosniff");
    for path in ["/readyz?verbose", "/livez", "/livez/ping", "/api/v1/nodes", "/metrics"] {
        assert_eq!(cluster.admin.get(path).await.expect(200).header("x-content-type-options"), "nosniff", "{path}");
    }
}

/// The code of a response to a request with impersonation, and its message or the resulting user.
async fn acts(cluster: &Cluster, token: &str, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let raw = cluster.server.anonymous();
    let review = json!({});
    let call = if path.ends_with("selfsubjectreviews") { raw.post(path, &review) } else { raw.get(path) };
    let call = call.header("authorization", format!("Bearer {token}"));
    let call = headers.iter().fold(call, |call, &(name, value)| call.header(name, value));
    let answer = call.await;
    let body = answer.json();
    (answer.status, if answer.status == 201 { body["status"]["userInfo"].clone() } else { body["message"].clone() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constrained_impersonation_allows_only_its_verbs() {
    let cluster = Cluster::start().await;
    let (whoami, group) = ("/apis/authentication.k8s.io/v1/selfsubjectreviews", "authentication.k8s.io");
    let whom = |mode: &str, resource: &str, name: &str| json!({ "verbs": [format!("impersonate:{mode}")], "apiGroups": [group], "resources": [resource], "resourceNames": [name] });
    let on = |mode: &str| json!({ "verbs": [format!("impersonate-on:{mode}:create")], "apiGroups": [group], "resources": ["selfsubjectreviews"] });
    let may = json!([
        whom("user-info", "users", "bob"), whom("user-info", "groups", "devs"), on("user-info"),
        whom("serviceaccount", "serviceaccounts", "robot"), on("serviceaccount"),
        whom("arbitrary-node", "nodes", "n1"), on("arbitrary-node"),
        { "verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["pods"] },
    ]);
    cluster.role(None, "actor", may).await;
    cluster.bind(None, "dave", "cluster:actor", ("User", "dave")).await;
    let user = ("impersonate-user", "bob");
    let ask = async |path: &str, headers: &[(&str, &str)]| acts(&cluster, "t-dave", path, headers).await;
    let known = |name: &str, groups: &[&str]| (201, json!({ "username": name, "groups": groups }));
    let refused = |what: &str| (403, json!(what));
    let dave = r#"is forbidden: User "dave" cannot"#;

    assert_eq!(ask(whoami, &[user]).await, known("bob", &["system:authenticated"]));
    assert_eq!(
        ask(whoami, &[user, ("impersonate-group", "devs")]).await,
        known("bob", &["devs", "system:authenticated"])
    );
    let constrained = r#"in API group "authentication.k8s.io" at the cluster scope"#;
    assert_eq!(
        ask(whoami, &[("impersonate-user", "ann")]).await,
        refused(&format!(
            r#"users.authentication.k8s.io "ann" {dave} impersonate:user-info resource "users" {constrained}"#
        ))
    );
    for (name, why) in [("leads", ""), ("system:masters", ": impersonating the system:masters group is not allowed")] {
        let message = format!(
            r#"groups.authentication.k8s.io "{name}" {dave} impersonate:user-info resource "groups" {constrained}{why}"#
        );
        assert_eq!(ask(whoami, &[user, ("impersonate-group", name)]).await, refused(&message));
    }
    // Each action with constrained impersonation needs its own right. Then the rights of the impersonated user decide.
    let pods = r#"resource "pods" in API group "" in the namespace "a""#;
    let own = format!(r#"pods is forbidden: User "bob" cannot list {pods}"#);
    assert_eq!(ask("/api/v1/namespaces/a/pods", &[user]).await, refused(&own));
    let get = format!(r#"pods "p" {dave} impersonate-on:user-info:get {pods}"#);
    assert_eq!(ask("/api/v1/namespaces/a/pods/p", &[user]).await, refused(&get));
    let path = r#"forbidden: User "dave" cannot impersonate-on:user-info:get path "/api""#;
    assert_eq!(ask("/api", &[user]).await, refused(path));

    let robot = ("impersonate-user", "system:serviceaccount:a:robot");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"];
    assert_eq!(ask(whoami, &[robot]).await, known(robot.1, &groups));
    let old = format!(
        r#"serviceaccounts "robot" {dave} impersonate resource "serviceaccounts" in API group "" in the namespace "a""#
    );
    assert_eq!(ask(whoami, &[robot, ("impersonate-group", "devs")]).await, refused(&old));
    let node = |name: &'static str| ("impersonate-user", name);
    let n1 = node("system:node:n1");
    assert_eq!(ask(whoami, &[n1]).await, known(n1.1, &["system:nodes", "system:authenticated"]));
    let n2 =
        format!(r#"nodes.authentication.k8s.io "n2" {dave} impersonate:arbitrary-node resource "nodes" {constrained}"#);
    assert_eq!(ask(whoami, &[node("system:node:n2")]).await, refused(&n2));
    let old =
        format!(r#"users "system:node:n1" {dave} impersonate resource "users" in API group "" at the cluster scope"#);
    assert_eq!(ask(whoami, &[n1, ("impersonate-group", "system:nodes")]).await, refused(&old));
    // For a user without any right the error names the constrained right.
    let bob = acts(&cluster, "t-bob", whoami, &[("impersonate-user", "bob")]).await;
    let message = r#"selfsubjectreviews.authentication.k8s.io is forbidden: User "bob" cannot impersonate-on:user-info:create resource "selfsubjectreviews""#;
    assert_eq!(bob, refused(&format!("{message} {constrained}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_account_may_impersonate_the_node_of_its_token() {
    let cluster = Cluster::start().await;
    let (whoami, group) = ("/apis/authentication.k8s.io/v1/selfsubjectreviews", "authentication.k8s.io");
    let named = |name: &str| json!({ "metadata": { "name": name } });
    cluster.admin.post("/api/v1/nodes", &named("n1")).await.expect(201);
    cluster.admin.post("/api/v1/namespaces/a/serviceaccounts", &named("agent")).await.expect(201);
    let may = json!([
        { "verbs": ["impersonate:associated-node"], "apiGroups": [group], "resources": ["nodes"] },
        { "verbs": ["impersonate-on:associated-node:create"], "apiGroups": [group], "resources": ["selfsubjectreviews"] },
    ]);
    cluster.role(None, "agent", may).await;
    cluster.bind(None, "agent", "cluster:agent", ("User", "system:serviceaccount:a:agent")).await;
    let token = async |bound: Value| {
        let request = json!({ "spec": { "audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound } });
        let path = "/api/v1/namespaces/a/serviceaccounts/agent/token";
        cluster.admin.post(path, &request).await.expect(201).json()["status"]["token"].as_str().unwrap().to_owned()
    };
    let bound = token(json!({ "kind": "Node", "apiVersion": "v1", "name": "n1" })).await;
    let free = token(Value::Null).await;
    let n1 = [("impersonate-user", "system:node:n1")];
    let node = json!({ "username": "system:node:n1", "groups": ["system:nodes", "system:authenticated"] });
    let refused = r#"selfsubjectreviews.authentication.k8s.io is forbidden: User "system:serviceaccount:a:agent" cannot impersonate-on:arbitrary-node:create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope"#;
    assert_eq!(acts(&cluster, &free, whoami, &n1).await, (403, json!(refused)));
    assert_eq!(acts(&cluster, &bound, whoami, &n1).await, (201, node));
    assert_eq!(acts(&cluster, &bound, whoami, &[("impersonate-user", "system:node:n2")]).await, (403, json!(refused)));
    assert_eq!(acts(&cluster, &free, whoami, &n1).await, (403, json!(refused)));
    let with_group = acts(&cluster, &bound, whoami, &[n1[0], ("impersonate-group", "system:nodes")]).await;
    let old = r#"users "system:node:n1" is forbidden: User "system:serviceaccount:a:agent" cannot impersonate resource "users" in API group "" at the cluster scope"#;
    assert_eq!(with_group, (403, json!(old)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn static_tokens_are_valid_while_the_file_lists_them() {
    let cluster = Cluster::start().await;
    let review = json!({ "spec": { "token": "t-ann" } });
    let reviewed = cluster.admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.expect(201).json();
    let user = json!({ "username": "ann", "uid": "u-ann", "groups": ["devs", "system:authenticated"] });
    assert_eq!((&reviewed["status"]["authenticated"], &reviewed["status"]["user"]), (&json!(true), &user));
    fs::write(cluster.files.path().join("tokens.csv"), "t-eve,eve,u-eve\n").unwrap();
    while cluster.get("eve", "/apis").await != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(cluster.get("ann", "/apis").await, 401);
}

/// A token with too many blanks after its scheme is ignored, and the client gets a warning.
#[tokio::test]
async fn a_token_behind_two_blanks_is_passed_over_with_a_warning() {
    let server = TestServer::start().await;
    let nobody = server.anonymous();
    let message =
        "299 - \"the provided Authorization header contains extra space before the bearer token, and is ignored\"";
    for (field, warning) in [("Bearer  x", Some(message)), ("bearer   x", Some(message)), ("Basic  x", None)] {
        let answer = nobody.get("/api").header("authorization", field).await.expect(403);
        let found = answer.headers.get("warning").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(found.as_deref(), warning, "{field:?}");
    }
    assert!(nobody.get("/api").header("authorization", "Bearer x").await.expect(401).headers.get("warning").is_none());
}
