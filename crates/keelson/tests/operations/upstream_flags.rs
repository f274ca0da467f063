//! Tests of kube-apiserver's flags for lifetimes, defaults and headers, as `keelson serve` takes them.
//!
//! They run the real binary.

use std::process::Stdio;
use std::time::{Duration, Instant};

use keelson_testkit::ProcessServer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const NAMESPACE: &str = "/api/v1/namespaces/default";
const PATIENCE: Duration = Duration::from_secs(60);

async fn start(flags: &[&str]) -> ProcessServer {
    ProcessServer::builder(KEELSON).args(flags).start().await
}

async fn refused(flags: &[&str]) -> String {
    let directory = TempDir::new().unwrap();
    let mut command = Command::new(KEELSON);
    command.args(["serve", "--bind", "127.0.0.1:0", "--data-dir"]).arg(directory.path().join("data")).args(flags);
    let done = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    assert!(!done.status.success(), "{flags:?}");
    String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
}

#[tokio::test]
async fn responses_have_the_header_for_strict_transport_security() {
    let server = start(&["--strict-transport-security-directives", "max-age=31536000,includeSubDomains"]).await;
    let header = "strict-transport-security";
    for path in ["/api/v1/pods", "/livez", "/nosuch"] {
        assert_eq!(server.raw().get(path).await.header(header), "max-age=31536000; includeSubDomains", "{path}");
    }
    assert_eq!(server.anonymous().get("/api/v1/pods").await.header(header), "max-age=31536000; includeSubDomains");
    let why = refused(&["--strict-transport-security-directives", "max-age=x"]).await;
    assert!(why.contains("--strict-transport-security-directives invalid, allowed values"), "{why}");
    let plain = start(&[]).await;
    assert_eq!(plain.raw().get("/livez").await.header(header), "");
}

#[tokio::test]
async fn pods_tolerate_trouble_for_the_seconds_of_the_flags() {
    let flags = ["--default-not-ready-toleration-seconds=30", "--default-unreachable-toleration-seconds=7"];
    let server = start(&flags).await;
    let raw = server.raw();
    let account = raw.post(format!("{NAMESPACE}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
    assert!(matches!(account.status, 201 | 409));
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod = raw.post(format!("{NAMESPACE}/pods"), &pod).await.expect(201).json();
    let seconds: Vec<(&str, i64)> = pod["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["key"].as_str().unwrap(), one["tolerationSeconds"].as_i64().unwrap()))
        .collect();
    assert_eq!(seconds, [("node.kubernetes.io/not-ready", 30), ("node.kubernetes.io/unreachable", 7)]);
}

#[tokio::test]
async fn requested_lifetimes_of_tokens_are_shortened() {
    let server = start(&["--service-account-max-token-expiration", "2h"]).await;
    let raw = server.raw();
    let accounts = format!("{NAMESPACE}/serviceaccounts");
    raw.post(&accounts, &json!({"metadata": {"name": "a"}})).await.expect(201);
    let request = |seconds: i64| json!({"spec": {"expirationSeconds": seconds}});
    let long = raw.post(format!("{accounts}/a/token"), &request(90_000)).await.expect(201);
    assert!(long.header("warning").contains("requested expiration of 90000 seconds shortened to 7200 seconds"));
    assert_eq!(long.json()["spec"]["expirationSeconds"], 7200);
    let short = raw.post(format!("{accounts}/a/token"), &request(3600)).await.expect(201);
    assert_eq!((short.header("warning"), short.json()["spec"]["expirationSeconds"].clone()), ("", json!(3600)));
    let why = refused(&["--service-account-max-token-expiration", "10m"]).await;
    assert!(why.contains("must be between 1 hour and 2^32 seconds"), "{why}");
}

fn event(name: &str) -> Value {
    json!({
        "metadata": {"name": name}, "reason": "Test", "message": name, "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
    })
}

#[tokio::test]
async fn events_end_a_time_after_their_last_write() {
    let mut server = start(&["--event-ttl", "3s"]).await;
    let events = format!("{NAMESPACE}/events");
    let begun = Instant::now();
    server.raw().post(&events, &event("first")).await.expect(201);
    server.raw().post(&events, &event("second")).await.expect(201);
    // An event from before a restart ends by its own times.
    server.terminate().await;
    server.restart().await;
    let raw = server.raw();
    let merge = "application/merge-patch+json";
    tokio::time::sleep(Duration::from_secs(2).saturating_sub(begun.elapsed())).await;
    let again = raw.patch(format!("{events}/second"), merge, &json!({"count": 2, "message": "again"})).await;
    let written = again.status == 200;
    let gone = async |name: &str| {
        while raw.get(format!("{events}/{name}")).await.status != 404 {
            assert!(begun.elapsed() < PATIENCE, "{name} is still there");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        begun.elapsed()
    };
    let first = gone("first").await;
    assert!(first >= Duration::from_secs(2), "{first:?}");
    let second = gone("second").await;
    assert!(!written || second >= first, "{first:?} {second:?}");
    // Other objects stay.
    raw.get("/api/v1/namespaces/default").await.expect(200);
}

#[tokio::test]
async fn events_stay_without_the_flag() {
    let server = start(&[]).await;
    let events = format!("{NAMESPACE}/events");
    server.raw().post(&events, &event("kept")).await.expect(201);
    server.raw().get(format!("{events}/kept")).await.expect(200);
    let text = server.raw().get("/metrics").await.expect(200).text();
    assert!(!text.contains("event-expiry"), "no task deletes events");
}

#[tokio::test]
async fn the_addresses_of_the_service_are_left_to_others() {
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let server = start(&["--endpoint-reconciler-type", "none"]).await;
    server.raw().get(format!("{NAMESPACE}/services/kubernetes")).await.expect(200);
    assert_eq!(server.raw().get(slices).await.status, 404);
    let server = start(&["--endpoint-reconciler-type", "master-count"]).await;
    server.raw().get(slices).await.expect(200);
    assert!(refused(&["--endpoint-reconciler-type", "other"]).await.contains("lease, master-count, none"));
}

/// The status of a request with this token.
async fn status_with(server: &ProcessServer, token: &str) -> u16 {
    let call =
        server.anonymous().get("/apis/authentication.k8s.io/v1").header("authorization", format!("Bearer {token}"));
    call.await.status
}

/// A token of the account `a` for these audiences, and the audiences that it has.
async fn token(server: &ProcessServer, audiences: &[&str]) -> (String, Value) {
    let request = json!({"spec": {"audiences": audiences}});
    let issued = server.raw().post(format!("{NAMESPACE}/serviceaccounts/a/token"), &request).await.expect(201).json();
    (issued["status"]["token"].as_str().unwrap().to_owned(), issued["spec"]["audiences"].clone())
}

#[tokio::test]
async fn tokens_of_several_issuers_are_accepted_and_the_first_one_signs() {
    const OLD: &str = "https://old.example.org";
    const NEW: &str = "https://new.example.org";
    let with = |issuers: &[&str]| {
        ProcessServer::builder(KEELSON).args(issuers.iter().map(|issuer| format!("--service-account-issuer={issuer}")))
    };
    let mut server = with(&[OLD]).start().await;
    server.raw().post(format!("{NAMESPACE}/serviceaccounts"), &json!({"metadata": {"name": "a"}})).await.expect(201);
    let (old, audiences) = token(&server, &[]).await;
    assert_eq!((status_with(&server, &old).await, audiences), (200, json!([OLD])));
    server.terminate().await;
    server.change(with(&[NEW, OLD]));
    server.restart().await;
    assert_eq!(status_with(&server, &old).await, 200, "the earlier issuer is accepted");
    let document = server.raw().get("/.well-known/openid-configuration").await.expect(200).json();
    assert_eq!(document["issuer"], NEW);
    assert!(document["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"), "{document}");
    let (new, audiences) = token(&server, &[]).await;
    assert_eq!((status_with(&server, &new).await, audiences), (200, json!([NEW, OLD])));
    server.terminate().await;
    server.change(with(&[NEW]));
    server.restart().await;
    assert_eq!((status_with(&server, &old).await, status_with(&server, &new).await), (401, 200));
}

#[tokio::test]
async fn tokens_need_an_audience_of_the_server() {
    let keys = "https://keys.example.org/jwks";
    let flags = ["--api-audiences=api,vault", "--service-account-jwks-uri", keys];
    let server = start(&flags).await;
    server.raw().post(format!("{NAMESPACE}/serviceaccounts"), &json!({"metadata": {"name": "a"}})).await.expect(201);
    let (own, audiences) = token(&server, &[]).await;
    assert_eq!((status_with(&server, &own).await, audiences), (200, json!(["api", "vault"])));
    let (one, _) = token(&server, &["vault", "other"]).await;
    assert_eq!(status_with(&server, &one).await, 200);
    for foreign in ["other", "https://kubernetes.default.svc.cluster.local"] {
        let (token, _) = token(&server, &[foreign]).await;
        assert_eq!(status_with(&server, &token).await, 401, "{foreign}");
    }
    let review = |audiences: Value| json!({"spec": {"token": one, "audiences": audiences}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let reviewed = server.raw().post(reviews, &review(json!([]))).await.expect(201).json();
    assert_eq!(reviewed["status"]["audiences"], json!(["vault"]));
    let reviewed = server.raw().post(reviews, &review(json!(["other", "api"]))).await.expect(201).json();
    assert_eq!(reviewed["status"]["audiences"], json!(["other"]));
    let reviewed = server.raw().post(reviews, &review(json!(["api"]))).await.expect(201).json();
    assert!(reviewed["status"]["authenticated"] != true, "{reviewed}");
    let document = server.raw().get("/.well-known/openid-configuration").await.expect(200).json();
    assert_eq!(document["jwks_uri"], keys);
    let named = start(&["--external-hostname=api.example.org"]).await;
    let document = named.raw().get("/.well-known/openid-configuration").await.expect(200).json();
    let (url, port) = (document["jwks_uri"].as_str().unwrap(), named.raw().address().1);
    assert_eq!(url, format!("https://api.example.org:{port}/openid/v1/jwks"));
    let discovery = named.raw().get("/api").await.expect(200).json();
    assert_eq!(discovery["serverAddressByClientCIDRs"][0]["serverAddress"], format!("api.example.org:{port}"));
    let why = refused(&["--service-account-jwks-uri", "http://keys.example.org"]).await;
    assert!(why.contains("service-account-jwks-uri requires https scheme"), "{why}");
}

#[tokio::test]
async fn privileged_containers_are_refused_without_the_permission() {
    let pod = |name: &str, place: &str, is_privileged: bool| {
        let name_of_container = if place == "containers" { "c" } else { "first" };
        let container =
            json!({"name": name_of_container, "image": "i", "securityContext": {"privileged": is_privileged}});
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        match place {
            "containers" => spec[place][0] = container,
            _ => spec[place] = json!([container]),
        }
        json!({"metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec})
    };
    let with_account = async |flags: &[&str]| {
        let server = start(flags).await;
        let account = json!({"metadata": {"name": "default"}});
        let made = server.raw().post(format!("{NAMESPACE}/serviceaccounts"), &account).await;
        assert!(matches!(made.status, 201 | 409));
        server
    };
    let strict = with_account(&["--allow-privileged=false"]).await;
    let pods = format!("{NAMESPACE}/pods");
    for place in ["containers", "initContainers"] {
        let refused = strict.raw().post(&pods, &pod("p", place, true)).await.expect(422).json();
        let why = format!(
            "Pod \"p\" is invalid: spec.{place}[0].securityContext.privileged: Forbidden: disallowed by cluster policy"
        );
        assert_eq!(refused["message"], why);
        strict.raw().post(&pods, &pod(&place.to_lowercase(), place, false)).await.expect(201);
    }
    let ephemeral = json!({"spec": {"ephemeralContainers": [
        {"name": "e", "image": "i", "securityContext": {"privileged": true}}
    ]}});
    let merge = "application/strategic-merge-patch+json";
    let refused =
        strict.raw().patch(format!("{pods}/containers/ephemeralcontainers"), merge, &ephemeral).await.expect(422);
    assert!(
        refused.text().contains("ephemeralContainers[0].securityContext.privileged: Forbidden"),
        "{}",
        refused.text()
    );
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod("x", "containers", true)},
    });
    let refused = strict.raw().post(deployments, &deployment).await.expect(422).text();
    assert!(refused.contains("spec.template.spec.containers[0].securityContext.privileged: Forbidden"), "{refused}");
    let plain = with_account(&[]).await;
    plain.raw().post(&pods, &pod("p", "containers", true)).await.expect(201);
    plain.raw().post(deployments, &deployment).await.expect(201);
}
