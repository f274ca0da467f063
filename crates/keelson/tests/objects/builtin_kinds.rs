//! Tests of rules of built-in kinds that concern several fields or several writes. Among them are defaults of a status,
//! fields that mirror each other, quantities below a thousandth, and conditional rules.
//!
//! The responses are those of kube-apiserver.

use keelson_server::AdmissionPlugins;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const DEFAULT: &str = "/api/v1/namespaces/default";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn patch(raw: &Raw, path: &str, change: Value) -> Value {
    raw.patch(path, MERGE, &change).await.expect(200).json()
}

fn without_account() -> AdmissionPlugins {
    AdmissionPlugins::new(Vec::new(), vec!["ServiceAccount".to_owned()]).unwrap()
}

#[tokio::test]
async fn an_address_of_a_load_balancer_gets_its_mode() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let services = format!("{DEFAULT}/services");
    let service = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    raw.post(services.as_str(), &service).await.expect(201);
    let url = format!("{services}/web/status");
    let ingress = |address: Value| json!({"status": {"loadBalancer": {"ingress": [address]}}});
    let expected = json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]);
    let patched = patch(&raw, &url, ingress(json!({"ip": "192.0.2.1"}))).await;
    assert_eq!(patched["status"]["loadBalancer"]["ingress"], expected);
    assert_eq!(raw.get(url.as_str()).await.expect(200).json()["status"]["loadBalancer"]["ingress"], expected);
    let proxied = json!({"ip": "192.0.2.1", "ipMode": "Proxy"});
    let patched = patch(&raw, &url, ingress(proxied.clone())).await;
    assert_eq!(patched["status"]["loadBalancer"]["ingress"], json!([proxied]));

    let mut whole = raw.get(url.as_str()).await.expect(200).json();
    whole["status"] = ingress(json!({"ip": "192.0.2.2"}))["status"].clone();
    let put = raw.put(url.as_str(), &whole).await.expect(200).json();
    assert_eq!(put["status"]["loadBalancer"]["ingress"][0]["ipMode"], "VIP");

    let mut applied = ingress(json!({"ip": "192.0.2.3"}));
    applied["apiVersion"] = json!("v1");
    applied["kind"] = json!("Service");
    applied["metadata"] = json!({"name": "web"});
    let applied = raw.patch(format!("{url}?fieldManager=a&force=true"), APPLY, &applied).await.expect(200).json();
    assert_eq!(applied["status"]["loadBalancer"]["ingress"], json!([{"ip": "192.0.2.3", "ipMode": "VIP"}]));
}

#[tokio::test]
async fn addresses_and_ranges_of_pods_stand_in_both_fields() {
    let server = TestServer::builder().configure(|config| config.admission = without_account()).start().await;
    let raw = server.raw();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    raw.post(format!("{DEFAULT}/pods"), &pod).await.expect(201);
    let url = format!("{DEFAULT}/pods/p/status");
    let ips = |list: &[&str]| json!(list.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>());
    for (stated, one, many) in [
        (json!({"podIP": "10.0.0.1"}), "10.0.0.1", ips(&["10.0.0.1"])),
        (json!({"podIP": "10.0.0.2"}), "10.0.0.2", ips(&["10.0.0.2"])),
        (json!({"podIP": null, "podIPs": ips(&["10.0.0.3", "fd00::3"])}), "10.0.0.3", ips(&["10.0.0.3", "fd00::3"])),
        (json!({"podIP": "10.0.0.4"}), "10.0.0.4", ips(&["10.0.0.4"])),
    ] {
        let status = patch(&raw, &url, json!({"status": stated})).await["status"].clone();
        assert_eq!((&status["podIP"], &status["podIPs"]), (&json!(one), &many), "{stated}");
    }
    let mut whole = raw.get(url.as_str()).await.expect(200).json();
    whole["status"].as_object_mut().unwrap().remove("podIP");
    whole["status"]["podIPs"] = ips(&["10.0.0.5"]);
    assert_eq!(raw.put(url.as_str(), &whole).await.expect(200).json()["status"]["podIP"], "10.0.0.5");
    let found = raw.get(format!("{DEFAULT}/pods?fieldSelector=status.podIP%3D10.0.0.5")).await.expect(200).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);

    let nodes = "/api/v1/nodes";
    for (name, stated) in [("a", json!({"podCIDR": "10.1.0.0/24"})), ("b", json!({"podCIDRs": ["10.1.0.0/24"]}))] {
        let node = json!({"metadata": {"name": name}, "spec": stated});
        let spec = raw.post(nodes, &node).await.expect(201).json()["spec"].clone();
        assert_eq!((&spec["podCIDR"], &spec["podCIDRs"]), (&json!("10.1.0.0/24"), &json!(["10.1.0.0/24"])));
    }
    // The range is set once, through either field.
    raw.post(nodes, &json!({"metadata": {"name": "c"}})).await.expect(201);
    let spec = patch(&raw, "/api/v1/nodes/c", json!({"spec": {"podCIDR": "10.1.1.0/24"}})).await["spec"].clone();
    assert_eq!(spec["podCIDRs"], json!(["10.1.1.0/24"]));
    raw.patch("/api/v1/nodes/c", MERGE, &json!({"spec": {"podCIDR": "10.1.2.0/24"}})).await.expect(422);
}

#[tokio::test]
async fn quantities_below_a_thousandth_are_rounded_up() {
    let server = TestServer::builder().configure(|config| config.admission = without_account()).start().await;
    let raw = server.raw();
    let limits = json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "min": {"cpu": "1m"}}]}});
    raw.post(format!("{DEFAULT}/limitranges"), &limits).await.expect(201);
    let requests = json!({"requests": {"cpu": "500u", "memory": "0.0005"}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1", "resources": requests}]}});
    let made = raw.post(format!("{DEFAULT}/pods"), &pod).await.expect(201).json();
    assert_eq!(made["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1m", "memory": "1m"}));
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "1500u"}}});
    let made = raw.post(format!("{DEFAULT}/resourcequotas"), &quota).await.expect(201).json();
    assert_eq!(made["spec"]["hard"], json!({"cpu": "2m"}));
}

#[tokio::test]
async fn an_elastic_indexed_job_may_count_fewer_successes() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}});
    let job = |name: &str, mode: &str| json!({"metadata": {"name": name}, "spec": {"completions": 3, "parallelism": 3, "completionMode": mode, "template": template}});
    let time = "2026-01-02T03:04:05Z";
    let started = json!({"status": {"startTime": time, "succeeded": 2, "active": 1}});
    for (name, mode, answer) in [("elastic", "Indexed", 200), ("plain", "NonIndexed", 422)] {
        raw.post(jobs, &job(name, mode)).await.expect(201);
        let url = format!("{jobs}/{name}");
        patch(&raw, &format!("{url}/status"), started.clone()).await;
        let smaller = json!({"spec": {"completions": 2, "parallelism": 2}});
        raw.patch(url.as_str(), MERGE, &smaller).await.expect(answer);
        let fewer = raw.patch(format!("{url}/status"), MERGE, &json!({"status": {"succeeded": 0}})).await;
        let body = fewer.expect(answer).json();
        assert_eq!(
            answer == 422,
            body["message"].as_str().is_some_and(|text| text.contains("cannot decrease the succeeded counter"))
        );
    }
    // A job with fixed completions counts successes once.
    raw.post(jobs, &job("fixed", "Indexed")).await.expect(201);
    let url = format!("{jobs}/fixed");
    patch(&raw, &url, json!({"spec": {"parallelism": 1}})).await;
    patch(&raw, &format!("{url}/status"), started).await;
    raw.patch(format!("{url}/status"), MERGE, &json!({"status": {"succeeded": 0}})).await.expect(422);
    // A finished job may not have uncounted pods.
    let uncounted = json!({"uncountedTerminatedPods": {"succeeded": ["u"]}});
    let mut ended = json!({"status": {"active": 0, "succeeded": 3, "completionTime": time, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]}});
    ended["status"]["uncountedTerminatedPods"] = uncounted["uncountedTerminatedPods"].clone();
    let response = raw.patch(format!("{url}/status"), MERGE, &ended).await.expect(422).text();
    assert!(response.contains("uncountedTerminatedPods needs to be empty for finished job"), "{response}");
    ended["status"]["uncountedTerminatedPods"] = Value::Null;
    patch(&raw, &format!("{url}/status"), ended).await;
}

#[tokio::test]
async fn a_new_node_has_no_taint_where_the_plugin_is_off() {
    let off = AdmissionPlugins::new(Vec::new(), vec!["TaintNodesByCondition".to_owned()]).unwrap();
    let server = TestServer::builder().configure(|config| config.admission = off).start().await;
    let node = json!({"metadata": {"name": "n"}});
    assert_eq!(server.raw().post("/api/v1/nodes", &node).await.expect(201).json()["spec"], json!({}));
    let server = TestServer::start().await;
    let made = server.raw().post("/api/v1/nodes", &node).await.expect(201).json();
    assert_eq!(made["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
}

/// Fields that depend on a service's old type are removed with it, even if a patch changes only the type.
#[tokio::test]
async fn a_type_change_of_a_service_removes_its_dependent_fields() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let services = format!("{DEFAULT}/services");
    let balanced = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/a",
            "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local", "ports": [{"port": 80}]}})
    };
    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.example"}});
    let gone = [
        "clusterIP",
        "clusterIPs",
        "ipFamilies",
        "ipFamilyPolicy",
        "internalTrafficPolicy",
        "externalTrafficPolicy",
        "healthCheckNodePort",
        "allocateLoadBalancerNodePorts",
        "loadBalancerClass",
    ];
    for form in [MERGE, STRATEGIC] {
        let name = if form == MERGE { "merge" } else { "strategic" };
        raw.post(services.as_str(), &balanced(name)).await.expect(201);
        let spec = raw.patch(format!("{services}/{name}"), form, &external).await.expect(200).json()["spec"].clone();
        for field in gone {
            assert_eq!(spec[field], Value::Null, "{form}: {field} of {spec}");
        }
        assert_eq!(spec["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]));
    }
    raw.post(services.as_str(), &balanced("put")).await.expect(201);
    let mut whole = raw.get(format!("{services}/put")).await.expect(200).json();
    whole["spec"]["type"] = json!("ExternalName");
    whole["spec"]["externalName"] = json!("a.example");
    let spec = raw.put(format!("{services}/put"), &whole).await.expect(200).json()["spec"].clone();
    for field in gone {
        assert_eq!(spec[field], Value::Null, "PUT: {field} of {spec}");
    }
    // A load balancer without allocated node ports releases the node port that an update omits.
    let made = raw.post(
        services.as_str(),
        &json!({"metadata": {"name": "ports"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}),
    );
    let mut whole = made.await.expect(201).json();
    whole["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
    whole["spec"]["ports"][0].as_object_mut().unwrap().remove("nodePort").unwrap();
    let put = raw.put(format!("{services}/ports"), &whole).await.expect(200).json();
    assert_eq!(put["spec"]["ports"][0]["nodePort"], Value::Null);
}

#[tokio::test]
async fn details_are_validated_as_upstream() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let scaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 2,
        "scaleTargetRef": {"kind": "ReplicationController", "name": "rc"}}});
    let scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    raw.post(scalers, &scaler).await.expect(201);
    let mut of_deployment = scaler;
    of_deployment["metadata"]["name"] = json!("d");
    of_deployment["spec"]["scaleTargetRef"]["kind"] = json!("Deployment");
    raw.post(scalers, &of_deployment).await.expect(422);

    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    raw.post(revisions, &json!({"metadata": {"name": "r"}, "revision": 1, "data": {}})).await.expect(201);
    let response = raw.post(revisions, &json!({"metadata": {"name": "s"}, "revision": 1})).await.expect(422).text();
    assert!(response.contains("data: Required value: data is mandatory"), "{response}");

    let maps = format!("{DEFAULT}/configmaps");
    for (name, api_version) in [("slash", "/v1"), ("empty", "/")] {
        let map = json!({"apiVersion": api_version, "kind": "ConfigMap", "metadata": {"name": name}});
        assert_eq!(raw.post(maps.as_str(), &map).await.expect(201).json()["apiVersion"], "v1");
    }
    let map = json!({"apiVersion": "/apps/v1", "kind": "ConfigMap", "metadata": {"name": "two"}});
    raw.post(maps.as_str(), &map).await.expect(400);

    let labels = json!({"a": "b"});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    raw.post(deployments, &deployment).await.expect(201);
    let status = json!({"status": {"terminatingReplicas": -1}});
    let response = raw.patch(format!("{deployments}/d/status"), MERGE, &status).await.expect(422).text();
    assert!(
        response.contains("status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0"),
        "{response}"
    );
}

#[tokio::test]
async fn a_pod_selects_by_the_values_of_its_label_keys() {
    let server = TestServer::builder().configure(|config| config.admission = without_account()).start().await;
    let raw = server.raw();
    let pods = format!("{DEFAULT}/pods");
    let pod = |name: &str, selector: Value| {
        let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector, "matchLabelKeys": ["app"]});
        let term = json!({"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": ["app"]});
        json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {
            "containers": [{"name": "c", "image": "i:1"}], "topologySpreadConstraints": [constraint],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
    };
    let expected = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]});
    let made = raw.post(pods.as_str(), &pod("p", json!({}))).await.expect(201).json();
    assert_eq!(made["spec"]["topologySpreadConstraints"][0]["labelSelector"], expected);
    let term = &made["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(term["labelSelector"], expected);
    patch(&raw, &format!("{pods}/p"), json!({"metadata": {"labels": {"more": "x"}}})).await;
    let response = raw.post(pods.as_str(), &pod("q", json!({"matchLabels": {"app": "web"}}))).await.expect(422).text();
    assert!(response.contains("spec.topologySpreadConstraints[0].matchLabelKeys[0]: Invalid value"), "{response}");
}

#[tokio::test]
async fn a_volume_says_since_when_it_is_in_its_phase() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/data"}}});
    raw.post(volumes, &volume).await.expect(201);
    let url = format!("{volumes}/v/status");
    let long_ago = "2020-01-01T00:00:00Z";
    let stated = json!({"status": {"phase": "Available", "lastPhaseTransitionTime": long_ago}});
    assert_eq!(patch(&raw, &url, stated).await["status"]["lastPhaseTransitionTime"], long_ago);
    let same = json!({"status": {"phase": "Available", "message": "m"}});
    assert_eq!(patch(&raw, &url, same).await["status"]["lastPhaseTransitionTime"], long_ago);
    let bound = patch(&raw, &url, json!({"status": {"phase": "Bound"}})).await["status"].clone();
    assert!(bound["lastPhaseTransitionTime"].as_str().unwrap() > "2026", "{bound}");
}

#[tokio::test]
async fn a_slice_of_endpoints_counts_its_labels_and_drops_the_old_topology() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let endpoint = json!({"addresses": ["192.0.2.1"], "deprecatedTopology": {"rack": "r"}});
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [endpoint], "ports": []});
    let made = raw.post(slices, &slice).await.expect(201).json();
    assert_eq!(
        (&made["endpoints"][0]["deprecatedTopology"], &made["metadata"]["generation"]),
        (&Value::Null, &json!(1))
    );
    let url = format!("{slices}/s");
    let labelled = patch(&raw, &url, json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labelled["metadata"]["generation"], 2);
    let annotated = patch(&raw, &url, json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(annotated["metadata"]["generation"], 2);
}

#[tokio::test]
async fn the_default_class_of_ingresses_is_marked_in_tables() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    let class = |name: &str, annotations: Value| json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"controller": "example.org/c"}});
    raw.post(classes, &class("edge", json!({"ingressclass.kubernetes.io/is-default-class": "true"}))).await.expect(201);
    raw.post(classes, &class("other", json!({"ingressclass.kubernetes.io/is-default-class": "false"})))
        .await
        .expect(201);
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = raw.get(classes).header("accept", accept).await.expect(200).json();
    let names = [0, 1].map(|row| table["rows"][row]["cells"][0].clone());
    assert_eq!(names, [json!("edge (default)"), json!("other")]);
}

#[tokio::test]
async fn a_claim_with_an_empty_class_of_attributes_can_be_changed() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, class: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}, "volumeAttributesClassName": class}})
    };
    raw.post(claims, &claim("empty", "")).await.expect(201);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    raw.patch(format!("{claims}/empty"), "application/merge-patch+json", &label).await.expect(200);
    raw.post(claims, &claim("gold", "gold")).await.expect(201);
    let emptied = json!({"spec": {"volumeAttributesClassName": ""}});
    let response =
        raw.patch(format!("{claims}/gold"), "application/merge-patch+json", &emptied).await.expect(422).text();
    assert!(response.contains("update from non-nil value to an empty string is forbidden"), "{response}");
}
