//! Tests of audit events that are sent to a webhook in batches.
//!
//! No request waits for a webhook that rejects events, hangs or is missing.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use keelson_testkit::{HookReply, HookRequest, HookServer, TestServer, UpstreamServer, upstream_answer};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The timeout for events.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time limit for all requests that do not wait for the webhook: shorter than the shortest wait for it.
const UNHINDERED: Duration = Duration::from_secs(25);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: [keelson-admin], resources: [{group: '', resources: [configmaps]}]}
";

fn kubeconfig(url: &str, authority: &str, user: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": { "server": url, "certificate-authority-data": authority } }],
        "users": [{ "name": "u", "user": user }],
    })
}

/// Starts a server that sends the administrator's events about ConfigMaps to a URL, in small batches and with a token.
async fn sending(files: &TempDir, url: &str, authority: &str) -> TestServer {
    sending_as(files, url, authority, &json!({ "token": "webhook-token" })).await
}

/// Starts the server with other credentials for the webhook.
async fn sending_as(files: &TempDir, url: &str, authority: &str, user: &Value) -> TestServer {
    let (policy, config) = (files.path().join("policy.yaml"), files.path().join("webhook.yaml"));
    fs::write(&policy, POLICY).unwrap();
    fs::write(&config, kubeconfig(url, authority, user).to_string()).unwrap();
    let server = TestServer::builder().configure(move |settings| {
        settings.audit.policy_file = Some(policy);
        let webhook = &mut settings.audit.webhook;
        webhook.config_file = Some(config);
        webhook.initial_backoff = Duration::from_millis(20);
        webhook.backend.batching.wait = Duration::from_millis(100);
        webhook.backend.batching.buffer = 20;
        webhook.backend.batching.most = 5;
    });
    server.start().await
}

/// The user of a kubeconfig with a client certificate, and the authority of that certificate (PEM).
fn certified_user() -> (Value, String) {
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "authority of the callers");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let mut caller = CertificateParams::default();
    caller.distinguished_name.push(DnType::CommonName, "auditor");
    caller.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = caller.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
    let data = |pem: String| STANDARD.encode(pem);
    let user =
        json!({ "client-certificate-data": data(certificate.pem()), "client-key-data": data(key.serialize_pem()) });
    (user, authority_pem)
}

/// The user of a kubeconfig whose certificate and key are in files next to the kubeconfig.
fn certified_user_of_files(files: &TempDir) -> Value {
    let named = |name: &str| files.path().join(name).display().to_string();
    json!({ "client-certificate": named("client.crt"), "client-key": named("client.key") })
}

/// Writes one of the files.
fn write_data(files: &TempDir, name: &str, data: &Value) {
    fs::write(files.path().join(name), STANDARD.decode(data.as_str().unwrap()).unwrap()).unwrap();
}

/// Creates these objects. This must take less time than a wait for the webhook.
async fn make(server: &TestServer, objects: std::ops::Range<usize>) {
    let raw = server.raw();
    let begun = Instant::now();
    for number in objects {
        raw.post(MAPS, &json!({ "metadata": { "name": format!("m{number}") } })).await.expect(201);
    }
    assert!(begun.elapsed() < UNHINDERED, "requests wait for the webhook: {:?}", begun.elapsed());
}

/// The number of events that an audit backend has lost.
async fn lost(server: &TestServer, part: &str) -> f64 {
    let metrics = server.raw().get("/metrics").await.expect(200).text();
    let name = format!("apiserver_audit_error_total{{plugin=\"{part}\"}}");
    let line = metrics.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{name}: {metrics}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Waits until this number of events is lost.
async fn until_lost(server: &TestServer, part: &str, events: f64) {
    let begun = Instant::now();
    while lost(server, part).await < events {
        assert!(begun.elapsed() < PATIENCE, "{part}: {} of {events}", lost(server, part).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_in_batches_and_again_where_the_webhook_fails() {
    let (files, sent) = (TempDir::new().unwrap(), Arc::new(Mutex::new(Vec::<HookRequest>::new())));
    let failing = Arc::new(AtomicUsize::new(2));
    let hook = HookServer::start(&["127.0.0.1"], {
        let (sent, failing) = (sent.clone(), failing.clone());
        move |request| {
            let (sent, failing) = (sent.clone(), failing.clone());
            async move {
                let is_left = failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                if is_left.is_ok() {
                    return HookReply::Other(500, Vec::new(), "not now".to_owned());
                }
                sent.lock().unwrap().push(request);
                HookReply::Json(json!({}))
            }
        }
    })
    .await;
    let mut server = sending(&files, &hook.url("/audit"), &hook.ca_bundle()).await;
    make(&server, 0..12).await;
    let names = || {
        let batches = sent.lock().unwrap().iter().map(|request| request.body["items"].clone()).collect::<Vec<_>>();
        let items = batches.iter().flat_map(|items| items.as_array().unwrap().clone()).collect::<Vec<_>>();
        let mut names: Vec<_> =
            items.iter().map(|item| item["objectRef"]["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let begun = Instant::now();
    while names().len() < 12 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", names());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut expect: Vec<_> = (0..12).map(|number| format!("m{number}")).collect();
    expect.sort();
    assert_eq!(names(), expect, "each event comes once");
    assert_eq!(failing.load(Ordering::SeqCst), 0, "the webhook has failed");
    {
        let sent = sent.lock().unwrap();
        let HookRequest { path, headers, body, .. } = &sent[0];
        assert_eq!(
            (path.as_str(), &headers["authorization"]),
            ("/audit?timeout=30s", &"Bearer webhook-token".parse().unwrap())
        );
        assert_eq!((&body["kind"], &body["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
        assert!(
            body["metadata"] == json!({})
                && body["items"][0]["kind"].is_null()
                && body["items"][0]["level"] == "Metadata"
        );
        assert!(sent.iter().all(|request| request.body["items"].as_array().unwrap().len() <= 5));
    }
    // Unsent events are sent when the server stops.
    make(&server, 12..13).await;
    server.stop().await;
    assert!(names().contains(&"m12".to_owned()), "{:?}", names());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_audit_webhook_loses_events_and_blocks_no_request() {
    let files = TempDir::new().unwrap();
    let hook = HookServer::start(&["127.0.0.1"], |_| async { HookReply::Other(500, Vec::new(), String::new()) }).await;
    let server = sending(&files, &hook.url("/"), &hook.ca_bundle()).await;
    make(&server, 0..10).await;
    until_lost(&server, "webhook", 10.0).await;
    let (url, authority) = (hook.url("/"), hook.ca_bundle());
    drop(hook);
    let server = sending(&files, &url, &authority).await;
    make(&server, 0..10).await;
    until_lost(&server, "webhook", 10.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_hangs_fills_its_queue_and_blocks_no_others() {
    let files = TempDir::new().unwrap();
    let hook = HookServer::start(&["127.0.0.1"], |_| async { HookReply::Hangs }).await;
    let mut server = sending(&files, &hook.url("/"), &hook.ca_bundle()).await;
    // More events than fit into the batch in flight, the next batch and the queue.
    make(&server, 0..150).await;
    until_lost(&server, "buffered", 1.0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_shown_the_certificate_of_its_kubeconfig() {
    let (files, (user, authority)) = (TempDir::new().unwrap(), certified_user());
    let received = Arc::new(AtomicUsize::new(0));
    let hook = UpstreamServer::start(&["127.0.0.1"], &authority, {
        let received = received.clone();
        move |request| {
            let received = received.clone();
            async move {
                let batch = request.into_body().collect().await.unwrap().to_bytes();
                let batch: Value = serde_json::from_slice(&batch).unwrap();
                received.fetch_add(batch["items"].as_array().unwrap().len(), Ordering::SeqCst);
                upstream_answer(200, "application/json", "{}")
            }
        }
    })
    .await;
    let url = format!("https://{}/audit", hook.addr());
    let server = sending_as(&files, &url, &hook.ca_bundle(), &user).await;
    make(&server, 0..5).await;
    let begun = Instant::now();
    while received.load(Ordering::SeqCst) < 5 {
        assert!(begun.elapsed() < PATIENCE, "{received:?} of 5, {} lost", lost(&server, "webhook").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The webhook rejects a client without a certificate.
    let stranger = sending(&files, &url, &hook.ca_bundle()).await;
    make(&stranger, 0..5).await;
    until_lost(&stranger, "webhook", 5.0).await;
    assert_eq!(received.load(Ordering::SeqCst), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_changes_is_shown_to_the_webhook() {
    let (files, (unknown, _), (known, authority)) = (TempDir::new().unwrap(), certified_user(), certified_user());
    let received = Arc::new(AtomicUsize::new(0));
    let count = received.clone();
    let hook = UpstreamServer::start(&["127.0.0.1"], &authority, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        async { upstream_answer(200, "application/json", "{}") }
    })
    .await;
    for (file, data) in [("client.crt", "client-certificate-data"), ("client.key", "client-key-data")] {
        write_data(&files, file, &unknown[data]);
    }
    let url = format!("https://{}/audit", hook.addr());
    let server = sending_as(&files, &url, &hook.ca_bundle(), &certified_user_of_files(&files)).await;
    make(&server, 0..1).await;
    until_lost(&server, "webhook", 1.0).await;
    assert_eq!(received.load(Ordering::SeqCst), 0, "nobody believes its authority");
    write_data(&files, "client.crt", &known["client-certificate-data"]);
    write_data(&files, "client.key", &known["client-key-data"]);
    let begun = Instant::now();
    for number in 1.. {
        if received.load(Ordering::SeqCst) > 0 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the certificate that is there now is not shown");
        make(&server, number..number + 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
