//! Tests of the objects that a new server creates.
//!
//! Each start repairs them, and updates older ones.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_meta::clock::{ManualClock, rfc3339};
use keelson_server::Switches;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const MERGE: &str = "application/merge-patch+json";
/// The timeout for background work of the server.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the object at the path is as expected, or is gone.
async fn until(raw: &Raw, path: &str, expected: impl Fn(Option<Value>) -> bool) {
    let wait = async {
        loop {
            let answer = raw.get(path).await;
            if expected((answer.status == 200).then(|| answer.json())) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{path} never is as it should be"));
}

fn allows(role: &Value, verb: &str, resource: &str) -> bool {
    let has = |rule: &Value, field: &str, wanted: &str| {
        rule[field].as_array().is_some_and(|list| list.iter().any(|item| item == wanted || item == "*"))
    };
    let rules = role["rules"].as_array();
    rules.into_iter().flatten().any(|rule| has(rule, "verbs", verb) && has(rule, "resources", resource))
}

async fn names(raw: &Raw, path: &str) -> Vec<String> {
    let list = raw.get(path).await.expect(200).json();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_new_server_has_all_bootstrap_objects() {
    let server = TestServer::start().await;
    let raw = server.raw();
    assert_eq!(names(&raw, CLASSES).await, ["system-cluster-critical", "system-node-critical"]);
    let critical = raw.get(format!("{CLASSES}/system-node-critical")).await.expect(200).json();
    assert_eq!(
        (&critical["value"], &critical["preemptionPolicy"]),
        (&json!(2_000_001_000), &json!("PreemptLowerPriority"))
    );
    let kept = raw.delete(format!("{CLASSES}/system-node-critical?dryRun=All")).await.expect(403).json();
    let message = "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and cannot be deleted";
    assert_eq!(kept["message"], message);
    let roles = names(&raw, &format!("{RBAC}/clusterroles")).await;
    for role in ["admin", "cluster-admin", "edit", "system:controller:job-controller", "system:kube-scheduler", "view"]
    {
        assert!(roles.iter().any(|name| name == role), "{role} in {roles:?}");
    }
    let bound = raw.get(format!("{RBAC}/clusterrolebindings/cluster-admin")).await.expect(200).json();
    assert_eq!(
        bound["subjects"],
        json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:masters"}])
    );
    assert_eq!(names(&raw, &format!("{RBAC}/namespaces/kube-system/roles")).await.len(), 6);
    assert_eq!(names(&raw, &format!("{RBAC}/namespaces/kube-public/rolebindings")).await.len(), 1);
    let schemas = names(&raw, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").await;
    assert!(schemas.contains(&"catch-all".to_owned()) && schemas.contains(&"probes".to_owned()), "{schemas:?}");
    let levels = names(&raw, "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations").await;
    assert_eq!(levels.len(), 8, "{levels:?}");
    let ready = raw.get("/readyz?verbose").await.expect(200).text();
    for step in ["rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes", "bootstrap-controller"] {
        assert!(ready.contains(&format!("[+]poststarthook/{step} ok\n")), "{ready}");
    }
}

#[tokio::test]
async fn bootstrap_objects_have_the_field_manager_of_kube_apiserver() {
    let server = TestServer::start().await;
    for path in ["/api/v1/namespaces", "/api/v1/services", "/apis/networking.k8s.io/v1/ipaddresses", CLASSES] {
        let list = server.raw().get(path).await.expect(200).json();
        let items = list["items"].as_array().unwrap();
        assert!(!items.is_empty(), "{path}");
        for owner in items.iter().flat_map(|item| item["metadata"]["managedFields"].as_array().unwrap()) {
            assert_eq!(owner["manager"], "kube-apiserver", "{path}: {items:?}");
        }
    }
}

#[tokio::test]
async fn roles_that_are_made_of_others_follow_them() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let admin = format!("{RBAC}/clusterroles/admin");
    // The rules come through edit and view, which are aggregated themselves.
    until(&raw, &admin, |role| {
        role.is_some_and(|role| allows(&role, "watch", "pods") && allows(&role, "create", "roles"))
    })
    .await;
    let more = json!({
        "metadata": {"name": "more", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["example.org"], "resources": ["gadgets"], "verbs": ["get"]}],
    });
    raw.post(format!("{RBAC}/clusterroles"), &more).await.expect(201);
    until(&raw, &admin, |role| role.is_some_and(|role| allows(&role, "get", "gadgets"))).await;
    raw.delete(format!("{RBAC}/clusterroles/more")).await.expect(200);
    until(&raw, &admin, |role| role.is_some_and(|role| !allows(&role, "get", "gadgets"))).await;
}

#[tokio::test]
async fn a_start_adds_missing_bootstrap_objects_only() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let role = |name: &str| format!("{RBAC}/clusterroles/{name}");
    let rule = json!([{"apiGroups": ["example.org"], "resources": ["gadgets"], "verbs": ["get"]}]);
    raw.patch(role("system:kube-dns"), MERGE, &json!({"rules": rule})).await.expect(200);
    let keep =
        json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": rule});
    raw.patch(role("system:heapster"), MERGE, &keep).await.expect(200);
    raw.delete(role("system:node")).await.expect(200);
    raw.delete(format!("{RBAC}/clusterrolebindings/system:basic-user")).await.expect(200);
    raw.patch(format!("{RBAC}/clusterrolebindings/system:discovery"), MERGE, &json!({"subjects": null}))
        .await
        .expect(200);
    raw.patch(format!("{CLASSES}/system-node-critical"), MERGE, &json!({"description": "mine"})).await.expect(200);
    let untouched = raw.get(role("system:kube-scheduler")).await.expect(200).json();
    server.restart().await;
    let raw = server.raw();
    let dns = raw.get(role("system:kube-dns")).await.expect(200).json();
    assert!(allows(&dns, "get", "gadgets") && allows(&dns, "watch", "services"), "{dns}");
    assert_eq!(raw.get(role("system:heapster")).await.expect(200).json()["rules"], rule);
    raw.get(role("system:node")).await.expect(200);
    raw.get(format!("{RBAC}/clusterrolebindings/system:basic-user")).await.expect(200);
    let discovery = raw.get(format!("{RBAC}/clusterrolebindings/system:discovery")).await.expect(200).json();
    assert_eq!(discovery["subjects"][0]["name"], "system:authenticated");
    let class = raw.get(format!("{CLASSES}/system-node-critical")).await.expect(200).json();
    assert_eq!(class["description"], "mine");
    assert_eq!(raw.get(role("system:kube-scheduler")).await.expect(200).json(), untouched);
}

#[tokio::test]
async fn a_split_binding_inherits_the_changes_of_its_origin() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let binding = |name: &str| format!("{RBAC}/clusterrolebindings/{name}");
    raw.delete(binding("system:public-info-viewer")).await.expect(200);
    let kept = json!({
        "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}, "labels": {"of": "mine"}},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}],
    });
    raw.patch(binding("system:discovery"), MERGE, &kept).await.expect(200);
    server.restart().await;
    let made = server.raw().get(binding("system:public-info-viewer")).await.expect(200).json();
    assert_eq!(made["subjects"], kept["subjects"]);
    assert_eq!(made["metadata"]["labels"]["of"], "mine");
    assert_eq!(made["roleRef"]["name"], "system:public-info-viewer");
}

#[tokio::test]
async fn each_namespace_has_a_default_account_and_the_root_certificates() {
    let server = TestServer::builder().configure(|config| config.controllers = Switches::default()).start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.expect(201);
    let account = "/api/v1/namespaces/team/serviceaccounts/default";
    let certificates = "/api/v1/namespaces/team/configmaps/kube-root-ca.crt";
    let trusted = |map: Option<Value>| {
        map.is_some_and(|map| {
            map["data"]["ca.crt"].as_str().is_some_and(|pem| pem.starts_with("-----BEGIN CERTIFICATE-----"))
        })
    };
    until(&raw, account, |account| account.is_some()).await;
    until(&raw, certificates, trusted).await;
    until(&raw, "/api/v1/namespaces/kube-system/serviceaccounts/default", |account| account.is_some()).await;
    raw.delete(account).await.expect(200);
    until(&raw, account, |account| account.is_some()).await;
    raw.patch(certificates, MERGE, &json!({"data": {"ca.crt": "mine"}})).await.expect(200);
    until(&raw, certificates, trusted).await;
    raw.delete(certificates).await.expect(200);
    until(&raw, certificates, trusted).await;
    raw.delete("/api/v1/namespaces/team").await.expect(200);
    until(&raw, "/api/v1/namespaces/team", |namespace| namespace.is_none()).await;
}

#[tokio::test]
async fn controllers_that_are_switched_off_leave_their_work_to_others() {
    let off = Switches::parse(["namespace-controller"]).unwrap();
    let server = TestServer::builder().configure(|config| config.controllers = off).start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.expect(201);
    raw.delete("/api/v1/namespaces/team").await.expect(200);
    // Controllers that run have removed the namespace by then.
    until(&raw, "/api/v1/namespaces/team", |namespace| namespace.is_none()).await;
    assert!(names(&raw, "/api/v1/serviceaccounts").await.is_empty());
    assert!(names(&raw, "/api/v1/namespaces/default/configmaps").await.is_empty());
    let admin = raw.get(format!("{RBAC}/clusterroles/admin")).await.expect(200).json();
    assert!(!allows(&admin, "get", "pods"), "{admin}");
}

fn pod(name: &str, class: Option<&str>) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    if let Some(class) = class {
        pod["spec"]["priorityClassName"] = json!(class);
    }
    pod
}

#[tokio::test]
async fn a_pod_has_the_priority_of_its_class() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let pods = "/api/v1/namespaces/default/pods";
    let post = async |name: &str, class: Option<&str>| raw.post(pods, &pod(name, class)).await;
    let shown =
        |pod: Value| ["priority", "preemptionPolicy", "priorityClassName"].map(|field| pod["spec"][field].clone());
    let plain = post("plain", None).await.expect(201).json();
    assert_eq!(shown(plain), [json!(0), json!("PreemptLowerPriority"), Value::Null]);
    let unknown = post("none", Some("nope")).await.expect(403).json();
    assert_eq!(unknown["message"], "pods \"none\" is forbidden: no PriorityClass with name nope was found");
    let class = |name: &str, value: i32, default: bool| json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "Never"});
    raw.post(CLASSES, &class("high", 1000, false)).await.expect(201);
    let high = post("high", Some("high")).await.expect(201).json();
    assert_eq!(shown(high.clone()), [json!(1000), json!("Never"), json!("high")]);
    assert_eq!(raw.put(format!("{pods}/high"), &high).await.expect(200).json(), high);
    let mut own = pod("own", Some("high"));
    own["spec"]["priority"] = json!(5);
    let refused = raw.post(pods, &own).await.expect(403).json();
    let expect = "pods \"own\" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority \
                  admission controller computed 1000 from the given PriorityClass name";
    assert_eq!(refused["message"], expect);
    raw.post(CLASSES, &class("usual", 7, true)).await.expect(201);
    let usual = post("usual", None).await.expect(201).json();
    assert_eq!(shown(usual), [json!(7), json!("Never"), json!("usual")]);
    let second = raw.post(CLASSES, &class("second", 8, true)).await.expect(403).json();
    let expect = "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass usual is already marked as \
                  default. Only one default can exist";
    assert_eq!(second["message"], expect);
    raw.put(format!("{CLASSES}/usual"), &class("usual", 7, false)).await.expect(200);
    raw.post(CLASSES, &class("second", 8, true)).await.expect(201);
    let moved = post("moved", None).await.expect(201).json();
    assert_eq!(shown(moved), [json!(8), json!("Never"), json!("second")]);
    raw.delete(format!("{CLASSES}/second")).await.expect(200);
    let without = post("without", None).await.expect(201).json();
    assert_eq!(shown(without), [json!(0), json!("PreemptLowerPriority"), Value::Null]);
    let system = post("system", Some("system-cluster-critical")).await.expect(201).json();
    assert_eq!(system["spec"]["priority"], 2_000_000_000);
}

#[tokio::test]
async fn claims_and_ingresses_get_the_default_class() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, class: Value| {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let made = raw.post(claims, &claim("before", Value::Null)).await.expect(201).json();
    assert_eq!(made["spec"]["storageClassName"], Value::Null);
    let class = |name: &str, annotation: &str| json!({"metadata": {"name": name, "annotations": {annotation: "true"}}});
    let mut fast = class("fast", "storageclass.kubernetes.io/is-default-class");
    fast["provisioner"] = json!("example.org/fast");
    raw.post(classes, &fast).await.expect(201);
    let made = raw.post(claims, &claim("after", Value::Null)).await.expect(201).json();
    assert_eq!(made["spec"]["storageClassName"], "fast");
    let made = raw.post(claims, &claim("none", json!(""))).await.expect(201).json();
    assert_eq!(made["spec"]["storageClassName"], "", "an empty class is a choice");

    let mut edge = class("edge", "ingressclass.kubernetes.io/is-default-class");
    edge["spec"] = json!({"controller": "example.org/edge"});
    raw.post("/apis/networking.k8s.io/v1/ingressclasses", &edge).await.expect(201);
    let backend = json!({"service": {"name": "a", "port": {"number": 80}}});
    let ingress = json!({"metadata": {"name": "a"}, "spec": {"defaultBackend": backend}});
    let made = raw.post("/apis/networking.k8s.io/v1/namespaces/default/ingresses", &ingress).await.expect(201).json();
    assert_eq!(made["spec"]["ingressClassName"], "edge");
}

/// A controller that removes unused tokens must know since when their use is recorded.
#[tokio::test]
async fn the_start_of_legacy_token_tracking_is_published() {
    const TRACKING: &str =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let start = SystemTime::now();
    let clock = Arc::new(ManualClock::new(start));
    let told = clock.clone();
    let mut server = TestServer::builder().sqlite().configure(|config| config.clock = told).start().await;
    server.running().bootstrapped().await;
    let first = server.raw().get(TRACKING).await.expect(200).json();
    assert_eq!(first["data"], json!({ "since": rfc3339(start)[..10] }));
    clock.advance(Duration::from_secs(48 * 60 * 60));
    server.restart().await;
    server.running().bootstrapped().await;
    let later = server.raw().get(TRACKING).await.expect(200).json();
    assert_eq!(later, first, "the first day stands");
}
