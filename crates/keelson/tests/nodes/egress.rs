//! Tests of egress proxies: nodes, webhooks, aggregated servers and etcd behind a proxy of each kind, and proxies that
//! refuse, hang, lie or die.
//!
//! The proxy is a double of the test kit. The node's name has no address on the machine of the server, so each
//! connection to it must go through the proxy.

use std::time::{Duration, Instant};

use keelson_server::{NodeOptions, StoreConfig, read_egress};
use keelson_testkit::{
    EgressBehaviour, EgressDouble, EgressProtocol, EgressTransport, EtcdServer, HookReply, HookRequest, HookServer,
    KubeletDouble, TestServer, UpstreamServer, upstream_echo,
};
use serde_json::json;

use super::{Lab, NAMESPACE, PATIENCE};

const PROTOCOLS: [EgressProtocol; 2] = [EgressProtocol::HttpConnect, EgressProtocol::Grpc];
const TRANSPORTS: [EgressTransport; 3] = [EgressTransport::Tcp, EgressTransport::Tls, EgressTransport::Unix];
/// The address of the node, which is known to the proxy only.
const NODE: &str = "node-1.invalid:10250";

/// A server whose node is behind a proxy.
async fn behind(proxy: &EgressDouble) -> Lab {
    trusting(proxy, KubeletDouble::start().await, NodeOptions::default()).await
}

async fn trusting(proxy: &EgressDouble, kubelet: KubeletDouble, nodes: NodeOptions) -> Lab {
    let addr = kubelet.addr();
    proxy.route(NODE, addr);
    let text = proxy.configuration(&["cluster"]);
    let lab = Lab::with(kubelet, |config, directory| {
        let file = directory.join("egress.yaml");
        std::fs::write(&file, text).unwrap();
        config.egress = read_egress(&file, &config.random).unwrap();
        config.nodes = nodes;
    });
    let lab = lab.await;
    let status = json!({
        "addresses": [{"type": "Hostname", "address": "node-1.invalid"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    });
    lab.node("far", status).await;
    lab.pod("p", "far").await;
    let status = json!({"status": {"phase": "Running"}});
    lab.raw.patch(format!("{NAMESPACE}/pods/p/status"), super::MERGE, &status).await.expect(200);
    lab
}

async fn without_tunnels(proxy: &EgressDouble) {
    let ended = async {
        while proxy.open_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("connections to the proxy end");
}

#[tokio::test]
async fn logs_and_commands_go_through_a_proxy_of_each_kind() {
    for (protocol, transport) in PROTOCOLS.into_iter().flat_map(|one| TRANSPORTS.map(|other| (one, other))) {
        let proxy = EgressDouble::start(protocol, transport).await;
        let lab = behind(&proxy).await;
        let log = lab.raw.get(format!("{NAMESPACE}/pods/p/log")).await.expect(200);
        assert_eq!(log.text(), "one\ntwo\nthree\n", "{protocol:?} {transport:?}");
        assert_eq!(lab.server.kubectl(["-n", "lab", "exec", "p", "--", "echo", "hello"]).await.ok(), "hello\n");
        let content = "x".repeat(300_000);
        let exec = ["-n", "lab", "exec", "-i", "p", "--", "cat"];
        assert!(lab.server.kubectl(exec).stdin(&content).await.ok() == content, "{protocol:?} {transport:?}");
        assert_eq!(proxy.dialled(), [NODE; 3]);
        lab.without_connections().await;
        without_tunnels(&proxy).await;
    }
}

#[tokio::test]
async fn a_followed_log_ends_on_both_sides_of_a_proxy() {
    for protocol in PROTOCOLS {
        let proxy = EgressDouble::start(protocol, EgressTransport::Unix).await;
        let lab = behind(&proxy).await;
        let mut stream = lab.raw.get(format!("{NAMESPACE}/pods/p/log?follow=true")).stream().await;
        let mut text = String::new();
        while !text.contains("line 9\n") {
            text.push_str(&String::from_utf8_lossy(&stream.next_chunk().await.unwrap().expect("the log goes on")));
        }
        assert_eq!((lab.kubelet.open_connections(), proxy.open_connections()), (1, 1));
        drop(stream);
        lab.without_connections().await;
        without_tunnels(&proxy).await;
    }
}

#[tokio::test]
async fn a_proxy_that_opens_no_tunnel_is_reported_with_upstreams_texts() {
    use EgressBehaviour::{Closing, Endless, Garbled, Lying, Refusing};
    let http = "via proxy SOCKET failed: ";
    let cases = [
        (
            EgressProtocol::HttpConnect,
            Refusing,
            "proxy error from SOCKET while dialing node-1.invalid:10250, code 403: 403 Forbidden".to_owned(),
        ),
        (EgressProtocol::HttpConnect, Closing, format!("{http}unexpected EOF")),
        (EgressProtocol::HttpConnect, Garbled, format!("{http}malformed HTTP response")),
        (EgressProtocol::HttpConnect, Endless, format!("{http}the header has more than 65536 bytes")),
        (EgressProtocol::HttpConnect, Lying, "unexpected 42 bytes of buffered data from CONNECT proxy".to_owned()),
        (EgressProtocol::Grpc, Refusing, "no agent available".to_owned()),
        // The end of the stream is seen by the sender or by the receiver, with texts of their own.
        (EgressProtocol::Grpc, Closing, String::new()),
        (EgressProtocol::Grpc, Garbled, String::new()),
        (EgressProtocol::Grpc, Endless, "sends a packet of more than 1048576 bytes".to_owned()),
        (EgressProtocol::Grpc, Lying, String::new()),
    ];
    for protocol in PROTOCOLS {
        let proxy = EgressDouble::start(protocol, EgressTransport::Unix).await;
        let lab = behind(&proxy).await;
        for (_, behaviour, expected) in cases.iter().filter(|(of, _, _)| *of == protocol) {
            proxy.behave(*behaviour);
            let begun = Instant::now();
            let refused = lab.raw.get(format!("{NAMESPACE}/pods/p/log")).await;
            assert_eq!(refused.status, 500, "{behaviour:?}: {}", refused.text());
            let text = refused.json()["message"].as_str().unwrap_or_default().to_owned();
            let socket = proxy.configuration(&["cluster"]);
            let socket = socket.split("udsName: ").nth(1).and_then(|rest| rest.split('}').next()).unwrap_or_default();
            let text = text.replace(socket, "SOCKET");
            assert!(text.contains(expected), "{protocol:?} {behaviour:?}: {text}");
            assert!(text.len() < 2_000, "{}", text.len());
            assert!(begun.elapsed() < Duration::from_secs(20), "{behaviour:?}");
        }
        assert!(lab.kubelet.requests().is_empty());
        without_tunnels(&proxy).await;
        // The next tunnel works again.
        proxy.behave(EgressBehaviour::Willing);
        lab.raw.get(format!("{NAMESPACE}/pods/p/log")).await.expect(200);
        let metrics = lab.raw.get("/metrics").await.expect(200).text();
        let label = if protocol == EgressProtocol::Grpc { "grpc" } else { "http_connect" };
        for line in [
            format!("apiserver_egress_dialer_dial_start_total{{protocol=\"{label}\",transport=\"uds\"}} 6"),
            format!(
                "apiserver_egress_dialer_dial_failure_count{{protocol=\"{label}\",transport=\"uds\",stage=\"proxy\"}} 5"
            ),
            format!("apiserver_egress_dialer_dial_duration_seconds_count{{protocol=\"{label}\",transport=\"uds\"}} 1"),
        ] {
            let own: Vec<&str> = metrics.lines().filter(|line| line.contains("egress_dialer")).collect();
            assert!(metrics.contains(&line), "{line} is not in {own:#?}");
        }
    }
}

#[tokio::test]
async fn a_proxy_that_hangs_or_dies_holds_only_its_callers() {
    for protocol in PROTOCOLS {
        let proxy = EgressDouble::start(protocol, EgressTransport::Tcp).await;
        let lab = behind(&proxy).await;
        let mut followed = lab.raw.get(format!("{NAMESPACE}/pods/p/log?follow=true")).stream().await;
        assert!(followed.next_chunk().await.unwrap().is_some());
        proxy.behave(EgressBehaviour::Silent);
        let call = lab.raw.clone().get(format!("{NAMESPACE}/pods/p/log"));
        let waiting = tokio::spawn(async move { call.try_send().await });
        while proxy.open_connections() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // A client that gives up frees the connection to the proxy.
        waiting.abort();
        while proxy.open_connections() > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        lab.raw.get(format!("{NAMESPACE}/pods/p")).await.expect(200);
        proxy.die();
        let ended = async { while let Ok(Some(_)) = followed.next_chunk().await {} };
        tokio::time::timeout(PATIENCE, ended).await.expect("the log ends with the proxy");
        lab.without_connections().await;
        let refused = lab.raw.get(format!("{NAMESPACE}/pods/p/log")).await;
        assert_eq!(refused.status, 500);
        assert!(refused.text().contains("connect: connection refused"), "{}", refused.text());
    }
}

#[tokio::test]
async fn a_proxy_cannot_stand_in_for_a_kubelet() {
    let proxy = EgressDouble::start(EgressProtocol::HttpConnect, EgressTransport::Unix).await;
    let kubelet = KubeletDouble::start().await;
    let directory = tempfile::TempDir::new().unwrap();
    let authority = directory.path().join("kubelet-ca.crt");
    std::fs::write(&authority, kubelet.ca_pem()).unwrap();
    let other = KubeletDouble::start().await;
    let nodes = NodeOptions { certificate_authority: Some(authority), ..NodeOptions::default() };
    let lab = trusting(&proxy, kubelet, nodes).await;
    // The kubelet's certificate has another name than the node.
    let refused = lab.raw.get(format!("{NAMESPACE}/pods/p/log")).await;
    assert!(refused.text().contains("valid for localhost, not node-1.invalid"), "{}", refused.text());
    // The proxy leads to a kubelet with the right name and another authority.
    let status = json!({
        "addresses": [{"type": "Hostname", "address": "localhost"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    });
    lab.node("near", status).await;
    lab.pod("q", "near").await;
    proxy.route("localhost:10250", other.addr());
    let refused = lab.raw.get(format!("{NAMESPACE}/pods/q/log")).await;
    assert!(refused.text().contains("certificate signed by unknown authority"), "{}", refused.text());
    assert!(other.requests().is_empty() && lab.kubelet.requests().is_empty());
    proxy.route("localhost:10250", lab.kubelet.addr());
    lab.raw.get(format!("{NAMESPACE}/pods/q/log")).await.expect(200);
}

#[tokio::test]
async fn a_proxy_is_not_asked_for_addresses_that_must_not_be_reached() {
    let proxy = EgressDouble::start(EgressProtocol::Grpc, EgressTransport::Unix).await;
    let lab = behind(&proxy).await;
    let port = lab.kubelet.addr().port();
    for address in ["127.0.0.1", "169.254.169.254", "::1"] {
        lab.raw
            .patch(
                format!("{NAMESPACE}/pods/p/status"),
                super::MERGE,
                &json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}}),
            )
            .await;
        let refused = lab.raw.get(format!("{NAMESPACE}/pods/https:p:{port}/proxy/")).await;
        super::check(&refused, 400, "BadRequest", "address not allowed");
    }
    let refused = lab.raw.get(format!("/api/v1/nodes/https:n:{port}/proxy/metrics")).await;
    super::check(&refused, 400, "BadRequest", "address not allowed");
    assert!(proxy.dialled().is_empty(), "{:?}", proxy.dialled());
}

/// A webhook that allows all objects.
async fn webhook() -> HookServer {
    HookServer::start(&["127.0.0.1", "hook.lab.svc"], |request: HookRequest| {
        let uid = request.body["request"]["uid"].clone();
        let response = json!({"uid": uid, "allowed": true});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        std::future::ready(HookReply::Json(review))
    })
    .await
}

#[tokio::test]
async fn webhooks_and_aggregated_servers_are_called_through_egress_proxies() {
    for protocol in PROTOCOLS {
        let control_plane = EgressDouble::start(protocol, EgressTransport::Unix).await;
        let cluster = EgressDouble::start(protocol, EgressTransport::Tls).await;
        let second = cluster.configuration(&["cluster"]);
        let second = second.lines().last().unwrap_or_default();
        let text = format!("{}{second}\n", control_plane.configuration(&["ControlPlane"]));
        let lab = Lab::with(KubeletDouble::start().await, |config, directory| {
            let file = directory.join("egress.yaml");
            std::fs::write(&file, text).unwrap();
            config.egress = read_egress(&file, &config.random).unwrap();
        });
        let lab = lab.await;
        let hook = webhook().await;
        let url = hook.url("/");
        let service = json!({
            "metadata": {"name": "hook"},
            "spec": {"type": "ExternalName", "externalName": "hook.elsewhere.invalid"},
        });
        lab.raw.post(format!("{NAMESPACE}/services"), &service).await.expect(201);
        cluster.route("hook.elsewhere.invalid:8443", hook.addr());
        let configuration = |name: &str, client: serde_json::Value| {
            let mut client = client;
            client["caBundle"] = json!(hook.ca_bundle());
            json!({
                "metadata": {"name": name},
                "webhooks": [{
                    "name": "a.example.org", "clientConfig": client, "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
                }],
            })
        };
        let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        lab.raw.post(hooks, &configuration("url", json!({ "url": url }))).await.expect(201);
        let reference = json!({"service": {"namespace": "lab", "name": "hook", "port": 8443}});
        lab.raw.post(hooks, &configuration("service", reference)).await.expect(201);
        lab.raw.post(format!("{NAMESPACE}/configmaps"), &json!({"metadata": {"name": "m"}})).await.expect(201);
        assert_eq!(control_plane.dialled(), [hook.addr().to_string()]);
        assert_eq!(cluster.dialled(), ["hook.elsewhere.invalid:8443"]);
        aggregated(&lab, &cluster).await;
        assert_eq!(control_plane.dialled().len(), 1);
    }
}

/// Registers an aggregated server whose service leads to a name that the proxy knows only.
async fn aggregated(lab: &Lab, cluster: &EgressDouble) {
    let authority = lab.server.running().pki().front_proxy.ca_pem.clone();
    let upstream = UpstreamServer::start(&["echo.lab.svc"], &authority, upstream_echo).await;
    let service = json!({
        "metadata": {"name": "echo"},
        "spec": {"type": "ExternalName", "externalName": "echo.elsewhere.invalid"},
    });
    lab.raw.post(format!("{NAMESPACE}/services"), &service).await.expect(201);
    cluster.route("echo.elsewhere.invalid:443", upstream.addr());
    let registered = json!({
        "metadata": {"name": "v1.px.example.org"},
        "spec": {
            "group": "px.example.org", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "service": {"namespace": "lab", "name": "echo"}, "caBundle": upstream.ca_bundle(),
        },
    });
    lab.raw.post("/apis/apiregistration.k8s.io/v1/apiservices", &registered).await.expect(201);
    let wait = async {
        while lab.raw.get("/apis/px.example.org/v1/namespaces/x/things").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        let service = lab.raw.get("/apis/apiregistration.k8s.io/v1/apiservices/v1.px.example.org").await.text();
        panic!("the aggregated server is not reached: {service}");
    }
    assert!(cluster.dialled().iter().any(|address| address == "echo.elsewhere.invalid:443"));
}

#[tokio::test]
async fn etcd_is_reached_through_its_proxy() {
    let Some(etcd) = EtcdServer::shared() else { return };
    for protocol in PROTOCOLS {
        let proxy = EgressDouble::start(protocol, EgressTransport::Unix).await;
        proxy.route("etcd.elsewhere.invalid:2379", etcd.endpoint().parse().unwrap());
        let text = proxy.configuration(&["etcd"]);
        let builder = TestServer::builder();
        let file = builder.data_dir().join("egress.yaml");
        std::fs::write(&file, text).unwrap();
        let prefix = format!("egress-{protocol:?}").to_lowercase();
        let server = builder
            .configure(move |config| {
                config.egress = read_egress(&file, &config.random).unwrap();
                let url = format!("etcd://etcd.elsewhere.invalid:2379/{prefix}");
                config.store = StoreConfig::parse(&url).unwrap();
            })
            .start()
            .await;
        let map = json!({"metadata": {"name": "m"}, "data": {"a": "x".repeat(200_000)}});
        server.raw().post("/api/v1/namespaces/default/configmaps", &map).await.expect(201);
        let read = server.raw().get("/api/v1/namespaces/default/configmaps/m").await.expect(200).json();
        assert_eq!(read["data"], map["data"]);
        assert!(proxy.dialled().iter().all(|address| address == "etcd.elsewhere.invalid:2379"));
        assert!(!proxy.dialled().is_empty());
    }
}
