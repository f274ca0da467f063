//! Tests of PodCertificateRequests: the validation of requests, the decision of a signer, and the rights of signers and
//! nodes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::Release;
use keelson_testkit::{Answer, Call, Raw, TestServer};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";
const SIGNER: &str = "example.org/pods";

/// A PKCS#10 request for a key.
fn stub(key: &KeyPair) -> String {
    STANDARD.encode(CertificateParams::default().serialize_request(key).unwrap().der())
}

fn request(name: &str, key: &KeyPair) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest", "metadata": {"name": name},
        "spec": {
            "signerName": SIGNER, "podName": "p", "podUID": "pu", "serviceAccountName": "default",
            "serviceAccountUID": "su", "nodeName": "n1", "nodeUID": "nu", "stubPKCS10Request": stub(key),
        },
    })
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

/// The status with a certificate for a key, valid from now on for these hours.
fn issued(key: &KeyPair, hours: i64) -> Value {
    let from = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap();
    let until = from + Duration::hours(hours);
    let mut params = CertificateParams::new(["p.default.pod".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (from, until);
    let text = |time: OffsetDateTime| time.format(&Rfc3339).unwrap();
    json!({
        "conditions": [{"type": "Issued", "status": "True", "reason": "Issued", "message": "done"}],
        "certificateChain": params.self_signed(key).unwrap().pem(),
        "notBefore": text(from), "notAfter": text(until), "beginRefreshAt": text(from + Duration::minutes(20)),
    })
}

/// Gives ann all rights on requests, and the right to sign for this signer.
async fn permit(raw: &Raw, signer: &str) {
    let rules = json!([
        {"apiGroups": ["certificates.k8s.io"], "resources": ["podcertificaterequests", "podcertificaterequests/status"], "verbs": ["*"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [signer], "verbs": ["sign"]},
    ]);
    let role = json!({"metadata": {"name": "signs"}, "rules": rules});
    raw.post(format!("{ROLES}/clusterroles"), &role).await.expect(201);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "signs"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "signs"},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": group}],
    });
    raw.post(format!("{ROLES}/clusterrolebindings"), &binding).await.expect(201);
}

#[tokio::test]
async fn a_request_names_a_pod_and_proves_its_key() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let key = KeyPair::generate().unwrap();
    let made = raw.post(REQUESTS, &request("r", &key)).await.expect(201).json();
    assert_eq!((&made["spec"]["maxExpirationSeconds"], &made["status"]), (&json!(86_400), &json!({})));
    let check = async |field: &str, value: Value, expected: &str| {
        let mut wrong = request("wrong", &key);
        wrong["spec"][field] = value;
        let refused = message(&raw.post(REQUESTS, &wrong).await.expect(422));
        assert_eq!(refused, format!("PodCertificateRequest.certificates.k8s.io \"wrong\" is invalid: spec.{expected}"));
    };
    let range = |most: u64| format!("must be in the range [3600, {most}]");
    check("podUID", json!(""), "podUID: Invalid value: \"\": must not be empty").await;
    check("nodeUID", json!("u".repeat(129)), "nodeUID: Too long: may not be more than 128 bytes").await;
    let expected = format!("maxExpirationSeconds: Invalid value: 60: {}", range(7_862_400));
    check("maxExpirationSeconds", json!(60), &expected).await;
    let annotations =
        "unverifiedUserAnnotations: Invalid value: \"plain\": must be a domain-prefixed key (such as \"acme.io/foo\")";
    check("unverifiedUserAnnotations", json!({"plain": "x"}), annotations).await;
    check("stubPKCS10Request", json!("bm9uZQ=="), "stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR")
        .await;
    let mut forged = STANDARD.decode(stub(&key)).unwrap();
    *forged.last_mut().unwrap() ^= 1;
    let unsigned = "stubPKCS10Request: Invalid value: could not verify the signature of the CSR";
    check("stubPKCS10Request", json!(STANDARD.encode(forged)), unsigned).await;
    for algorithm in [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ECDSA_P521_SHA512, &rcgen::PKCS_ED25519] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        raw.post(format!("{REQUESTS}?dryRun=All"), &request("other", &key)).await.expect(201);
    }
    let change = json!({"spec": {"podName": "q"}});
    let refused = message(&raw.patch(format!("{REQUESTS}/r"), MERGE, &change).await.expect(422));
    assert!(refused.contains("spec: Invalid value: ") && refused.ends_with("field is immutable"), "{refused}");
    let list = async |selector: &str| {
        let found = raw.get(format!("{REQUESTS}?fieldSelector={selector}")).await.expect(200).json();
        found["items"].as_array().unwrap().len()
    };
    assert_eq!((list("spec.nodeName%3Dn1").await, list("spec.podName%3Dq").await), (1, 0));
}

#[tokio::test]
async fn a_request_is_decided_once_and_gets_a_certificate_for_its_key() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let key = KeyPair::generate().unwrap();
    for name in ["r", "denied"] {
        raw.post(REQUESTS, &request(name, &key)).await.expect(201);
    }
    let set =
        |name: &str, status: Value| raw.patch(format!("{REQUESTS}/{name}/status"), MERGE, &json!({"status": status}));
    let refusal = async |status: Value| message(&set("r", status).await.expect(422));
    let undecided = refusal(json!({"certificateChain": "x"})).await;
    assert!(undecided.contains("status is immutable unless transitioning to \"Issued\""), "{undecided}");
    let foreign = refusal(issued(&KeyPair::generate().unwrap(), 2)).await;
    assert!(foreign.contains("leaf certificate was not issued to the requested public key"), "{foreign}");
    let long = refusal(issued(&key, 48)).await;
    assert!(long.contains("leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"), "{long}");
    let mut late = issued(&key, 2);
    late["beginRefreshAt"] = late["notAfter"].clone();
    let late = refusal(late).await;
    assert!(late.contains("must be at least 10 minutes before status.notAfter"), "{late}");
    let unknown = refusal(json!({"conditions": [{"type": "Odd", "status": "True", "reason": "R"}]})).await;
    assert!(
        unknown.contains("Unsupported value: \"Odd\": supported values: \"Denied\", \"Failed\", \"Issued\"")
            || unknown.contains("Unsupported value: \"Odd\": supported values: \"Issued\", \"Denied\", \"Failed\""),
        "{unknown}"
    );

    let mut with_label = json!({"status": issued(&key, 2)});
    with_label["metadata"] = json!({"labels": {"a": "b"}});
    let decided = raw.patch(format!("{REQUESTS}/r/status"), MERGE, &with_label).await.expect(200).json();
    assert!(decided["status"]["conditions"][0]["lastTransitionTime"].is_string());
    assert_eq!(decided["metadata"]["labels"], Value::Null, "the status has no metadata");
    let again = refusal(json!({"certificateChain": "x"})).await;
    assert!(again.contains("immutable after PodCertificateRequest is issued, denied, or failed"), "{again}");

    let denial = json!({"conditions": [{"type": "Denied", "status": "True", "reason": "UnsupportedKeyType"}]});
    let mut with_chain = denial.clone();
    with_chain["certificateChain"] = json!("x");
    let refused = message(&set("denied", with_chain).await.expect(422));
    assert!(refused.contains("non-condition status fields must be empty"), "{refused}");
    set("denied", denial).await.expect(200);
}

#[tokio::test]
async fn issuing_certificates_requires_the_sign_right_for_the_signer() {
    let server = TestServer::start().await;
    let raw = server.raw();
    permit(&raw, "example.org/other").await;
    let key = KeyPair::generate().unwrap();
    raw.post(REQUESTS, &request("r", &key)).await.expect(201);
    let change = json!({"status": issued(&key, 2)});
    let sign = || raw.patch(format!("{REQUESTS}/r/status"), MERGE, &change).header("impersonate-user", "ann");
    let refused = message(&sign().await.expect(422));
    let expected =
        "spec.signerName: Forbidden: User \"ann\" is not permitted to \"sign\" for signer \"example.org/pods\"";
    assert!(refused.ends_with(expected), "{refused}");
    let stored = raw.get(format!("{REQUESTS}/r")).await.expect(200).json();
    assert_eq!(stored["status"]["certificateChain"], Value::Null);
    let all = json!([{"op": "replace", "path": "/rules/1/resourceNames", "value": ["example.org/*"]}]);
    raw.patch(format!("{ROLES}/clusterroles/signs"), "application/json-patch+json", &all).await.expect(200);
    sign().await.expect(200);
}

/// Lets nodes request certificates of another signer for pods with the service account.
async fn let_nodes_request_for_app(raw: &Raw) {
    let rule = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["example.org:admins"], "resourceNames": ["app"],
        "verbs": ["request-serviceaccounts-podcertificate-signer"]});
    let role = json!({"metadata": {"name": "signer-of-nodes"}, "rules": [rule]});
    raw.post(format!("{ROLES}/clusterroles"), &role).await.expect(201);
    let binding = json!({"metadata": {"name": "signer-of-nodes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "signer-of-nodes"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]});
    raw.post(format!("{ROLES}/clusterrolebindings"), &binding).await.expect(201);
}

#[tokio::test]
async fn a_node_requests_certificates_only_for_its_own_pods() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let create = async |path: &str, object: Value| raw.post(path, &object).await.expect(201).json();
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let named = |name: &str| json!({"metadata": {"name": name}});
    let node = uid(&create("/api/v1/nodes", named("n1")).await);
    create("/api/v1/nodes", named("n2")).await;
    let account = uid(&create("/api/v1/namespaces/default/serviceaccounts", named("app")).await);
    let source = json!({"podCertificate": {"signerName": SIGNER, "keyType": "ED25519", "credentialBundlePath": "c"}});
    let pod = |name: &str, on: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "nodeName": on, "serviceAccountName": "app", "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "projected": {"sources": [source]}}],
        }})
    };
    let own = uid(&create("/api/v1/namespaces/default/pods", pod("own", "n1")).await);
    let other = uid(&create("/api/v1/namespaces/default/pods", pod("other", "n2")).await);
    let key = KeyPair::generate().unwrap();
    let of_pod = |name: &str, pod: &str, pod_uid: &str| {
        let mut request = request(name, &key);
        for (field, value) in [
            ("podName", pod),
            ("podUID", pod_uid),
            ("serviceAccountName", "app"),
            ("serviceAccountUID", &account),
            ("nodeName", "n1"),
            ("nodeUID", &node),
        ] {
            request["spec"][field] = json!(value);
        }
        request
    };
    let as_node =
        |call: Call| call.header("impersonate-user", "system:node:n1").header("impersonate-group", "system:nodes");
    let refusal = async |request: Value, code: u16, expected: &str| {
        let refused = message(&as_node(raw.post(REQUESTS, &request)).await.expect(code));
        assert!(refused.ends_with(expected), "{refused}");
    };
    let on_other = "pod \"default/other\" is not running on node \"n1\" named in the PodCertificateRequest";
    refusal(of_pod("r", "other", &other), 403, on_other).await;
    let mut foreign = of_pod("r", "own", &own);
    foreign["spec"]["nodeName"] = json!("n2");
    let not_itself = "PodCertificateRequest.Spec.NodeName=\"n2\", which is not the requesting node \"n1\"";
    refusal(foreign, 403, not_itself).await;
    refusal(of_pod("r", "own", &other), 500, "which differs from the running pod").await;
    let mut account_of_others = of_pod("r", "own", &own);
    account_of_others["spec"]["serviceAccountName"] = json!("default");
    refusal(account_of_others, 403, "contains serviceAccountName \"default\" that differs from the running pod").await;
    let mut signer = of_pod("r", "own", &own);
    signer["spec"]["signerName"] = json!("example.org/admins");
    let unmounted = "does not mount a podCertificate projected volume for signer \"example.org/admins\"";
    refusal(signer.clone(), 403, unmounted).await;
    // A right on the signer, for the service account of the pod, replaces the volume.
    let_nodes_request_for_app(&raw).await;
    signer["metadata"]["name"] = json!("admins");
    as_node(raw.post(REQUESTS, &signer)).await.expect(201);

    as_node(raw.post(REQUESTS, &of_pod("r", "own", &own))).await.expect(201);
    let path = format!("{REQUESTS}/r");
    as_node(raw.get(&*path)).await.expect(200);
    as_node(raw.get(format!("{REQUESTS}?fieldSelector=spec.nodeName%3Dn1"))).await.expect(200);
    as_node(raw.get(REQUESTS)).await.expect(403);
    let other_node = raw.get(&*path).header("impersonate-user", "system:node:n2");
    other_node.header("impersonate-group", "system:nodes").await.expect(403);
    as_node(raw.patch(format!("{path}/status"), MERGE, &json!({"status": issued(&key, 2)}))).await.expect(403);
    as_node(raw.delete(&*path)).await.expect(403);
}

#[tokio::test]
async fn emulated_1_36_does_not_serve_pod_certificates() {
    let server = TestServer::builder().emulating(Release::V1_36).start().await;
    let raw = server.raw();
    raw.get(REQUESTS).await.expect(404);
    let cleaner = format!("{ROLES}/clusterroles/system:controller:podcertificaterequestcleaner");
    raw.get(&*cleaner).await.expect(404);
    TestServer::start().await.raw().get(&*cleaner).await.expect(200);
    // The Node authorizer works without the resource.
    let as_node =
        |call: Call| call.header("impersonate-user", "system:node:n1").header("impersonate-group", "system:nodes");
    as_node(raw.get("/api/v1/namespaces/default/secrets/s")).await.expect(403);
}
