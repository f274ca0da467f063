//! Tests of addresses and paths that users control.
//!
//! None of them may lead a request to this server's own machine or to the metadata service of a cloud.

use keelson_testkit::KubeletDouble;
use serde_json::json;

use super::{Lab, NAMESPACE, check};

#[tokio::test]
async fn pods_with_addresses_that_are_not_global_are_not_reached() {
    let lab = Lab::start().await;
    let port = lab.kubelet.addr().port();
    let addresses = [
        "127.0.0.1",
        "127.8.8.8",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
    ];
    for (number, address) in addresses.into_iter().enumerate() {
        let name = format!("p{number}");
        lab.pod(&name, "n").await;
        let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        let set = lab.raw.patch(format!("{NAMESPACE}/pods/{name}/status"), super::MERGE, &status).await;
        if set.status != 200 {
            // Validation rejects some of them, which is also right.
            continue;
        }
        for named in [format!("{name}:{port}"), format!("https:{name}:{port}")] {
            let refused = lab.raw.get(format!("{NAMESPACE}/pods/{named}/proxy/")).await;
            check(&refused, 400, "BadRequest", "address not allowed");
        }
    }
    assert!(lab.kubelet.requests().is_empty());
}

#[tokio::test]
async fn a_node_at_the_loopback_address_is_not_proxied_to() {
    let lab = Lab::start().await;
    for named in ["n", "n:10255", "https:n:443", "http:n:80"] {
        let refused = lab.raw.get(format!("/api/v1/nodes/{named}/proxy/metrics")).await;
        check(&refused, 400, "BadRequest", "address not allowed");
    }
    // A host name does not help: it is resolved once, and all of its addresses are checked.
    let port = lab.kubelet.addr().port();
    let status = json!({
        "addresses": [{"type": "Hostname", "address": "localhost"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    });
    lab.node("named", status).await;
    let refused = lab.raw.get("/api/v1/nodes/named/proxy/metrics").await;
    check(&refused, 400, "BadRequest", "address not allowed");
    assert!(lab.kubelet.requests().is_empty());
}

#[tokio::test]
async fn an_endpoint_that_is_no_pod_of_the_namespace_is_not_reached() {
    let outer = KubeletDouble::outer_address();
    let lab = Lab::with(KubeletDouble::at(outer).await, |_, _| {}).await;
    let port = lab.kubelet.addr().port();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
    lab.raw.post(format!("{NAMESPACE}/services"), &service).await.expect(201);
    let slices = "/apis/discovery.k8s.io/v1/namespaces/lab/endpointslices";
    let slice = |name: &str, endpoint: serde_json::Value| {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
            "ports": [{"name": "web", "port": port}], "endpoints": [endpoint],
        })
    };
    let none = "no endpoints available for service \"s\"";
    check(&lab.raw.get(format!("{NAMESPACE}/services/s/proxy/")).await, 503, "ServiceUnavailable", none);
    let address = outer.to_string();
    // Endpoints that a user wrote: an address of no pod, of another user's pod, and of a pod with another address.
    lab.pod("p", "n").await;
    lab.pod_address("p", "192.0.2.77").await;
    for (name, target) in [
        ("none", json!(null)),
        ("elsewhere", json!({"kind": "Pod", "name": "p", "namespace": "kube-system"})),
        ("other", json!({"kind": "Pod", "name": "p", "namespace": "lab"})),
    ] {
        let mut endpoint = json!({"addresses": [address]});
        if !target.is_null() {
            endpoint["targetRef"] = target;
        }
        lab.raw.post(slices, &slice(name, endpoint)).await.expect(201);
    }
    let refused = lab.raw.get(format!("{NAMESPACE}/services/https:s:web/proxy/")).await;
    check(&refused, 503, "ServiceUnavailable", "no endpoints available for service \"https:s:web\"");
    assert!(lab.kubelet.requests().is_empty());
    lab.pod_address("p", &address).await;
    lab.raw.get(format!("{NAMESPACE}/services/https:s:web/proxy/x")).await.expect(200);
    lab.raw.get(format!("{NAMESPACE}/services/https:s:80/proxy/x")).await.expect(200);
    let unknown = lab.raw.get(format!("{NAMESPACE}/services/s:81/proxy/x")).await;
    check(&unknown, 503, "ServiceUnavailable", "no service port 81 found for service \"s\"");
}

#[tokio::test]
async fn an_external_name_leads_nowhere() {
    let lab = Lab::start().await;
    let service = json!({"metadata": {"name": "e"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    lab.raw.post(format!("{NAMESPACE}/services"), &service).await.expect(201);
    let refused = lab.raw.get(format!("{NAMESPACE}/services/e/proxy/")).await;
    check(&refused, 503, "ServiceUnavailable", "no endpoints available for service \"e\"");
}

#[tokio::test]
async fn paths_do_not_climb() {
    let outer = KubeletDouble::outer_address();
    let lab = Lab::with(KubeletDouble::at(outer).await, |_, _| {}).await;
    for path in ["../../secrets", "%2e%2e/%2e%2e/secrets", "a/%2E%2E/b", "./a", "a//b", "%2F%2Fa", "..%2f..%2fx"] {
        let refused = lab.raw.get(format!("/api/v1/nodes/n/proxy/{path}")).await;
        assert_eq!(refused.status, 404, "{path}: {}", refused.text());
    }
    // A user with only the right to the proxy reaches no other resource through `..` in a path.
    lab.allow("eve", &["nodes/proxy"], &["*"]).await;
    for path in ["/api/v1/nodes/n/proxy/../../../secrets", "/api/v1/nodes/n/proxy/%2e%2e/%2e%2e/%2e%2e/secrets"] {
        let refused = lab.raw.get(path).header("impersonate-user", "eve").await;
        assert_eq!(refused.status, 404, "{path}: {}", refused.text());
        assert!(!refused.text().contains("SecretList"));
    }
    assert!(lab.kubelet.requests().is_empty());
    // A pod name in the URL cannot select another path of the kubelet.
    let odd = lab.raw.get(format!("{NAMESPACE}/pods/..%2Fx/log")).await;
    assert_eq!(odd.status, 404, "{}", odd.text());
}
