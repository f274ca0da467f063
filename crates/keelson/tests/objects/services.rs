//! Tests of the addresses and ports of services, their allocation and release, and the service of the server itself.
//!
//! The tests of the registry cover races between servers.

use std::net::IpAddr;
use std::sync::Arc;

use keelson_server::{PortRange, ServiceRanges};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store as _, StoreKey, Transaction};
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const MERGE: &str = "application/merge-patch+json";

fn ranges(addresses: &[&str], ports: &str) -> ServiceRanges {
    let addresses = addresses.iter().map(|range| range.parse().unwrap()).collect();
    ServiceRanges::new(addresses, ports.parse::<PortRange>().unwrap()).unwrap()
}

async fn server(addresses: &[&str], ports: &str) -> TestServer {
    let ranges = ranges(addresses, ports);
    TestServer::builder().configure(|config| config.registry.service_ranges = ranges).start().await
}

async fn post(raw: &Raw, name: &str, mut spec: Value) -> Answer {
    if spec["ports"].is_null() && spec["type"] != "ExternalName" {
        spec["ports"] = json!([{"port": 80}]);
    }
    raw.post(SERVICES, &json!({"metadata": {"name": name}, "spec": spec})).await
}

async fn create(raw: &Raw, name: &str, spec: Value) -> Value {
    post(raw, name, spec).await.expect(201).json()
}

/// Checks that the service is rejected, and that the message ends with this text.
async fn refused(raw: &Raw, code: u16, spec: Value, expect: &str) {
    let message = post(raw, "refused", spec).await.expect(code).json()["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with(expect), "{message}");
}

async fn exists(raw: &Raw, address: &Value) -> bool {
    raw.get(format!("{ADDRESSES}/{}", address.as_str().unwrap())).await.status == 200
}

fn address(service: &Value) -> IpAddr {
    service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_service_allocates_an_ip_address_object_and_releases_it() {
    let server = server(&["10.0.0.0/24"], "30000-32767").await;
    let raw = server.raw();
    let made = create(&raw, "web", json!({"selector": {"app": "web"}})).await;
    let spec = &made["spec"];
    let given = &spec["clusterIP"];
    assert_eq!(spec["clusterIPs"], json!([given]));
    assert_eq!((&spec["ipFamilies"], &spec["ipFamilyPolicy"]), (&json!(["IPv4"]), &json!("SingleStack")));
    assert!(given.as_str().unwrap().starts_with("10.0.0."), "{given}");
    let object = raw.get(format!("{ADDRESSES}/{}", given.as_str().unwrap())).await.expect(200).json();
    let parent = json!({"resource": "services", "namespace": "default", "name": "web"});
    assert_eq!(object["spec"]["parentRef"], parent);
    let labels = json!({"ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"});
    assert_eq!(object["metadata"]["labels"], labels);
    assert_eq!(raw.get(format!("{SERVICES}/web")).await.expect(200).json(), made, "it reads as it was answered");

    let external = json!({"spec": {"type": "ExternalName", "externalName": "example.org"}});
    let named = raw.patch(format!("{SERVICES}/web"), MERGE, &external).await.expect(200).json();
    assert_eq!((&named["spec"]["clusterIP"], &named["spec"]["ipFamilies"]), (&Value::Null, &Value::Null));
    assert!(!exists(&raw, given).await, "a name needs no address");
    let back = json!({"spec": {"type": "ClusterIP", "externalName": null}});
    let again = raw.patch(format!("{SERVICES}/web"), MERGE, &back).await.expect(200).json();
    assert!(exists(&raw, &again["spec"]["clusterIP"]).await);
    raw.delete(format!("{SERVICES}/web")).await.expect(200);
    assert!(!exists(&raw, &again["spec"]["clusterIP"]).await);
}

#[tokio::test]
async fn requested_cluster_ips_are_allocated_or_refused() {
    let server = server(&["10.0.0.0/24"], "30000-32767").await;
    let raw = server.raw();
    let wish = |address: &str| json!({"clusterIP": address});
    assert_eq!(create(&raw, "wish", wish("10.0.0.77")).await["spec"]["clusterIPs"], json!(["10.0.0.77"]));
    let taken = "failed to allocate IP 10.0.0.77: provided IP is already allocated";
    refused(&raw, 422, wish("10.0.0.77"), taken).await;
    let elsewhere = "failed to allocate IP 10.0.1.1: the provided IP (10.0.1.1) is not in the valid range. The range of \
                     valid IPs is 10.0.0.0/24";
    refused(&raw, 422, wish("10.0.1.1"), elsewhere).await;
    raw.delete(format!("{SERVICES}/wish")).await.expect(200);
    create(&raw, "next", wish("10.0.0.77")).await;
    let headless = create(&raw, "headless", json!({"clusterIP": "None", "selector": {"a": "b"}})).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(
        (&headless["spec"]["ipFamilies"], &headless["spec"]["ipFamilyPolicy"]),
        (&json!(["IPv4"]), &json!("SingleStack"))
    );
    let lost = "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services";
    refused(&raw, 422, json!({"ipFamilyPolicy": "RequireDualStack"}), lost).await;
}

#[tokio::test]
async fn an_address_stays_with_its_service_without_its_ip_address_object() {
    let server = server(&["10.0.0.0/29"], "30000-32767").await;
    let raw = server.raw();
    let first = create(&raw, "first", json!({"clusterIP": "10.0.0.3"})).await;
    let address = format!("{ADDRESSES}/10.0.0.3");
    let before = raw.get(address.as_str()).await.expect(200).json();
    raw.delete(address.as_str()).await.expect(200);
    let after = raw.get(address.as_str()).await.expect(200).json();
    assert_eq!((&after["spec"], &after["metadata"]["labels"]), (&before["spec"], &before["metadata"]["labels"]));
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"], "the one that was deleted is gone");
    raw.delete(ADDRESSES).await.expect(200);
    let taken = "failed to allocate IP 10.0.0.3: provided IP is already allocated";
    refused(&raw, 422, json!({"clusterIP": "10.0.0.3"}), taken).await;
    // The range has six addresses. Five are left, one of them is the server's own, and none is that of the deleted
    // service.
    for index in 0..4 {
        let other = create(&raw, &format!("other{index}"), json!({})).await;
        assert_ne!(other["spec"]["clusterIP"], first["spec"]["clusterIP"]);
    }
    raw.delete(format!("{SERVICES}/first")).await.expect(200);
    assert!(!exists(&raw, &first["spec"]["clusterIP"]).await, "it goes with its service");
    let nobodys = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.0.0.3"},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "other0"}}});
    raw.post(ADDRESSES, &nobodys).await.expect(201);
    raw.delete(address.as_str()).await.expect(200);
    raw.get(address.as_str()).await.expect(404);
}

#[tokio::test]
async fn a_write_of_the_service_recreates_its_lost_ip_address_object() {
    let store = Arc::new(MemoryStore::new());
    let ranges = ranges(&["10.0.0.0/29"], "30000-32767");
    let server = TestServer::builder()
        .shared_store(store.clone())
        .configure(|config| config.registry.service_ranges = ranges)
        .start()
        .await;
    let raw = server.raw();
    let web = create(&raw, "web", json!({"clusterIP": "10.0.0.3"})).await;
    // Deletes the address, as a tool with access to the store or an older release might.
    let key = StoreKey::new("/registry/ipaddresses/10.0.0.3");
    store.commit(Transaction::default().delete(key)).await.unwrap();
    assert!(!exists(&raw, &web["spec"]["clusterIP"]).await);
    let touched = json!({"metadata": {"labels": {"a": "b"}}});
    raw.patch(format!("{SERVICES}/web"), MERGE, &touched).await.expect(200);
    assert!(exists(&raw, &web["spec"]["clusterIP"]).await);
    let taken = "failed to allocate IP 10.0.0.3: provided IP is already allocated";
    refused(&raw, 422, json!({"clusterIP": "10.0.0.3"}), taken).await;
}

#[tokio::test]
async fn a_cluster_with_two_families_gives_an_address_of_each() {
    let server = server(&["fd00:10::/112", "10.0.0.0/24"], "30000-32767").await;
    let raw = server.raw();
    let both = create(&raw, "both", json!({"ipFamilyPolicy": "PreferDualStack"})).await;
    assert_eq!(both["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    let addresses = both["spec"]["clusterIPs"].as_array().unwrap();
    assert!(address(&both).is_ipv6() && addresses.len() == 2, "{both}");
    for given in addresses {
        assert!(exists(&raw, given).await);
    }
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
    let single = raw.patch(format!("{SERVICES}/both"), MERGE, &single).await.expect(200).json();
    assert_eq!(single["spec"]["clusterIPs"], json!([addresses[0]]));
    assert!(!exists(&raw, &addresses[1]).await);
    assert!(address(&create(&raw, "four", json!({"ipFamilies": ["IPv4"]})).await).is_ipv4());
}

#[tokio::test]
async fn node_ports_are_given_kept_and_given_back() {
    let server = server(&["10.0.0.0/24"], "30000-30099").await;
    let raw = server.raw();
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30007},
        {"name": "c", "port": 80, "protocol": "UDP"}]);
    let made = create(&raw, "web", json!({"type": "NodePort", "ports": ports})).await;
    let given = |service: &Value, index: usize| service["spec"]["ports"][index]["nodePort"].as_u64().unwrap_or(0);
    assert!((30_000..30_100).contains(&given(&made, 0)), "{made}");
    assert_eq!((given(&made, 1), given(&made, 2)), (30_007, given(&made, 0)), "one for both protocols");

    let wish = |port: i32| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let taken = "spec.ports[0].nodePort: Invalid value: 30007: provided port is already allocated";
    refused(&raw, 422, wish(30_007), taken).await;
    let outside = "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid \
                   ports is 30000-30099";
    refused(&raw, 422, wish(80), outside).await;
    refused(&raw, 422, wish(70_000), &outside.replace("80:", "70000:")).await;
    refused(&raw, 422, wish(-1), &outside.replace("80:", "-1:")).await;
    // The allocation comes before the validation of the other fields.
    let both = json!({"type": "NodePort", "sessionAffinity": "Maybe", "ports": [{"port": 80, "nodePort": 80}]});
    refused(&raw, 422, both, outside).await;

    // An update without the allocated values keeps them.
    let mut bare = made.clone();
    bare["spec"] = json!({"type": "NodePort", "ports": ports});
    bare["spec"]["ports"][1].as_object_mut().unwrap().remove("nodePort");
    let kept = raw.put(format!("{SERVICES}/web"), &bare).await.expect(200).json();
    for field in ["clusterIP", "clusterIPs", "ports", "ipFamilies"] {
        assert_eq!(kept["spec"][field], made["spec"][field], "{field}");
    }
    let cluster = json!({"spec": {"type": "ClusterIP"}});
    let cluster = raw.patch(format!("{SERVICES}/web"), MERGE, &cluster).await.expect(200).json();
    assert_eq!((given(&cluster, 0), given(&cluster, 1)), (0, 0));
    assert_eq!(cluster["spec"]["clusterIP"], made["spec"]["clusterIP"]);
    create(&raw, "next", wish(30_007)).await;
}

#[tokio::test]
async fn a_balanced_service_has_ports_where_it_needs_them() {
    let server = server(&["10.0.0.0/24"], "30000-30099").await;
    let raw = server.raw();
    let made = create(&raw, "local", json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"})).await;
    let check = made["spec"]["healthCheckNodePort"].as_u64().unwrap();
    let port = made["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!(check != port && (30_000..30_100).contains(&check), "{made}");
    let none = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    let made = create(&raw, "bare", none).await;
    assert_eq!(made["spec"]["ports"][0]["nodePort"], Value::Null);
    let wider = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    let wider = raw.patch(format!("{SERVICES}/local"), MERGE, &wider).await.expect(200).json();
    assert_eq!(wider["spec"]["healthCheckNodePort"], Value::Null);
    let wish = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": check}]});
    create(&raw, "next", wish).await;
}

#[tokio::test]
async fn a_dry_run_takes_nothing() {
    let server = server(&["10.0.0.0/24"], "30000-30000").await;
    let raw = server.raw();
    let count = async || raw.get(ADDRESSES).await.json()["items"].as_array().unwrap().len();
    let before = count().await;
    let body = json!({"metadata": {"name": "dry"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let dry = raw.post(format!("{SERVICES}?dryRun=All"), &body).await.expect(201).json();
    assert_eq!(dry["spec"]["ports"][0]["nodePort"], 30_000);
    assert!(dry["spec"]["clusterIP"].is_string());
    assert_eq!(count().await, before);
    create(&raw, "real", json!({"type": "NodePort"})).await;
    let wish =
        json!({"metadata": {"name": "dry"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_000}]}});
    raw.post(format!("{SERVICES}?dryRun=All"), &wish).await.expect(422);
    refused(&raw, 500, json!({"type": "NodePort"}), "failed to allocate a nodePort: range is full").await;
    let more = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    raw.patch(format!("{SERVICES}/real?dryRun=All"), MERGE, &more).await.expect(500);
    raw.delete(format!("{SERVICES}/real?dryRun=All")).await.expect(200);
    refused(&raw, 500, json!({"type": "NodePort"}), "failed to allocate a nodePort: range is full").await;
}

#[tokio::test]
async fn addresses_also_come_from_ranges_that_are_added() {
    let server = server(&["10.0.0.0/29"], "30000-32767").await;
    let raw = server.raw();
    // Six addresses, and the server's own service has one of them.
    for number in 0..5 {
        create(&raw, &format!("s{number}"), json!({})).await;
    }
    refused(&raw, 500, json!({}), "failed to allocate a serviceIP: range is full").await;
    let more = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.7.0.0/24"]}});
    raw.post("/apis/networking.k8s.io/v1/servicecidrs", &more).await.expect(201);
    let made = create(&raw, "more", json!({})).await;
    assert!(made["spec"]["clusterIP"].as_str().unwrap().starts_with("10.7.0."), "{made}");
}

#[tokio::test]
async fn the_server_is_found_by_a_service_until_it_stops() {
    let store = Arc::new(MemoryStore::new());
    let start = async |advertised: &str| {
        let advertised: IpAddr = advertised.parse().unwrap();
        let ranges = ranges(&["10.0.0.0/24"], "30000-32767");
        let builder = TestServer::builder().shared_store(store.clone()).configure(|config| {
            config.registry.service_ranges = ranges;
            config.advertise_address = Some(advertised);
        });
        builder.start().await
    };
    let mut server = start("192.0.2.7").await;
    let raw = server.raw();
    let service = raw.get(format!("{SERVICES}/kubernetes")).await.expect(200).json();
    assert_eq!(service["spec"]["clusterIP"], "10.0.0.1");
    assert_eq!(service["metadata"]["labels"], json!({"component": "apiserver", "provider": "kubernetes"}));
    let port = &service["spec"]["ports"][0];
    assert_eq!((&port["name"], &port["port"]), (&json!("https"), &json!(443)));
    let endpoints = raw.get("/api/v1/namespaces/default/endpoints/kubernetes").await.expect(200).json();
    let listens = json!({"name": "https", "port": port["targetPort"], "protocol": "TCP"});
    assert_eq!(endpoints["subsets"], json!([{"addresses": [{"ip": "192.0.2.7"}], "ports": [listens]}]));
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = raw.get(slices).await.expect(200).json();
    assert_eq!(slice["endpoints"], json!([{"addresses": ["192.0.2.7"], "conditions": {"ready": true}}]));
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "kubernetes");
    let range = raw.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.expect(200).json();
    assert_eq!(range["spec"]["cidrs"], json!(["10.0.0.0/24"]));
    let ready = &range["status"]["conditions"][0];
    assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("True")));
    assert_eq!(ready["message"], "Kubernetes default Service CIDR is ready");

    server.stop().await;
    let after = store.get(&StoreKey::new("/registry/services/endpoints/default/kubernetes")).await.unwrap().unwrap();
    let after: Value = serde_json::from_slice(&after.value).unwrap();
    assert_eq!(after["subsets"], Value::Null, "a server that has stopped is not to be found");
    let server = start("192.0.2.8").await;
    let endpoints = server.raw().get("/api/v1/namespaces/default/endpoints/kubernetes").await.expect(200).json();
    assert_eq!(endpoints["subsets"][0]["addresses"], json!([{"ip": "192.0.2.8"}]));
}

/// The allocation of a service is deleted, and another service gets it. It remains with the other one when the first is
/// deleted or changed.
#[tokio::test]
async fn a_resource_of_another_holder_is_not_released() {
    let store = Arc::new(MemoryStore::new());
    let server = TestServer::builder().shared_store(store.clone()).start().await;
    let raw = server.raw();
    let spec = |cluster_ip: &str, node_port: u16| json!({"type": "NodePort", "clusterIP": cluster_ip, "ports": [{"port": 80, "nodePort": node_port}]});
    let port_key = |port: u16| StoreKey::new(format!("/registry/ranges/nodeports/{port}"));
    for (number, leave) in ["delete", "rename"].into_iter().enumerate() {
        let (ip, port) = (format!("10.96.0.{}", 50 + number), 30_050 + number as u16);
        let (first, second) = (format!("first-{leave}"), format!("second-{leave}"));
        create(&raw, &first, spec(&ip, port)).await;
        // An older release may have lost both entries and allocated the address twice.
        let lost = Transaction::default().delete(StoreKey::new(format!("/registry/ipaddresses/{ip}")));
        store.commit(lost.delete(port_key(port))).await.unwrap();
        create(&raw, &second, spec(&ip, port)).await;
        match leave {
            "delete" => raw.delete(format!("{SERVICES}/{first}")).await.expect(200),
            _ => {
                let external = json!({"spec": {"type": "ExternalName", "externalName": "example.org"}});
                raw.patch(format!("{SERVICES}/{first}"), MERGE, &external).await.expect(200)
            }
        };
        let kept = raw.get(format!("{ADDRESSES}/{ip}")).await.expect(200).json();
        assert_eq!(kept["spec"]["parentRef"]["name"], second);
        refused(&raw, 422, spec(&ip, port + 100), "provided IP is already allocated").await;
        refused(
            &raw,
            422,
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}),
            "provided port is already allocated",
        )
        .await;
        // A client changes the address object meanwhile. The second service still releases it.
        let labelled = json!({"metadata": {"labels": {"seen": "yes"}}});
        raw.patch(format!("{ADDRESSES}/{ip}"), MERGE, &labelled).await.expect(200);
        raw.delete(format!("{SERVICES}/{second}")).await.expect(200);
        assert!(!exists(&raw, &json!(ip)).await);
        assert!(store.get(&port_key(port)).await.unwrap().is_none());
    }
}
