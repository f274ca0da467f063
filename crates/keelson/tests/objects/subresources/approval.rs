//! Tests of `certificatesigningrequests/approval` and `/status`.
//!
//! The two endpoints restrict the conditions that a user may write.

use keelson_testkit::{Answer, TestServer};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use super::check;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// A request for the common name `lab`. The command was `openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256
/// -nodes`.
const CSR: &str = include_str!("lab.csr");
const CERTIFICATE: &str = include_str!("lab.crt");

struct Csr {
    server: TestServer,
}

impl Csr {
    async fn start() -> Self {
        let server = TestServer::start().await;
        let spec = json!({"request": base64(CSR), "signerName": "example.com/lab", "usages": ["client auth"]});
        let body = json!({"metadata": {"name": "c"}, "spec": spec, "status": {"conditions": [approved()]}});
        let made = server.raw().post(REQUESTS, &body).await.expect(201).json();
        assert_eq!(made["status"], json!({}), "nobody makes an approved request");
        assert_eq!(made["spec"]["username"], "keelson-admin");
        Self { server }
    }

    async fn get(&self) -> Value {
        self.server.raw().get(format!("{REQUESTS}/c")).await.expect(200).json()
    }

    async fn put(&self, below: &str, change: impl FnOnce(&mut Value)) -> Answer {
        let mut request = self.get().await;
        change(&mut request);
        self.server.raw().put(format!("{REQUESTS}/c{below}"), &request).await
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn approved() -> Value {
    json!({"type": "Approved", "status": "True", "reason": "Lab", "message": "yes"})
}

fn refusal(fault: &str) -> String {
    format!("CertificateSigningRequest.certificates.k8s.io \"c\" is invalid: {fault}")
}

#[tokio::test]
async fn approval_needs_its_subresource_and_is_final() {
    let csr = Csr::start().await;
    let elsewhere = csr.put("", |request| request["status"]["conditions"] = json!([approved()])).await.expect(200);
    assert_eq!(elsewhere.json()["status"], json!({}));
    let elsewhere = csr.put("/status", |request| request["status"]["conditions"] = json!([approved()])).await;
    let fault = "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"";
    check(&elsewhere, 422, "Invalid", &refusal(fault));
    let given = csr.put("/approval", |request| {
        request["status"] = json!({"certificate": base64(CERTIFICATE), "conditions": [approved()]});
        request["spec"]["signerName"] = json!("example.com/other");
    });
    let given = given.await.expect(200).json();
    let condition = &given["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Approved"), &json!("Lab")));
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string(), "{condition}");
    assert!(given["status"]["certificate"].is_null(), "who approves does not sign");
    assert_eq!(given["spec"]["signerName"], "example.com/lab");
    let taken = csr.put("/approval", |request| request["status"]["conditions"] = json!([])).await;
    let fault = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
    check(&taken, 422, "Invalid", &refusal(fault));
    let both = csr.put("/approval", |request| {
        let denied = json!({"type": "Denied", "status": "True"});
        request["status"]["conditions"].as_array_mut().unwrap().push(denied);
    });
    let fault = "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive";
    check(&both.await, 422, "Invalid", &refusal(fault));
    let doubtful = csr.put("/approval", |request| {
        request["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Failed", "status": "False"}));
    });
    let fault = "status.conditions[1].status: Unsupported value: \"False\": supported values: \"True\"";
    check(&doubtful.await, 422, "Invalid", &refusal(fault));
}

#[tokio::test]
async fn a_certificate_is_handed_out_once() {
    let csr = Csr::start().await;
    csr.put("/approval", |request| request["status"]["conditions"] = json!([approved()])).await.expect(200);
    let signed = csr.put("/status", |request| request["status"]["certificate"] = json!(base64(CERTIFICATE)));
    let signed = signed.await.expect(200).json();
    assert_eq!(signed["status"]["certificate"], base64(CERTIFICATE));
    assert_eq!(signed["status"]["conditions"][0]["type"], "Approved", "the verdict stays");
    let other = csr.put("/status", |request| request["status"]["certificate"] = json!(base64(&CERTIFICATE.repeat(2))));
    let fault = "status.certificate: Forbidden: updates may not modify existing certificate content";
    check(&other.await, 422, "Invalid", &refusal(fault));
    let failed = csr.put("/status", |request| {
        request["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Failed", "status": "True"}));
    });
    assert_eq!(failed.await.expect(200).json()["status"]["conditions"].as_array().unwrap().len(), 2);
}

/// A certificate with a duration near the requested one is as requested, since signers date certificates back.
#[tokio::test]
async fn certificates_with_a_requested_duration_are_counted() {
    let csr = Csr::start().await;
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 1, 2));
    let of_a_day = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    let raw = csr.server.raw();
    let counts = async || {
        let text = raw.get("/metrics").await.expect(200).text();
        ["requested", "honored"].map(|what| {
            let series = format!("apiserver_certificates_registry_csr_{what}_duration_total{{signerName=\"other\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok()).unwrap_or_default()
        })
    };
    let before = counts().await;
    for (name, seconds) in [("none", Value::Null), ("shorter", json!(3600)), ("honored", json!(90_000))] {
        let spec = json!({"request": base64(CSR), "signerName": "example.com/lab", "usages": ["client auth"],
            "expirationSeconds": seconds});
        let made = raw.post(REQUESTS, &json!({"metadata": {"name": name}, "spec": spec})).await;
        let mut made = made.expect(201).json();
        made["status"]["conditions"] = json!([approved()]);
        let mut made = raw.put(format!("{REQUESTS}/{name}/approval"), &made).await.expect(200).json();
        made["status"]["certificate"] = json!(base64(&of_a_day));
        raw.put(format!("{REQUESTS}/{name}/status?dryRun=All"), &made).await.expect(200);
        let mut made = raw.put(format!("{REQUESTS}/{name}/status"), &made).await.expect(200).json();
        made["status"]["conditions"][0]["message"] = json!("again");
        raw.put(format!("{REQUESTS}/{name}/status"), &made).await;
    }
    let after = counts().await;
    assert_eq!([after[0] - before[0], after[1] - before[1]], [2., 1.]);
}

/// Users who may write both endpoints of any request. Each has the rights of different signers.
struct Signers {
    server: TestServer,
}

impl Signers {
    async fn start() -> Self {
        let this = Self { server: TestServer::start().await };
        let writer = json!([{ "verbs": ["create", "get", "update"], "apiGroups": ["certificates.k8s.io"], "resources":
            ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"] }]);
        this.allow("writer", writer, &["nobody", "exact", "wild"]).await;
        for (user, signer) in [("exact", "example.org/one"), ("wild", "example.org/*")] {
            let rule = json!([{ "verbs": ["approve", "sign"], "apiGroups": ["certificates.k8s.io"],
                "resources": ["signers"], "resourceNames": [signer] }]);
            this.allow(user, rule, &[user]).await;
        }
        for (name, signer) in [("one", "example.org/one"), ("two", "example.org/two"), ("three", "other.org/x")] {
            let spec = json!({"request": base64(CSR), "signerName": signer, "usages": ["client auth"]});
            let made = json!({"metadata": {"name": name}, "spec": spec});
            let made = this.server.raw().post(REQUESTS, &made).header("impersonate-user", "nobody").await.expect(201);
            assert_eq!(made.json()["spec"]["username"], "nobody");
        }
        this
    }

    async fn allow(&self, role: &str, rules: Value, users: &[&str]) {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let raw = self.server.raw();
        let named = json!({"name": role});
        raw.post(format!("{RBAC}/clusterroles"), &json!({"metadata": named, "rules": rules})).await.expect(201);
        let subjects: Vec<Value> = users.iter().map(|user| json!({"kind": "User", "name": user})).collect();
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        let binding = json!({"metadata": named, "roleRef": role, "subjects": subjects});
        raw.post(format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
    }

    /// The response to an update of a request by this user, with this status or the current one.
    async fn put(&self, user: &str, at: &str, status: Option<Value>) -> Answer {
        let raw = self.server.raw();
        let name = at.split('/').next().unwrap();
        let mut request = raw.get(format!("{REQUESTS}/{name}")).await.expect(200).json();
        if let Some(status) = status {
            request["status"] = status;
        }
        raw.put(format!("{REQUESTS}/{at}"), &request).header("impersonate-user", user).await
    }
}

#[tokio::test]
async fn approving_and_signing_need_rights_on_the_signer() {
    let signers = Signers::start().await;
    let yes = || Some(json!({"conditions": [approved()]}));
    let refused = |name: &str, verb: &str, signer: &str| {
        format!(
            "certificatesigningrequests.certificates.k8s.io \"{name}\" is forbidden: user not permitted to {verb} requests with signerName \"{signer}\""
        )
    };
    for (user, name, signer) in
        [("nobody", "one", "example.org/one"), ("exact", "two", "example.org/two"), ("wild", "three", "other.org/x")]
    {
        // With and without a decision in the status.
        for status in [yes(), None] {
            let answer = signers.put(user, &format!("{name}/approval"), status).await;
            check(&answer, 403, "Forbidden", &refused(name, "approve", signer));
        }
    }
    for (user, name) in [("exact", "one"), ("wild", "two")] {
        let given = signers.put(user, &format!("{name}/approval"), yes()).await.expect(200).json();
        assert_eq!(given["status"]["conditions"][0]["type"], "Approved", "{user}");
    }
    // An unchanged status needs no right for the signer.
    signers.put("nobody", "one/status", None).await.expect(200);
    let one = signers.server.raw().get(format!("{REQUESTS}/one")).await.expect(200).json();
    let mut failed = one["status"].clone();
    failed["conditions"].as_array_mut().unwrap().push(json!({"type": "Failed", "status": "True"}));
    let mut issued = one["status"].clone();
    issued["certificate"] = json!(base64(CERTIFICATE));
    for status in [failed, issued.clone()] {
        let answer = signers.put("nobody", "one/status", Some(status)).await;
        check(&answer, 403, "Forbidden", &refused("one", "sign", "example.org/one"));
    }
    let signed = signers.put("exact", "one/status", Some(issued)).await.expect(200).json();
    assert_eq!(signed["status"]["certificate"], base64(CERTIFICATE));
    let mut issued = signers.server.raw().get(format!("{REQUESTS}/two")).await.expect(200).json()["status"].clone();
    issued["certificate"] = json!(base64(CERTIFICATE));
    let answer = signers.put("exact", "two/status", Some(issued.clone())).await;
    check(&answer, 403, "Forbidden", &refused("two", "sign", "example.org/two"));
    signers.put("wild", "two/status", Some(issued)).await.expect(200);
}
