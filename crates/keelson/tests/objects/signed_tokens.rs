//! Tests of service account tokens that are signed with the server's key, but not by the server: their claims decide.
//!
//! The texts are those of kube-apiserver.

use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::issuers::now;
use super::legacy_tokens::signed_by;

const NAMESPACE: &str = "/api/v1/namespaces/default";
const UNEXPECTED: &str = "service account token claims could not be validated due to unexpected private claim";

/// A server with the account `mate`, and its pod `boat`.
struct Ship {
    server: TestServer,
    account: Value,
    pod: Value,
    issuer: String,
    key_id: String,
}

impl Ship {
    async fn start() -> Self {
        let server = TestServer::start().await;
        let admin = server.raw();
        let reference = |object: Value| json!({"name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
        let account = json!({"metadata": {"name": "mate"}});
        let account = admin.post(format!("{NAMESPACE}/serviceaccounts"), &account).await.expect(201).json();
        let spec = json!({"serviceAccountName": "mate", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": {"name": "boat"}, "spec": spec});
        let pod = admin.post(format!("{NAMESPACE}/pods"), &pod).await.expect(201).json();
        let configuration = admin.get("/.well-known/openid-configuration").await.expect(200).json();
        let keys = admin.get("/openid/v1/jwks").header("accept", "*/*").await.expect(200).json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (issuer, key_id) = (text(&configuration["issuer"]), text(&keys["keys"][0]["kid"]));
        Self { server, account: reference(account), pod: reference(pod), issuer, key_id }
    }

    fn header(&self) -> Value {
        json!({"alg": "ES256", "kid": self.key_id})
    }

    /// The claims of a token that the server itself would issue for the account.
    fn claims(&self) -> Value {
        let now = now();
        json!({
            "aud": [self.issuer], "exp": now + 3600, "iat": now, "iss": self.issuer, "jti": "j", "nbf": now,
            "kubernetes.io": {"namespace": "default", "serviceaccount": self.account},
            "sub": "system:serviceaccount:default:mate",
        })
    }

    /// A token with these changed claims; `null` removes a claim.
    fn token(&self, changed: &Value) -> String {
        let mut claims = self.claims();
        for (name, value) in changed.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                _ => claims[name] = value.clone(),
            }
        }
        signed_by(&self.server, &self.header(), &claims)
    }

    /// The review of a token. A request with the token must have the same result.
    async fn review(&self, token: &str) -> Value {
        let sent = json!({"spec": {"token": token}});
        let review =
            self.server.raw().post("/apis/authentication.k8s.io/v1/tokenreviews", &sent).await.expect(201).json();
        let whoami = self.server.anonymous().post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}));
        let whoami = whoami.header("authorization", format!("Bearer {token}")).await;
        match review["status"]["authenticated"] == json!(true) {
            true => assert_eq!(whoami.expect(201).json()["status"]["userInfo"], review["status"]["user"]),
            false => drop(whoami.expect(401)),
        }
        review["status"].clone()
    }

    async fn check_known(&self, token: &str, extra: &Value) {
        let review = self.review(token).await;
        let extra = extra
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (format!("authentication.kubernetes.io/{name}"), json!([value])));
        let mut user = json!({
            "username": "system:serviceaccount:default:mate", "uid": self.account["uid"],
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        });
        let extra: serde_json::Map<String, Value> = extra.collect();
        if !extra.is_empty() {
            user["extra"] = Value::Object(extra);
        }
        assert_eq!(review["user"], user);
    }

    async fn check_refused(&self, token: &str, why: &str) {
        let said =
            if why.is_empty() { "invalid bearer token".to_owned() } else { format!("[invalid bearer token, {why}]") };
        assert_eq!(self.review(token).await, json!({"user": {}, "error": said}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signed_tokens_authenticate_their_subject() {
    let ship = Ship::start().await;
    let id = json!({"credential-id": "JTI=j"});
    ship.check_known(&ship.token(&json!({})), &id).await;
    ship.check_known(&signed_by(&ship.server, &json!({"alg": "ES256"}), &ship.claims()), &id).await;
    ship.check_known(&ship.token(&json!({"aud": ship.issuer})), &id).await;
    ship.check_known(&ship.token(&json!({"jti": null})), &json!({})).await;
    let private = |more: &Value| {
        let mut private = ship.claims()["kubernetes.io"].clone();
        private.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "kubernetes.io": private })
    };
    ship.check_known(&ship.token(&private(&json!({"warnafter": now() - 60}))), &id).await;
    let node = json!({"name": "bow", "uid": "u"});
    let told = json!({"credential-id": "JTI=j", "node-name": "bow", "node-uid": "u", "pod-name": "boat", "pod-uid": ship.pod["uid"]});
    ship.check_known(&ship.token(&private(&json!({"pod": ship.pod, "node": node}))), &told).await;
    let other = json!({"name": "boat", "uid": "u"});
    let said =
        format!("pod UID ({}) does not match service account pod ref claim (u)", ship.pod["uid"].as_str().unwrap());
    ship.check_refused(&ship.token(&private(&json!({"pod": other}))), &said).await;
    let gone = json!({"name": "gone", "uid": "u"});
    ship.check_refused(&ship.token(&private(&json!({"pod": gone}))), "service account token has been invalidated")
        .await;
    let nobody = json!({"serviceaccount": {"name": "mate"}});
    let said = format!("service account UID ({}) does not match claim ()", ship.account["uid"].as_str().unwrap());
    ship.check_refused(&ship.token(&private(&nobody)), &said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_with_wrong_times_keys_or_audiences_are_refused() {
    let ship = Ship::start().await;
    let soon = now() + 3600;
    let past = json!({"exp": now() - 3600, "iat": now() - 7200, "nbf": now() - 7200});
    ship.check_refused(&ship.token(&past), "service account token has expired").await;
    ship.check_refused(&ship.token(&json!({"nbf": soon})), "service account token is not valid yet").await;
    ship.check_refused(&ship.token(&json!({"iat": soon})), "service account token is issued in the future").await;
    let header = json!({"alg": "ES256", "kid": "of-somebody-else"});
    let unknown = signed_by(&ship.server, &header, &ship.claims());
    ship.check_refused(&unknown, "invalid signature, no keys found").await;
    ship.check_refused(&ship.token(&json!({"iss": "https://elsewhere"})), "").await;
    let target = format!("token audiences [\"port\"] is invalid for the target audiences [\"{}\"]", ship.issuer);
    ship.check_refused(&ship.token(&json!({"aud": ["port"]})), &target).await;
    // No server issues such tokens, so keelson rejects them.
    for odd in [json!({"exp": null}), json!({"aud": null}), json!({"sub": "system:serviceaccount:default:cook"})] {
        ship.check_refused(&ship.token(&odd), UNEXPECTED).await;
    }
}
