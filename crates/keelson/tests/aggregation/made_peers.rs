//! Tests with simulated peers that return wrong data, hang or exceed limits, and with clients of the server meanwhile.
//!
//! Real peers are in `peers.rs`. The ones here send responses that no release of keelson would send.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use keelson_testkit::{
    Endpoint, Raw, TestServer, UpstreamBody, UpstreamRequest, UpstreamServer, upstream_answer, upstream_echo,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::discovery::tag;
use super::lab::PATIENCE;
use super::{AGGREGATED, until_of};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const THINGS: &str = "/apis/future.k8s.io/v1/namespaces/x/things";
const NAMES: [&str; 1] = ["kubernetes.default.svc"];

/// A server that answers requests for its peers, and forwards requests to them.
struct Lab {
    keys: TempDir,
    server: TestServer,
    raw: Raw,
}

impl Lab {
    /// Starts a server that trusts these certificates of peers in addition to its own authority.
    async fn start(peers: &[&UpstreamServer], keys: TempDir) -> Self {
        let own = std::fs::read_to_string(keys.path().join("pki/ca.crt")).unwrap();
        let made = peers.iter().map(|peer| {
            let pem = base64::engine::general_purpose::STANDARD.decode(peer.ca_bundle()).unwrap();
            String::from_utf8(pem).unwrap()
        });
        let bundle = made.fold(own, |all, one| all + "\n" + &one);
        std::fs::write(keys.path().join("peers.crt"), bundle).unwrap();
        let server = TestServer::builder().configure(|config| {
            config.data_dir = Some(keys.path().to_owned());
            config.server_id = "server-a".to_owned();
            config.peer_ca_file = Some(keys.path().join("peers.crt"));
            // Leases that the test creates are never renewed.
            config.identity_interval = Duration::from_secs(600);
        });
        let server = server.start().await;
        let raw = server.raw();
        Self { keys, server, raw }
    }

    /// Creates the lease of a peer.
    async fn register(&self, name: &str, peer: &UpstreamServer) {
        let lease = json!({
            "metadata": {
                "name": name,
                "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
                "annotations": {"kubernetes.io/peer-advertise-address": peer.addr().to_string()},
            },
            "spec": {"holderIdentity": format!("{name}_1"), "leaseDurationSeconds": 3600},
        });
        self.raw.post(LEASES, &lease).await.expect(201);
    }

    /// Waits until the discovery document has a group.
    async fn until_shown(&self, group: &str) {
        let shows = |found: &Value| {
            found["items"].as_array().is_some_and(|items| items.iter().any(|item| item["metadata"]["name"] == group))
        };
        until_of(&self.raw, "/apis", AGGREGATED, shows).await;
    }
}

/// The keys of a server that has already run.
async fn keys() -> (TempDir, String) {
    let keys = TempDir::new().unwrap();
    let path = keys.path().to_owned();
    let mut server = TestServer::builder().configure(|config| config.data_dir = Some(path)).start().await;
    let front_proxies = server.running().pki().front_proxy.ca_pem.clone();
    server.stop().await;
    (keys, front_proxies)
}

/// The discovery documents of a peer with an additional resource.
fn discovery(path: &str) -> Response<UpstreamBody> {
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let group = json!({
        "metadata": {"name": "future.k8s.io"},
        "versions": [{
            "version": "v1", "freshness": "Current",
            "resources": [{
                "resource": "things", "singularResource": "thing", "scope": "Namespaced", "verbs": verbs,
                "responseKind": {"group": "", "version": "", "kind": "Thing"},
                "subresources": [{"subresource": "exec", "verbs": ["get"], "responseKind": {"group": "", "version": "", "kind": "Thing"}}],
            }],
        }],
    });
    let items = if path == "/apis" { json!([group]) } else { json!([]) };
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    upstream_answer(200, AGGREGATED, list.to_string())
}

/// Starts a server with a peer, which has this response for all requests except for discovery.
async fn with_peer<F: Future<Output = Response<UpstreamBody>> + Send + 'static>(
    answer: impl Fn(UpstreamRequest) -> F + Send + Sync + 'static,
) -> (Lab, UpstreamServer) {
    let (keys, front_proxies) = keys().await;
    let answer = Arc::new(answer);
    let peer = UpstreamServer::start(&NAMES, &front_proxies, move |request| {
        let answer = answer.clone();
        async move {
            match request.uri().path() {
                path @ ("/api" | "/apis") => discovery(path),
                _ => answer(request).await,
            }
        }
    });
    let peer = peer.await;
    let lab = Lab::start(&[&peer], keys).await;
    lab.register("server-b", &peer).await;
    lab.until_shown("future.k8s.io").await;
    (lab, peer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_gets_the_user_and_does_not_forward() {
    let (lab, peer) = with_peer(upstream_echo).await;
    let asked = lab.raw.get(format!("{THINGS}/a?limit=3&b=2&b=1")).header("x-remote-user", "root");
    let response_body = asked.header("cookie", "a=b").header("x-remote-extra-scopes", "all").await.expect(200).json();
    assert_eq!(
        (&response_body["path"], &response_body["serverName"]),
        (&json!(format!("{THINGS}/a?b=2&b=1&limit=3")), &json!("kubernetes.default.svc"))
    );
    let fields: Vec<(&str, &str)> = response_body["headers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
        .collect();
    let all = |name: &str| fields.iter().filter(|field| field.0 == name).map(|field| field.1).collect::<Vec<_>>();
    assert_eq!(all("x-kubernetes-peer-proxied"), ["true"]);
    assert_eq!(all("x-remote-user"), ["keelson-admin"]);
    assert_eq!(all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(all("x-forwarded-for"), ["127.0.0.1"]);
    assert!(all("cookie").is_empty() && all("x-remote-extra-scopes").is_empty());
    assert_eq!(all("x-forwarded-host"), [peer.addr().to_string()]);
    let large = "x".repeat(4 << 20);
    let response_body = lab.raw.call(http::Method::POST, THINGS).body(large.clone()).await.expect(200).json();
    assert!(response_body["body"].as_str() == Some(&large));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_and_a_peer_talk_in_another_protocol() {
    let (lab, _peer) = with_peer(|mut request: UpstreamRequest| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut wire = TokioIo::new(upgrade.await.unwrap());
            let mut heard = [0; 5];
            wire.read_exact(&mut heard).await.unwrap();
            wire.write_all(&[b"heard ", &heard[..]].concat()).await.unwrap();
            let _ = wire.shutdown().await;
        });
        let body: UpstreamBody = http_body_util::Empty::new().map_err(|never| match never {}).boxed();
        let head = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "websocket");
        head.body(body).unwrap()
    })
    .await;
    let mut wire = lab.raw.connect().await;
    let fields = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n";
    wire.write_all(format!("GET {THINGS}/a/exec HTTP/1.1\r\nhost: a\r\n{fields}\r\nhello").as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    tokio::time::timeout(PATIENCE, wire.read_to_end(&mut heard)).await.unwrap().unwrap();
    let heard = String::from_utf8_lossy(&heard).into_owned();
    assert!(heard.starts_with("HTTP/1.1 101 ") && heard.ends_with("\r\n\r\nheard hello"), "{heard}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dying_peer_aborts_the_response_and_leaves_discovery() {
    let (lab, peer) = with_peer(|_| async {
        let event = stream::iter([Ok(Frame::data(Bytes::from("{\"type\":\"ADDED\"}\n")))]);
        let body = StreamBody::new(futures::StreamExt::chain(event, stream::pending()));
        Response::builder().header("content-type", "application/json").body(body.boxed()).unwrap()
    })
    .await;
    let mut watch = lab.raw.get(format!("{THINGS}?watch=1")).stream().await;
    assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
    drop(peer);
    let rest = tokio::time::timeout(PATIENCE, watch.next_chunk()).await.expect("the end is noticed");
    assert!(rest.is_err(), "what broke off never looks whole: {rest:?}");
    let answer = lab.raw.get(THINGS).await.expect(503);
    assert!(answer.text().starts_with("error trying to reach service: dial tcp"), "{}", answer.text());
    // While the peer may still be alive, the document keeps its group.
    lab.until_shown("future.k8s.io").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespace_content_of_peers_is_deleted() {
    let things = Arc::new(AtomicUsize::new(2));
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let (left, noted) = (things.clone(), seen.clone());
    let (lab, _peer) = with_peer(move |request: UpstreamRequest| {
        let user = request.headers()["x-remote-user"].to_str().unwrap();
        noted.lock().unwrap().push(format!("{} {} {user}", request.method(), request.uri().path()));
        if request.method() == http::Method::DELETE {
            left.store(0, Ordering::SeqCst);
        }
        let items: Vec<Value> =
            (0..left.load(Ordering::SeqCst)).map(|it| json!({"metadata": {"name": format!("t{it}")}})).collect();
        let list = json!({"kind": "ThingList", "apiVersion": "future.k8s.io/v1", "items": items});
        std::future::ready(upstream_answer(200, "application/json", list.to_string()))
    })
    .await;
    lab.raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "x"}})).await.expect(201);
    lab.raw.delete("/api/v1/namespaces/x").await.expect(200);
    super::until(&lab.raw, "/api/v1/namespaces/x", |found| found["code"] == 404).await;
    let deleted = format!("DELETE {THINGS} system:serviceaccount:kube-system:namespace-controller");
    assert!(seen.lock().unwrap().contains(&deleted), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_of_a_peers_missing_object_are_collected() {
    let (lab, _peer) = with_peer(|request: UpstreamRequest| {
        let thing = json!({
            "kind": "Thing", "apiVersion": "future.k8s.io/v1",
            "metadata": {"name": "owner", "namespace": "default", "uid": "u1", "resourceVersion": "7"},
        });
        let answer = |status, body: Value| upstream_answer(status, "application/json", body.to_string());
        let query = request.uri().query().unwrap_or_default().to_owned();
        std::future::ready(match request.uri().path() {
            "/apis/future.k8s.io/v1/things" if query.contains("watch=true") => {
                let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
                Response::builder().header("content-type", "application/json").body(body.boxed()).unwrap()
            }
            "/apis/future.k8s.io/v1/things" => answer(
                200,
                json!({"kind": "ThingList", "apiVersion": "future.k8s.io/v1", "metadata": {"resourceVersion": "7"}, "items": [thing]}),
            ),
            "/apis/future.k8s.io/v1/namespaces/default/things/owner" => answer(200, thing),
            path => answer(
                404,
                json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
                    "message": "things.future.k8s.io not found",
                    "details": {"name": path.rsplit('/').next(), "group": "future.k8s.io", "kind": "things"},
                }),
            ),
        })
    })
    .await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let owned = |name: &str, owner: &str, uid: &str| {
        let owner = json!({"apiVersion": "future.k8s.io/v1", "kind": "Thing", "name": owner, "uid": uid});
        json!({"metadata": {"name": name, "ownerReferences": [owner]}})
    };
    lab.raw.post(maps, &owned("kept", "owner", "u1")).await.expect(201);
    lab.raw.post(maps, &owned("orphan", "never", "u9")).await.expect(201);
    super::until(&lab.raw, &format!("{maps}/orphan"), |found| found["code"] == 404).await;
    lab.raw.get(format!("{maps}/kept")).await.expect(200);
}

/// A wrong discovery response of a peer.
#[derive(Clone, Copy, Debug)]
enum WrongResponse {
    Hangs,
    Garbage,
    Endless,
    WrongKind,
    Refuses,
    PlainList,
    TooMany,
}

fn lie(lie: WrongResponse) -> Response<UpstreamBody> {
    let list = |items: Value| {
        let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items});
        upstream_answer(200, AGGREGATED, list.to_string())
    };
    match lie {
        WrongResponse::Garbage => upstream_answer(200, AGGREGATED, "{\"kind\": \u{0}"),
        WrongResponse::WrongKind => {
            upstream_answer(200, AGGREGATED, json!({"kind": "PodList", "items": []}).to_string())
        }
        WrongResponse::Refuses => upstream_answer(403, "application/json", "{}"),
        WrongResponse::PlainList => {
            upstream_answer(200, "application/json", json!({"kind": "APIGroupList", "groups": []}).to_string())
        }
        WrongResponse::TooMany => {
            let resource = |number: i32| {
                json!({"resource": format!("r{number}"), "singularResource": "r", "scope": "Cluster", "verbs": ["get"],
                    "responseKind": {"group": "", "version": "", "kind": "R"}})
            };
            let resources: Vec<Value> = (0..2_001).map(resource).collect();
            let version = json!({"version": "v1", "freshness": "Current", "resources": resources});
            list(json!([{"metadata": {"name": "many.k8s.io"}, "versions": [version]}]))
        }
        WrongResponse::Hangs | WrongResponse::Endless => {
            let piece =
                if let WrongResponse::Hangs = lie { Bytes::from("{") } else { Bytes::from(" ".repeat(64 << 10)) };
            let pieces = stream::repeat_with(move || Ok(Frame::data(piece.clone())));
            let most = if let WrongResponse::Hangs = lie { 1 } else { usize::MAX };
            let body =
                StreamBody::new(futures::StreamExt::chain(futures::StreamExt::take(pieces, most), stream::pending()));
            Response::builder().header("content-type", AGGREGATED).body(body.boxed()).unwrap()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lying_hanging_or_oversized_peers_are_ignored_and_block_nothing() {
    let (keys, front_proxies) = keys().await;
    let lies = [
        WrongResponse::Hangs,
        WrongResponse::Garbage,
        WrongResponse::Endless,
        WrongResponse::WrongKind,
        WrongResponse::Refuses,
        WrongResponse::PlainList,
        WrongResponse::TooMany,
    ];
    let mut peers = Vec::new();
    for told in lies {
        let asked = Arc::<AtomicUsize>::default();
        let count = asked.clone();
        let peer = UpstreamServer::start(&NAMES, &front_proxies, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { lie(told) }
        });
        peers.push((told, peer.await, asked));
    }
    let stranger =
        UpstreamServer::start(&NAMES, &front_proxies, |request| async move { discovery(request.uri().path()) }).await;
    let lab = Lab::start(&peers.iter().map(|(_, peer, _)| peer).collect::<Vec<_>>(), keys).await;
    let before = tag(&lab.raw).await;
    for (number, (_, peer, _)) in peers.iter().enumerate() {
        lab.register(&format!("server-{number}"), peer).await;
    }
    // The certificate of this peer has an untrusted authority.
    lab.register("stranger", &stranger).await;
    for (told, _, asked) in &peers {
        let again = async {
            while asked.load(Ordering::SeqCst) < 2 {
                assert_eq!(tag(&lab.raw).await, before);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, again).await.unwrap_or_else(|_| panic!("{told:?} is not asked again"));
    }
    assert_eq!(tag(&lab.raw).await, before);
    for path in [THINGS, "/apis/many.k8s.io/v1/r1"] {
        assert_eq!(lab.raw.get(path).await.expect(404).text(), "404 page not found\n");
    }
    let metrics = lab.raw.get("/metrics").await.expect(200).text();
    let failures = metrics.lines().find_map(|line| line.strip_prefix("apiserver_peer_discovery_sync_errors_total "));
    assert!(failures.unwrap().parse::<f64>().unwrap() >= (lies.len() + 1) as f64, "{failures:?}");
}

/// The identity that the server derives from this client's certificate and headers.
pub(crate) async fn claimed(endpoint: &Endpoint, user: Option<&str>) -> Result<(u16, Value), String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let mut asked = endpoint.raw().post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review);
    if let Some(user) = user {
        asked = asked.header("x-remote-user", user).header("x-remote-group", "system:masters");
    }
    let answer = asked.try_send().await.map_err(|error| error.to_string())?;
    Ok((answer.status, answer.json()["status"]["userInfo"]["username"].clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_own_front_proxies_name_users_and_only_between_peers() {
    let (keys, _) = keys().await;
    let lab = Lab::start(&[], keys).await;
    let (plain, other) = (TestServer::start().await, TestServer::start().await);
    let as_proxy_of = async |server: &TestServer, signer: &TestServer| {
        let mut pki = server.running().pki().clone();
        pki.admin = signer.running().pki().front_proxy.client.clone();
        let path = lab.keys.path().join("proxy.kubeconfig");
        std::fs::write(&path, pki.kubeconfig(&server.url())).unwrap();
        Endpoint::from_kubeconfig(path).await.unwrap()
    };
    let own = as_proxy_of(&lab.server, &lab.server).await;
    assert_eq!(claimed(&own, Some("ann")).await, Ok((201, json!("ann"))));
    assert_eq!(claimed(&own, None).await.unwrap().0, 401, "by itself it is nobody");
    assert_eq!(claimed(&lab.server, Some("ann")).await, Ok((201, json!("keelson-admin"))), "a client is who it is");
    let refused = Ok((401, Value::Null));
    assert_eq!(claimed(&as_proxy_of(&lab.server, &other).await, Some("ann")).await, refused);
    assert_eq!(claimed(&as_proxy_of(&plain, &plain).await, Some("ann")).await, refused);
    // The store's entry about front proxies is not trusted.
    let message = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let authority = json!({"data": {"requestheader-client-ca-file": other.running().pki().front_proxy.ca_pem}});
    lab.raw.patch(message, super::MERGE, &authority).await.expect(200);
    assert_eq!(claimed(&as_proxy_of(&lab.server, &other).await, Some("ann")).await, refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorities_of_peers_that_change_count_while_the_server_runs() {
    let (keys, front_proxies) = keys().await;
    let peer =
        UpstreamServer::start(&NAMES, &front_proxies, |request| async move { discovery(request.uri().path()) }).await;
    let lab = Lab::start(&[], keys).await;
    lab.register("server-b", &peer).await;
    let reads = async |status: &str| {
        let name = format!(r#"keelson_file_reads_total{{contents="peer-authorities",status="{status}"}} "#);
        let text = lab.raw.get("/metrics").await.expect(200).text();
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok()).unwrap()
    };
    let until = async |status: &str, count: f64| {
        let begun = std::time::Instant::now();
        while reads(status).await < count {
            assert!(begun.elapsed() < Duration::from_secs(120), "the file is not read again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    lab.raw.get(THINGS).await.expect(404);
    let file = lab.keys.path().join("peers.crt");
    std::fs::write(&file, "none").unwrap();
    until("failure", 1.0).await;
    let pem = base64::engine::general_purpose::STANDARD.decode(peer.ca_bundle()).unwrap();
    std::fs::write(&file, pem).unwrap();
    until("success", 1.0).await;
    lab.until_shown("future.k8s.io").await;
    lab.raw.get(THINGS).await.expect(200);
}
