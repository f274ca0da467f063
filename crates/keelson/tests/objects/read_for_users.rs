//! Tests of objects that make the server read or act in its own name, written by users without the rights for it.
//!
//! `docs/explanation/security.md` lists these objects and rights. The texts of errors are upstream's.

mod claims;
mod parameters;

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A server with the namespaces `mine` and `theirs`, which has the secret `keys`.
struct Lab {
    admin: Raw,
    _server: TestServer,
}

/// The value in the secret, and its form in base64.
const PASSWORD: &str = "swordfish";
const ENCODED: &str = "c3dvcmRmaXNo";

impl Lab {
    async fn start() -> Self {
        let server = TestServer::start().await;
        let admin = server.raw();
        for namespace in ["mine", "theirs"] {
            admin.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.expect(201);
        }
        let secret = json!({ "metadata": { "name": "keys", "labels": { "kind": "keys" } }, "stringData": { "password": PASSWORD } });
        admin.post("/api/v1/namespaces/theirs/secrets", &secret).await.expect(201);
        Self { admin, _server: server }
    }

    /// Grants a user these rules by a role with this name: in a namespace, or in all.
    async fn give(&self, user: &str, name: &str, namespace: Option<&str>, rules: Value) {
        let place = namespace.map_or_else(|| RBAC.to_owned(), |namespace| format!("{RBAC}/namespaces/{namespace}"));
        let (role, kind) = if namespace.is_some() { ("role", "Role") } else { ("clusterrole", "ClusterRole") };
        let body = json!({ "metadata": { "name": name }, "rules": rules });
        self.admin.post(format!("{place}/{role}s"), &body).await.expect(201);
        self.bind(user, &place, role, (kind, name)).await;
    }

    async fn bind(&self, user: &str, place: &str, binding: &str, (kind, name): (&str, &str)) {
        let group = "rbac.authorization.k8s.io";
        let body = json!({
            "metadata": { "name": format!("{user}-{name}") },
            "roleRef": { "apiGroup": group, "kind": kind, "name": name },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
        });
        self.admin.post(format!("{place}/{binding}bindings"), &body).await.expect(201);
    }

    /// Sends a request as a user: by this method, or as a patch of this content type.
    async fn asks(&self, user: &str, how: &str, path: &str, body: &Value) -> Answer {
        let call = match how {
            "GET" => self.admin.get(path),
            "DELETE" => self.admin.delete(path),
            "POST" => self.admin.post(path, body),
            "PUT" => self.admin.put(path, body),
            _ => self.admin.patch(path, how, body),
        };
        call.header("impersonate-user", user).await
    }
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_edit_role_cannot_make_the_server_read_for_users() {
    let lab = Lab::start().await;
    lab.bind("eve", &format!("{RBAC}/namespaces/mine"), "role", ("ClusterRole", "edit")).await;
    let service = json!({ "name": "s", "namespace": "mine" });
    let rules = json!([{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"] }]);
    let hook = json!({
        "name": "a.example.org", "clientConfig": { "service": service }, "rules": rules, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    let mine = "/api/v1/namespaces/mine";
    let named = |with: Value| {
        let mut object = json!({ "metadata": { "name": "x.example.org" } });
        object.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        object
    };
    for (how, path, body) in [
        ("POST", format!("{ADMISSION}/validatingadmissionpolicies"), named(json!({ "spec": {} }))),
        ("POST", format!("{ADMISSION}/mutatingadmissionpolicybindings"), named(json!({ "spec": {} }))),
        ("POST", format!("{ADMISSION}/validatingwebhookconfigurations"), named(json!({ "webhooks": [hook] }))),
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(), named(json!({ "spec": {} }))),
        (
            "POST",
            "/apis/apiregistration.k8s.io/v1/apiservices".to_owned(),
            named(json!({ "spec": { "service": service } })),
        ),
        (
            "POST",
            "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations".to_owned(),
            named(json!({ "spec": { "resource": { "group": "", "resource": "secrets" } } })),
        ),
        ("POST", format!("{RBAC}/clusterroles"), named(json!({ "aggregationRule": {} }))),
        ("POST", "/apis/networking.k8s.io/v1/servicecidrs".to_owned(), named(json!({ "spec": {} }))),
        ("POST", "/api/v1/persistentvolumes".to_owned(), named(json!({ "spec": {} }))),
        ("POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas".to_owned(), named(json!({ "spec": {} }))),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews".to_owned(), json!({ "spec": { "token": "t" } })),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(), json!({ "spec": { "user": "bob" } })),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/namespaces/mine/localsubjectaccessreviews".to_owned(),
            json!({ "spec": { "user": "bob" } }),
        ),
        ("POST", format!("{mine}/resourcequotas"), named(json!({ "spec": { "hard": { "count/secrets": "1" } } }))),
        ("POST", format!("{mine}/pods/p/binding"), named(json!({ "target": { "name": "n" } }))),
        ("POST", "/api/v1/namespaces/theirs/serviceaccounts/default/token".to_owned(), json!({})),
        ("POST", "/api/v1/namespaces/theirs/pods/p/eviction".to_owned(), json!({})),
        ("DELETE", mine.to_owned(), json!({})),
        ("PUT", format!("{mine}/finalize"), json!({})),
        (MERGE, "/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval".to_owned(), json!({})),
        (MERGE, "/apis/apps/v1/namespaces/theirs/deployments/d/scale".to_owned(), json!({})),
        ("GET", "/api/v1/namespaces/theirs/secrets?keelson.io/count=true".to_owned(), json!({})),
        ("GET", "/api/v1/secrets?keelson.io/groupBy=.type".to_owned(), json!({})),
        ("GET", "/api/v1/namespaces/theirs/secrets/keys?keelson.io/at=1".to_owned(), json!({})),
        ("GET", "/metrics".to_owned(), json!({})),
    ] {
        let refused = lab.asks("eve", how, &path, &body).await;
        assert_eq!(refused.status, 403, "{how} {path}: {}", refused.text());
        assert!(message(&refused).contains("User \"eve\" cannot "), "{how} {path}: {}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_see_token_requests_but_no_reviews() {
    let lab = Lab::start().await;
    let refuse = json!([{ "expression": "false", "message": "no" }]);
    let rules = json!([{
        "operations": ["*"], "apiGroups": ["authentication.k8s.io", "authorization.k8s.io", ""], "apiVersions": ["*"],
        "resources": [
            "selfsubjectreviews", "tokenreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews",
            "selfsubjectrulesreviews", "subjectaccessreviews", "serviceaccounts/token",
        ],
    }]);
    let policy = json!({
        "metadata": { "name": "none" }, "spec": { "matchConstraints": { "resourceRules": rules }, "validations": refuse },
    });
    lab.admin.post(format!("{ADMISSION}/validatingadmissionpolicies"), &policy).await.expect(201);
    let binding =
        json!({ "metadata": { "name": "none" }, "spec": { "policyName": "none", "validationActions": ["Deny"] } });
    lab.admin.post(format!("{ADMISSION}/validatingadmissionpolicybindings"), &binding).await.expect(201);
    let mutations = json!([{ "patchType": "JSONPatch", "jsonPatch": { "expression": "[JSONPatch{op: 'test', path: object.none, value: 1}]" } }]);
    let policy = json!({ "metadata": { "name": "none" }, "spec": {
        "matchConstraints": { "resourceRules": rules }, "mutations": mutations, "reinvocationPolicy": "Never",
    } });
    lab.admin.post(format!("{ADMISSION}/mutatingadmissionpolicies"), &policy).await.expect(201);
    let binding = json!({ "metadata": { "name": "none" }, "spec": { "policyName": "none" } });
    lab.admin.post(format!("{ADMISSION}/mutatingadmissionpolicybindings"), &binding).await.expect(201);

    let asked = json!({ "spec": { "resourceAttributes": { "namespace": "mine", "verb": "get", "resource": "pods" } } });
    let mut of_bob = asked.clone();
    of_bob["spec"]["user"] = json!("bob");
    let (who, may) = ("/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1");
    for (path, body) in [
        (format!("{who}/selfsubjectreviews"), json!({})),
        (format!("{who}/tokenreviews"), json!({ "spec": { "token": "t" } })),
        (format!("{may}/selfsubjectaccessreviews"), asked),
        (format!("{may}/selfsubjectrulesreviews"), json!({ "spec": { "namespace": "mine" } })),
        (format!("{may}/subjectaccessreviews"), of_bob.clone()),
        (format!("{may}/namespaces/mine/localsubjectaccessreviews"), of_bob),
    ] {
        lab.admin.post(path, &body).await.expect(201);
    }
    let account = json!({ "metadata": { "name": "a" } });
    lab.admin.post("/api/v1/namespaces/mine/serviceaccounts", &account).await.expect(201);
    let refused = lab.admin.post("/api/v1/namespaces/mine/serviceaccounts/a/token", &json!({ "spec": {} })).await;
    assert!(
        refused.status != 201 && message(&refused).contains("olicy 'none' with binding 'none'"),
        "{}",
        refused.text()
    );
}
