//! Tests of service account tokens: they are requested, used and reviewed, and end with the objects to which they are
//! bound.
//!
//! Other servers verify them with the published keys.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_meta::clock::{Clock, ManualClock};
use keelson_testkit::{Answer, TestServer};
use serde_json::{Value, json};

use super::{Lab, NAMESPACE, check};

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

impl Lab {
    async fn request(&self, spec: Value) -> Answer {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        self.post("serviceaccounts/default/token", request).await
    }

    async fn token(&self, spec: Value) -> String {
        let answer = self.request(spec).await.expect(201).json();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The review status of a token, and the code of a request with it.
    async fn judge(&self, token: &str, audiences: Value) -> (Value, u16) {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        let review = self.raw.post(REVIEWS, &review).await.expect(201).json();
        let used = self.server.anonymous().get("/api/v1/pods").header("authorization", format!("Bearer {token}")).await;
        (review["status"].clone(), used.status)
    }

    async fn is_refused(&self, token: &str, why: &str) {
        let error = format!("[invalid bearer token, {why}]");
        assert_eq!(self.judge(token, json!([])).await, (json!({"user": {}, "error": error}), 401));
    }
}

fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

#[tokio::test]
async fn a_requested_token_has_its_audience_and_authenticates() {
    let lab = Lab::start().await;
    let account = lab.get("serviceaccounts/default").await;
    let uid = &account["metadata"]["uid"];
    let answer = lab.request(json!({})).await.expect(201).json();
    assert_eq!(answer["spec"]["audiences"], json!([ISSUER]));
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    assert_eq!((&answer["metadata"]["name"], &answer["metadata"]["uid"]), (&json!("default"), uid));
    let of = |uid: &Value| json!({"metadata": {"uid": uid}});
    lab.post("serviceaccounts/default/token", of(uid)).await.expect(201);
    let message = format!(
        "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"default\": the UID in the token request \
         (other) does not match the UID of the service account ({})",
        uid.as_str().unwrap()
    );
    check(&lab.post("serviceaccounts/default/token", of(&json!("other"))).await, 409, "Conflict", &message);
    assert!(answer["status"]["expirationTimestamp"].is_string(), "{answer}");
    let token = answer["status"]["token"].as_str().unwrap();
    let claims = claims(token);
    assert_eq!(claims["sub"], "system:serviceaccount:lab:default");
    assert_eq!(claims["kubernetes.io"], json!({"namespace": "lab", "serviceaccount": {"name": "default", "uid": uid}}));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
    let user = json!({
        "username": "system:serviceaccount:lab:default",
        "uid": uid,
        "groups": ["system:serviceaccounts", "system:serviceaccounts:lab", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [format!("JTI={}", claims["jti"].as_str().unwrap())]},
    });
    let status = json!({"authenticated": true, "user": user, "audiences": [ISSUER]});
    assert_eq!(lab.judge(token, json!([])).await, (status, 403), "it is known, and may do nothing yet");
    let refused = lab.server.anonymous().get("/api/v1/pods").header("authorization", format!("Bearer {token}")).await;
    let message = "pods is forbidden: User \"system:serviceaccount:lab:default\" cannot list resource \"pods\" in API \
                   group \"\" at the cluster scope";
    check(&refused, 403, "Forbidden", message);
}

#[tokio::test]
async fn a_token_is_for_its_audiences_alone() {
    let lab = Lab::start().await;
    let token = lab.token(json!({"audiences": ["vault", "other"]})).await;
    let why = format!("token audiences [\"vault\" \"other\"] is invalid for the target audiences [\"{ISSUER}\"]");
    lab.is_refused(&token, &why).await;
    let (status, code) = lab.judge(&token, json!(["vault", "third"])).await;
    assert_eq!((&status["authenticated"], &status["audiences"], code), (&json!(true), &json!(["vault"]), 401));
    let (status, code) = lab.judge("nonsense", json!([])).await;
    assert_eq!((status, code), (json!({"user": {}, "error": "invalid bearer token"}), 401));
    let empty = lab.raw.post(REVIEWS, &json!({"spec": {}})).await;
    check(&empty, 400, "BadRequest", "token is required for TokenReview in authentication");
}

#[tokio::test]
async fn a_token_ends_with_its_time() {
    let clock = Arc::new(ManualClock::new(SystemTime::now()));
    let time: Arc<dyn Clock> = clock.clone();
    let lab = Lab::on(TestServer::builder().configure(|config| config.clock = time).start().await).await;
    let token = lab.token(json!({"expirationSeconds": 600})).await;
    assert_eq!(lab.judge(&token, json!([])).await.1, 403);
    clock.advance(Duration::from_secs(662));
    lab.is_refused(&token, "service account token has expired").await;
}

#[tokio::test]
async fn a_token_ends_with_its_account() {
    let lab = Lab::start().await;
    lab.post("serviceaccounts", json!({"metadata": {"name": "short"}})).await.expect(201);
    let answer = lab.post("serviceaccounts/short/token", json!({})).await.expect(201).json();
    let token = answer["status"]["token"].as_str().unwrap();
    lab.raw.delete(format!("{NAMESPACE}/serviceaccounts/short")).await.expect(200);
    lab.is_refused(token, "serviceaccounts \"short\" not found").await;
    let made = lab.post("serviceaccounts", json!({"metadata": {"name": "short"}})).await.expect(201).json();
    let claimed = claims(token)["kubernetes.io"]["serviceaccount"]["uid"].as_str().unwrap().to_owned();
    let uid = made["metadata"]["uid"].as_str().unwrap();
    lab.is_refused(token, &format!("service account UID ({uid}) does not match claim ({claimed})")).await;
}

#[tokio::test]
async fn a_bound_token_is_invalid_after_its_object_is_deleted() {
    let lab = Lab::start().await;
    let node = lab.node("n").await;
    let pod = lab.pod("p", json!({"nodeName": "n", "serviceAccountName": "default"})).await;
    lab.post("secrets", json!({"metadata": {"name": "s"}})).await.expect(201);
    let bound = |kind: &str, name: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}});
    check(&lab.request(bound("Pod", "")).await, 400, "BadRequest", "Name parameter required.");
    let to_pod = lab.token(bound("Pod", "p")).await;
    let told = &claims(&to_pod)["kubernetes.io"];
    assert_eq!(told["pod"], json!({"name": "p", "uid": pod["metadata"]["uid"]}));
    assert_eq!(told["node"], json!({"name": "n", "uid": node["metadata"]["uid"]}));
    let (status, _) = lab.judge(&to_pod, json!([])).await;
    let extra = |name: &str| status["user"]["extra"][format!("authentication.kubernetes.io/{name}")][0].clone();
    assert_eq!([extra("pod-name"), extra("node-name")], ["p", "n"]);
    assert_eq!(
        [extra("pod-uid"), extra("node-uid")],
        [pod["metadata"]["uid"].clone(), node["metadata"]["uid"].clone()]
    );
    let to_secret = lab.token(bound("Secret", "s")).await;
    let to_node = lab.token(bound("Node", "n")).await;
    for (token, path) in [
        (&to_pod, format!("{NAMESPACE}/pods/p?gracePeriodSeconds=0")),
        (&to_secret, format!("{NAMESPACE}/secrets/s")),
        (&to_node, "/api/v1/nodes/n".to_owned()),
    ] {
        assert_eq!(lab.judge(token, json!([])).await.1, 403, "{path}");
        lab.raw.delete(path).await.expect(200);
        lab.is_refused(token, "service account token has been invalidated").await;
    }
}

#[tokio::test]
async fn unsatisfiable_requests_get_the_reason() {
    let lab = Lab::start().await;
    lab.post("serviceaccounts", json!({"metadata": {"name": "other"}})).await.expect(201);
    lab.pod("p", json!({"serviceAccountName": "other"})).await;
    let invalid =
        |name: &str, fault: &str| format!("TokenRequest.authentication.k8s.io \"{name}\" is invalid: {fault}");
    let short = "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes";
    check(&lab.request(json!({"expirationSeconds": 599})).await, 422, "Invalid", &invalid("", short));
    let long = "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds";
    check(&lab.request(json!({"expirationSeconds": 4_294_967_297_i64})).await, 422, "Invalid", &invalid("", long));
    let bound = |kind: &str, name: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}});
    check(&lab.request(bound("Pod", "q")).await, 404, "NotFound", "pods \"q\" not found");
    let message = "cannot bind token for serviceaccount \"default\" to pod running with different serviceaccount name.";
    check(&lab.request(bound("Pod", "p")).await, 400, "BadRequest", message);
    let message = "cannot bind token to object of type /v1, Kind=ConfigMap";
    check(&lab.request(bound("ConfigMap", "c")).await, 400, "BadRequest", message);
    lab.post("secrets", json!({"metadata": {"name": "s"}})).await.expect(201);
    let mut stale = bound("Secret", "s");
    stale["boundObjectRef"]["uid"] = json!("another");
    let message = "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference (another) does not \
                   match the UID in record. The object might have been deleted and then recreated";
    check(&lab.request(stale).await, 409, "Conflict", message);
    let named = json!({"metadata": {"name": "x"}, "spec": {}});
    let fault = "metadata.name: Invalid value: \"x\": must match the service account name if specified";
    check(&lab.post("serviceaccounts/default/token", named).await, 422, "Invalid", &invalid("default", fault));
    let missing = lab.post("serviceaccounts/nobody/token", json!({})).await;
    check(&missing, 404, "NotFound", "serviceaccounts \"nobody\" not found");
}

#[tokio::test]
async fn the_keys_are_published() {
    let lab = Lab::start().await;
    let token = lab.token(json!({})).await;
    let answer = lab.raw.get("/.well-known/openid-configuration").await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("cache-control"), "public, max-age=3600");
    let configuration = answer.json();
    assert_eq!(configuration["issuer"], ISSUER);
    let keys = configuration["jwks_uri"].as_str().unwrap().strip_prefix(&lab.server.url()).unwrap().to_owned();
    let answer = lab.raw.get(keys).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/jwk-set+json");
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(header["kid"], answer.json()["keys"][0]["kid"]);
    assert_eq!(lab.server.anonymous().get("/openid/v1/jwks").await.status, 403);
}

#[tokio::test]
async fn tokens_outlive_a_restart() {
    let mut lab = Lab::on(TestServer::builder().sqlite().start().await).await;
    let token = lab.token(json!({})).await;
    lab.server.restart().await;
    lab.raw = lab.server.raw();
    assert_eq!(lab.judge(&token, json!([])).await.1, 403);
}
