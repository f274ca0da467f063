//! Tests of `pods/log`, from a correct kubelet and from faulty ones.
//!
//! A kubelet that hangs, aborts or sends endless data affects only the client of its log.

use std::time::{Duration, Instant};

use keelson_testkit::KubeletDouble;
use serde_json::json;

use super::{Lab, MERGE, NAMESPACE, check};

fn log(pod: &str) -> String {
    format!("{NAMESPACE}/pods/{pod}/log")
}

#[tokio::test]
async fn a_log_comes_from_the_kubelet_as_text() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let answer = lab.raw.get(log("p")).await.expect(200);
    assert_eq!(answer.text(), "one\ntwo\nthree\n");
    // The kubelet's response claims to be HTML, and sets a cookie.
    assert_eq!((answer.header("content-type"), answer.header("set-cookie")), ("text/plain", ""));
    let tail =
        lab.raw.http2().get(format!("{}?tailLines=1&timestamps=true&container=main", log("p"))).await.expect(200);
    assert_eq!(tail.text(), "three\n");
    let seen: Vec<String> = lab.kubelet.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(seen, ["/containerLogs/lab/p/main", "/containerLogs/lab/p/main?tailLines=1&timestamps=true"]);
}

#[tokio::test]
async fn options_and_containers_are_validated_before_the_kubelet_is_called() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let two = json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]);
    let pod = json!({"metadata": {"name": "two"}, "spec": {"nodeName": "n", "containers": two}});
    lab.raw.post(format!("{NAMESPACE}/pods"), &pod).await.expect(201);
    let choose = "a container name must be specified for pod two, choose one of: [a b]";
    check(&lab.raw.get(log("two")).await, 400, "BadRequest", choose);
    let unknown = lab.raw.get(format!("{}?container=x", log("p"))).await;
    check(&unknown, 400, "BadRequest", "container x is not valid for pod p");
    let negative = lab.raw.get(format!("{}?tailLines=-1", log("p"))).await;
    let why = "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0";
    check(&negative, 422, "Invalid", why);
    let both = lab.raw.get(format!("{}?sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z", log("p"))).await;
    assert_eq!(both.status, 422, "{}", both.text());
    check(&lab.raw.get(log("q")).await, 404, "NotFound", "pods \"q\" not found");
    assert!(lab.kubelet.requests().is_empty());
}

#[tokio::test]
async fn followed_logs_are_flushed_per_line_until_the_client_leaves() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let mut stream = lab.raw.get(format!("{}?follow=true", log("p"))).stream().await;
    let mut text = String::new();
    while !text.contains("line 9\n") {
        text.push_str(&String::from_utf8_lossy(&stream.next_chunk().await.unwrap().expect("the log goes on")));
    }
    assert!(text.starts_with("one\ntwo\nthree\nline 4\n"), "{text}");
    assert_eq!(lab.kubelet.open_connections(), 1);
    drop(stream);
    lab.without_connections().await;
}

#[tokio::test]
async fn an_endless_log_waits_for_its_reader() {
    let lab = Lab::start().await;
    lab.pod("endless", "n").await;
    let mut stream = lab.raw.get(log("endless")).stream().await;
    let mut bytes = 0;
    while bytes < 50 << 20 {
        bytes += stream.next_chunk().await.unwrap().expect("the log goes on").len();
    }
    // A stopping server does not wait for the end of a log.
    let mut lab = lab;
    let begun = Instant::now();
    lab.server.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_kubelet_that_breaks_off_breaks_the_answer_off() {
    let lab = Lab::start().await;
    lab.pod("dying", "n").await;
    let mut stream = lab.raw.get(log("dying")).stream().await;
    assert_eq!(stream.status, 200);
    let mut text = String::new();
    let ended = loop {
        match stream.next_chunk().await {
            Ok(Some(chunk)) => text.push_str(&String::from_utf8_lossy(&chunk)),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    assert_eq!(text, "one\ntwo\nthree\n");
    assert!(ended.is_err(), "a broken log is no whole one");
}

#[tokio::test]
async fn refusals_of_kubelets_are_reported_as_upstream_does() {
    let lab = Lab::start().await;
    for pod in ["broken", "missing", "redirecting", "huge"] {
        lab.pod(pod, "n").await;
    }
    let broken = lab.raw.get(log("broken")).await;
    check(&broken, 500, "InternalError", "Internal error occurred: container runtime is down");
    let missing = lab.raw.get(log("missing")).await;
    check(&missing, 404, "NotFound", "the server could not find the requested resource ( pods/log missing)");
    assert_eq!(missing.json()["details"], json!({"name": "missing", "kind": "pods/log"}));
    check(&lab.raw.get(log("redirecting")).await, 500, "", "redirects forbidden");
    let huge = lab.raw.get(log("huge")).await;
    assert_eq!(huge.status, 500, "{}", huge.text());
    assert!(huge.text().len() < 2000, "{}", huge.text().len());
}

#[tokio::test]
async fn a_kubelet_that_never_answers_holds_only_its_caller() {
    let lab = Lab::start().await;
    lab.pod("silent", "n").await;
    lab.pod("p", "n").await;
    let waiting = lab.hang(20).await;
    // Other requests still work, also to the same node.
    assert_eq!(lab.raw.get(log("p")).await.expect(200).text(), "one\ntwo\nthree\n");
    lab.raw.get("/api/v1/pods").await.expect(200);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    lab.without_connections().await;
}

#[tokio::test]
async fn kubelet_address_and_port_come_from_the_node() {
    let lab = Lab::start().await;
    lab.node("bare", json!({})).await;
    lab.pod("bare", "bare").await;
    check(&lab.raw.get(log("bare")).await, 500, "", "no preferred addresses found; known addresses: []");
    let gone = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    });
    lab.node("gone", gone).await;
    lab.pod("gone", "gone").await;
    let refused =
        "Get \"https://127.0.0.1:1/containerLogs/lab/gone/main\": dial tcp 127.0.0.1:1: connect: connection refused";
    check(&lab.raw.get(log("gone")).await, 500, "", refused);
    // A host name is preferred to an address.
    let port = lab.kubelet.addr().port();
    let named = json!({
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "localhost"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    });
    lab.raw.patch("/api/v1/nodes/gone/status", MERGE, &json!({ "status": named })).await.expect(200);
    lab.raw.get(log("gone")).await.expect(200);
}

#[tokio::test]
async fn kubelets_are_verified_and_shown_a_certificate() {
    let (kubelet, other) = (KubeletDouble::start().await, KubeletDouble::start().await);
    let (certificate, key) = (kubelet.client().0.to_owned(), kubelet.client().1.to_owned());
    let (trusted, wrong) = (kubelet.ca_pem().to_owned(), other.ca_pem().to_owned());
    let mut written = None;
    let lab = Lab::with(kubelet, |config, directory| {
        let at = |name: &str| directory.join(name);
        std::fs::write(at("kubelet-ca.crt"), &wrong).unwrap();
        std::fs::write(at("kubelet.crt"), certificate).unwrap();
        std::fs::write(at("kubelet.key"), key).unwrap();
        config.nodes.certificate_authority = Some(at("kubelet-ca.crt"));
        config.nodes.client = Some((at("kubelet.crt"), at("kubelet.key")));
        written = Some(at("kubelet-ca.crt"));
    })
    .await;
    lab.pod("p", "n").await;
    let refused = lab.raw.get(log("p")).await;
    assert_eq!(refused.status, 500, "{}", refused.text());
    let text = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(
        text.ends_with("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{text}"
    );
    // The client may skip the verification, as in kube-apiserver.
    let insecure = lab.raw.get(format!("{}?insecureSkipTLSVerifyBackend=true", log("p"))).await.expect(200);
    assert_eq!(insecure.text(), "one\ntwo\nthree\n");
    let metrics = lab.raw.get("/metrics").await.expect(200).text();
    for count in ["insecure_backend_total{usage=\"skip_tls_allowed\"}", "backend_tls_failure_total"] {
        assert!(metrics.contains(&format!("kube_apiserver_pod_logs_{count} 1")), "{count}: {metrics}");
    }
    // The server reads a new authority from the file.
    std::fs::write(written.unwrap(), trusted).unwrap();
    let begun = Instant::now();
    while lab.raw.get(log("p")).await.status != 200 {
        assert!(begun.elapsed() < super::PATIENCE, "the new authority is not used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(lab.kubelet.requests().iter().all(|request| request.has_certificate));
}

#[tokio::test]
async fn client_credentials_are_not_forwarded_to_the_kubelet() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let call = lab.raw.get(log("p"));
    let call = call.header("authorization", "Bearer secret").header("cookie", "session=1");
    let call = call.header("x-remote-user", "system:admin").header("x-remote-group", "system:masters");
    let call = call.header("x_remote_user", "system:admin").header("connection", "x-forwarded-for, x-smuggled");
    let answer = call.header("x-smuggled", "1").header("user-agent", "test").await;
    // The token is invalid, but the certificate is accepted.
    assert_eq!(answer.status, 200, "{}", answer.text());
    let requests = lab.kubelet.requests();
    let names: Vec<&str> = requests[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    for kept_back in ["authorization", "cookie", "x-remote-user", "x-remote-group", "x_remote_user", "x-smuggled"] {
        assert!(!names.contains(&kept_back), "{kept_back} in {names:?}");
    }
    assert_eq!(requests[0].header("user-agent"), ["test"]);
    assert_eq!(requests[0].header("x-forwarded-for"), ["127.0.0.1"]);
}

#[tokio::test]
async fn a_user_without_the_right_gets_no_log() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    lab.allow("eve", &["pods"], &["*"]).await;
    let refused = lab.raw.get(log("p")).header("impersonate-user", "eve").await;
    let why = "pods \"p\" is forbidden: User \"eve\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"lab\"";
    check(&refused, 403, "Forbidden", why);
    assert!(lab.kubelet.requests().is_empty());
}

#[tokio::test]
async fn logs_are_counted() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    lab.raw.get(log("p")).await.expect(200);
    let metrics = lab.raw.get("/metrics").await.expect(200).text();
    assert!(metrics.contains("keelson_node_requests_total{way=\"log\"} 1"), "{metrics}");
    assert!(metrics.contains("kube_apiserver_pod_logs_insecure_backend_total{usage=\"enforce_tls\"} 1"), "{metrics}");
    assert!(
        metrics.contains("kube_apiserver_pod_logs_insecure_backend_total{usage=\"skip_tls_allowed\"} 0"),
        "{metrics}"
    );
    assert!(metrics.contains("kube_apiserver_pod_logs_backend_tls_failure_total 0"), "{metrics}");
    assert!(metrics.contains("keelson_node_connections 0"));
}

#[tokio::test]
async fn one_stream_of_a_log_can_be_selected_behind_its_gate() {
    let lab = Lab::with(KubeletDouble::start().await, |config, _| {
        let gate = ("PodLogsQuerySplitStreams".to_owned(), true);
        config.registry.gates.set(&[gate]).unwrap();
    })
    .await;
    lab.pod("p", "n").await;
    lab.raw.get(format!("{}?stream=Stderr", log("p"))).await.expect(200);
    let seen: Vec<String> = lab.kubelet.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(seen, ["/containerLogs/lab/p/main?stream=Stderr"]);
    let unknown = lab.raw.get(format!("{}?stream=Both", log("p"))).await.expect(422).text();
    assert!(unknown.contains("stream: Unsupported value"), "{unknown}");
    let both = lab.raw.get(format!("{}?stream=Stdout&tailLines=1", log("p"))).await.expect(422).text();
    assert!(both.contains("`tailLines` and specific `stream` are mutually exclusive for now"), "{both}");
    let plain = Lab::start().await;
    plain.pod("p", "n").await;
    let refused = plain.raw.get(format!("{}?stream=Stderr", log("p"))).await.expect(422).text();
    assert!(refused.contains("stream: Forbidden: may not be specified"), "{refused}");
}
