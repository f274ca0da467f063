//! Tests of the availability of registered servers: each reason and message of the condition.
//!
//! The messages are those that `kubectl get apiservices` shows for kube-apiserver.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{HookReply, HookRequest, HookServer, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::backend::Backend;
use super::lab::PATIENCE;
use super::{MERGE, SERVICES, api_service, condition, until, until_reason};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const CORE_SERVICES: &str = "/api/v1/namespaces/default/services";

/// Shorter than the interval of regular checks. Of two changes, at least one is therefore not found by a regular check.
const SOON: Duration = Duration::from_secs(20);

fn not(message: impl Into<String>) -> (String, String) {
    ("False".to_owned(), message.into())
}

fn slice(port_name: &str, ready: bool) -> Value {
    json!({
        "metadata": { "name": "cip-1", "labels": { "kubernetes.io/service-name": "cip" } },
        "addressType": "IPv4",
        "ports": [{ "name": port_name, "port": 1, "protocol": "TCP" }],
        "endpoints": [{ "addresses": ["192.0.2.1"], "conditions": { "ready": ready } }],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_available_condition_names_missing_parts_of_the_service() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let name = "v1.c1.example.org";
    let service = |port: u16| json!({ "namespace": "default", "name": "cip", "port": port });
    raw.post(SERVICES, &api_service("c1.example.org", "v1", &service(443))).await.expect(201);
    let gone = not("service/cip in \"default\" is not present");
    assert_eq!(until_reason(&raw, name, "ServiceNotFound").await, gone);
    let since = raw.get(format!("{SERVICES}/{name}")).await.expect(200).json();

    let port = json!({ "name": "https", "port": 443, "targetPort": 1 });
    let cluster_ip = json!({ "metadata": { "name": "cip" }, "spec": { "ports": [port] } });
    raw.post(CORE_SERVICES, &cluster_ip).await.expect(201);
    let message = "cannot find endpointslices for service/cip in \"default\"";
    assert_eq!(until_reason(&raw, name, "EndpointsNotFound").await, not(message));
    for slice in [slice("https", false), slice("other", true)] {
        raw.post(SLICES, &slice).await.expect(201);
        let message = "endpointslices for service/cip in \"default\" have no addresses with port name \"https\"";
        assert_eq!(until_reason(&raw, name, "MissingEndpoints").await, not(message));
        raw.delete(format!("{SLICES}/cip-1")).await.expect(200);
        until_reason(&raw, name, "EndpointsNotFound").await;
    }
    raw.post(SLICES, &slice("https", true)).await.expect(201);
    // The address is reserved for documentation (RFC 5737).
    let (_, message) = until_reason(&raw, name, "FailedDiscoveryCheck").await;
    let asked = "failing or missing response from https://192.0.2.1:1/apis/c1.example.org/v1: Get ";
    assert!(message.starts_with(asked), "{message}");
    raw.patch(format!("{SERVICES}/{name}"), MERGE, &json!({ "spec": { "service": service(8443) } })).await.expect(200);
    let message = "service/cip in \"default\" is not listening on port 8443";
    assert_eq!(until_reason(&raw, name, "ServicePortError").await, not(message));
    raw.delete(format!("{CORE_SERVICES}/cip")).await.expect(200);
    assert_eq!(until_reason(&raw, name, "ServiceNotFound").await, gone);
    let now = raw.get(format!("{SERVICES}/{name}")).await.expect(200).json();
    let time = |service: &Value| service["status"]["conditions"][0]["lastTransitionTime"].clone();
    assert_eq!(time(&since), time(&now), "the status was the same all the time");

    let local = json!({ "spec": { "service": null } });
    raw.patch(format!("{SERVICES}/{name}"), MERGE, &local).await.expect(200);
    let message = "Local APIServices are always available";
    assert_eq!(until_reason(&raw, name, "Local").await, ("True".to_owned(), message.to_owned()));
    // The server sets a removed condition again.
    let none = json!({ "status": { "conditions": [] } });
    raw.patch(format!("{SERVICES}/{name}/status"), MERGE, &none).await.expect(200);
    until_reason(&raw, name, "Local").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn availability_follows_the_status_code() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let backend = Backend::start(&raw, "coded").await;
    for code in [200, 204, 302, 401, 404, 500, 503] {
        let group = format!("c{code}.example.org");
        let headers = vec![("location", "/elsewhere".to_owned())];
        backend.answer(&format!("/apis/{group}/v1"), HookReply::Other(code, headers, "garbage".to_owned()));
        backend.register(&raw, &group, "v1").await;
    }
    for code in [200, 204] {
        let (status, message) = until_reason(&raw, &format!("v1.c{code}.example.org"), "Passed").await;
        assert_eq!((&*status, &*message), ("True", "all checks passed"));
    }
    for code in [302, 401, 404, 500, 503] {
        let at = format!("https://localhost:{}/apis/c{code}.example.org/v1", backend.hook.addr().port());
        let message = format!("failing or missing response from {at}: bad status from {at}: {code}");
        assert_eq!(until_reason(&raw, &format!("v1.c{code}.example.org"), "FailedDiscoveryCheck").await, not(message));
    }
    let asked = &backend.asked("/apis/c200.example.org/v1")[0].headers;
    assert_eq!(asked["x-remote-user"], "system:kube-aggregator");
    assert_eq!(asked["x-remote-group"], "system:masters");

    // The aggregated server fails, and recovers.
    let (path, name) = ("/apis/c200.example.org/v1", format!("{SERVICES}/v1.c200.example.org"));
    let touch = |value: &str| json!({ "metadata": { "annotations": { "touched": value } }, "spec": { "versionPriority": value.len() + 1 } });
    backend.answer(path, HookReply::Closes);
    raw.patch(&name, MERGE, &json!({ "spec": { "insecureSkipTLSVerify": true, "caBundle": null } })).await.expect(200);
    let (_, message) = until_reason(&raw, "v1.c200.example.org", "FailedDiscoveryCheck").await;
    assert!(message.ends_with(": EOF"), "{message}");
    backend.answer(path, HookReply::Json(json!({})));
    raw.patch(&name, MERGE, &touch("b")).await.expect(200);
    until(&raw, &name, |found| condition(found).0 == "True").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_server_is_unavailable_and_a_hanging_one_delays_no_other() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let (backend, other) = (Backend::start(&raw, "first").await, Backend::start(&raw, "second").await);
    let register = async |group: &str, change: &dyn Fn(&mut Value)| {
        backend.answer(&format!("/apis/{group}/v1"), HookReply::Json(json!({})));
        let mut service = backend.api_service(group, "v1");
        change(&mut service["spec"]);
        raw.post(SERVICES, &service).await.expect(201);
    };
    backend.answer("/apis/hangs.example.org/v1", HookReply::Hangs);
    backend.register(&raw, "hangs.example.org", "v1").await;
    register("stranger.example.org", &|spec| spec["caBundle"] = json!(other.hook.ca_bundle())).await;
    register("name.example.org", &|spec| spec["service"]["name"] = json!("second")).await;
    register("nopem.example.org", &|spec| spec["caBundle"] = json!("aGVsbG8=")).await;
    let anybody = |spec: &mut Value| {
        spec.as_object_mut().unwrap().remove("caBundle");
        spec["insecureSkipTLSVerify"] = json!(true);
    };
    register("anybody.example.org", &anybody).await;
    register("fine.example.org", &|_| {}).await;
    for group in ["anybody", "fine"] {
        until_reason(&raw, &format!("v1.{group}.example.org"), "Passed").await;
    }
    let failures = [
        ("stranger", "tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        (
            "name",
            "tls: failed to verify certificate: x509: certificate is valid for first.default.svc, not second.default.svc",
        ),
        ("nopem", "unable to load root certificates: unable to parse bytes as PEM block"),
        ("hangs", "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
    ];
    for (group, expected) in failures {
        let at = format!("https://localhost:{}/apis/{group}.example.org/v1", backend.hook.addr().port());
        let message = format!("failing or missing response from {at}: Get {at:?}: {expected}");
        assert_eq!(until_reason(&raw, &format!("v1.{group}.example.org"), "FailedDiscoveryCheck").await, not(message));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_of_an_api_service_checks_its_server() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let backend = Backend::start(&raw, "touched").await;
    let (path, name) = ("/apis/touched.example.org/v1", format!("{SERVICES}/v1.touched.example.org"));
    backend.answer(path, HookReply::Json(json!({})));
    backend.register(&raw, "touched.example.org", "v1").await;
    until_reason(&raw, "v1.touched.example.org", "Passed").await;
    for field in ["annotations", "labels"] {
        let before = backend.asked(path).len();
        let touched = json!({ "metadata": { field: { "touched": "yes" } } });
        raw.patch(&name, MERGE, &touched).await.expect(200);
        let asked = async {
            while backend.asked(path).len() == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, asked).await.unwrap_or_else(|_| panic!("nobody is asked after a change of {field}"));
    }
}

/// Starts a server without TLS. It sends this text after the first bytes of a client. Returns its port.
async fn unsecured(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            let _ = peer.read(&mut [0; 1024]).await;
            let _ = peer.write_all(answer).await;
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_without_tls_are_reported_with_their_protocol() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let backend = Backend::start(&raw, "plain").await;
    let spoken: [(&str, &[u8], &str); 3] = [
        ("http", b"HTTP/1.0 400 Bad Request\r\n\r\nTLS?\n", "http: server gave HTTP response to HTTPS client"),
        ("mail", b"220 mail.example.org ESMTP\r\n", "tls: first record does not look like a TLS handshake"),
        ("nearly", b"HTTPS is what I speak\r\n", "tls: first record does not look like a TLS handshake"),
    ];
    for (name, answer, expected) in spoken {
        let port = unsecured(answer).await;
        let mut service = backend.api_service(&format!("{name}.example.org"), "v1");
        service["spec"]["service"]["port"] = json!(port);
        raw.post(SERVICES, &service).await.expect(201);
        let at = format!("https://localhost:{port}/apis/{name}.example.org/v1");
        let message = format!("failing or missing response from {at}: Get {at:?}: {expected}");
        let told = until_reason(&raw, &format!("v1.{name}.example.org"), "FailedDiscoveryCheck").await;
        assert_eq!(told, not(message));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_replaces_a_missing_service() {
    let path = "/apis/routed.example.org/v1/things";
    let hook = HookServer::start(&["routed.default.svc"], move |request: HookRequest| {
        let found = request.path == path || request.path == "/apis/routed.example.org/v1";
        let missing = HookReply::Other(404, vec![], String::new());
        std::future::ready(if found { HookReply::Json(json!({ "path": request.path })) } else { missing })
    })
    .await;
    let route = format!("default/routed={}", hook.url("")).parse().unwrap();
    let server = TestServer::builder().configure(|config| config.service_routes = [route].into_iter().collect());
    let server = server.start().await;
    let raw = server.raw();
    let service = json!({ "namespace": "default", "name": "routed", "port": 8443 });
    let mut registered = api_service("routed.example.org", "v1", &service);
    registered["spec"]["caBundle"] = json!(hook.ca_bundle());
    raw.post(SERVICES, &registered).await.expect(201);
    until_reason(&raw, "v1.routed.example.org", "Passed").await;
    until(&raw, path, |found| found["path"] == path).await;
}

/// Two servers share one store. A condition that a client reads from one of them is valid at once on both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_available_server_serves_at_once() {
    let (store, keys): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new()), TempDir::new().unwrap());
    let start = |name: &'static str| {
        let directory = keys.path().to_owned();
        let builder = TestServer::builder().shared_store(store.clone());
        let builder = builder.configure(move |config| {
            (config.data_dir, config.server_id) = (Some(directory.clone()), name.to_owned());
        });
        builder.start()
    };
    let servers = [start("server-a").await, start("server-b").await];
    let raws = servers.each_ref().map(|server| server.raw());
    let backend = Backend::start(&raws[0], "soon").await;
    let (backend, raws) = (&backend, &raws);
    let registered = (0..40).map(|number| async move {
        let group = format!("soon{number}.example.org");
        backend.answer(&format!("/apis/{group}/v1"), HookReply::Json(json!({ "kind": "APIResourceList" })));
        backend.answer(&format!("/apis/{group}/v1/things"), HookReply::Json(json!({ "kind": "ThingList" })));
        // A 404 for a group that is not served yet must not be cached.
        raws[0].get(format!("/apis/{group}/v1/things")).await.expect(404);
        raws[0].post(SERVICES, &backend.api_service(&group, "v1")).await.expect(201);
        let read = format!("{SERVICES}/v1.{group}");
        let told = async { while condition(&raws[0].get(&read).await.expect(200).json()).0 != "True" {} };
        tokio::time::timeout(PATIENCE, told).await.expect("it is found to be available");
        for raw in raws {
            raw.get(format!("/apis/{group}/v1/things")).await.expect(200);
        }
    });
    futures::future::join_all(registered).await;
}
