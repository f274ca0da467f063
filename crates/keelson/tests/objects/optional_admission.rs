//! Tests of admission plugins that are off by default.
//!
//! Texts are those of kube-apiserver's plugins.

use std::path::Path;

use keelson_server::{AdmissionConfiguration, AdmissionPlugins, Config, Server};
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

const DEFAULT: &str = "/api/v1/namespaces/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
const MERGE: &str = "application/merge-patch+json";

/// Starts a server with these additional plugins.
async fn with(plugins: &[&str]) -> TestServer {
    let on = plugins.iter().map(|&name| name.to_owned()).collect();
    let plugins = AdmissionPlugins::new(on, vec!["ServiceAccount".to_owned()]).unwrap();
    TestServer::builder().configure(move |config| config.admission = plugins).start().await
}

/// Writes a file with the settings of one plugin to a directory, and reads it with these plugins.
pub(super) fn settings(
    directory: &Path,
    plugin: &str,
    configuration: &Value,
    plugins: &AdmissionPlugins,
) -> AdmissionConfiguration {
    let path = directory.join("admission.yaml");
    let document = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{ "name": plugin, "configuration": configuration }] });
    std::fs::write(&path, document.to_string()).unwrap();
    AdmissionConfiguration::from_file(&path, plugins).unwrap()
}

fn pod(name: &str, with: Value) -> Value {
    let mut pod = json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "i:1" }] } });
    let Value::Object(with) = with else { panic!("no fields: {with}") };
    for (field, value) in with {
        pod["spec"][field] = value;
    }
    pod
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

async fn refused(raw: &Raw, path: &str, object: &Value, expected: &str) {
    assert_eq!(message(&raw.post(path, object).await.expect(403)), expected);
}

#[tokio::test]
async fn images_are_pulled_each_time() {
    let server = with(&["AlwaysPullImages"]).await;
    let raw = server.raw();
    let never = |name: &str| json!({ "name": name, "image": "i:1", "imagePullPolicy": "Never" });
    let spec = json!({ "initContainers": [never("a")], "containers": [never("b"), never("c")],
        "volumes": [{ "name": "v", "image": { "reference": "i:2", "pullPolicy": "Never" } }] });
    let made = raw.post(format!("{DEFAULT}/pods"), &pod("p", spec)).await.expect(201).json()["spec"].clone();
    let policies = ["/initContainers/0", "/containers/0", "/containers/1"];
    for policy in policies.map(|container| format!("{container}/imagePullPolicy")) {
        assert_eq!(made.pointer(&policy), Some(&json!("Always")), "{policy}");
    }
    assert_eq!(made["volumes"][0]["image"]["pullPolicy"], "Always");
    let changed = json!({ "metadata": { "labels": { "a": "b" } } });
    raw.patch(format!("{DEFAULT}/pods/p"), MERGE, &changed).await.expect(200);
}

#[tokio::test]
async fn reverted_mutations_are_repeated_or_refused() {
    let server = with(&["AlwaysPullImages"]).await;
    let raw = server.raw();
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"] }]);
    let expression = "[JSONPatch{op: \"replace\", path: \"/spec/containers/0/imagePullPolicy\", value: \"Never\"}]";
    let policy = |reinvocation: &str| {
        json!({ "metadata": { "name": "m" }, "spec": {
            "matchConstraints": { "resourceRules": rules }, "reinvocationPolicy": reinvocation, "failurePolicy": "Fail",
            "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } }],
        } })
    };
    let policies = format!("{admission}/mutatingadmissionpolicies");
    raw.post(&*policies, &policy("Never")).await.expect(201);
    let binding = json!({ "metadata": { "name": "m" }, "spec": { "policyName": "m" } });
    raw.post(format!("{admission}/mutatingadmissionpolicybindings"), &binding).await.expect(201);
    // Built-in plugins run again after a policy has changed the object.
    let made = raw.post(format!("{DEFAULT}/pods"), &pod("p", json!({}))).await.expect(201).json();
    assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], "Always");
    raw.delete(format!("{policies}/m")).await.expect(200);
    raw.post(&*policies, &policy("IfNeeded")).await.expect(201);
    let message = "pods \"q\" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: \"Never\": supported values: \
                \"Always\"";
    refused(&raw, &format!("{DEFAULT}/pods"), &pod("q", json!({})), message).await;
}

#[tokio::test]
async fn new_external_ips_of_services_are_denied() {
    let mut server = TestServer::builder().sqlite().start().await;
    let services = format!("{DEFAULT}/services");
    let service = |name: &str, addresses: Value| json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }], "externalIPs": addresses } });
    server.raw().post(&*services, &service("had", json!(["192.0.2.1", "192.0.2.2"]))).await.expect(201);
    let plugins = vec!["DenyServiceExternalIPs".to_owned()];
    server.change(|config| config.admission = AdmissionPlugins::new(plugins, Vec::new()).unwrap());
    server.restart().await;
    let raw = server.raw();
    let message = "services \"new\" is forbidden: Use of external IPs is denied by admission control";
    refused(&raw, &services, &service("new", json!(["192.0.2.1"])), message).await;
    raw.post(&*services, &service("none", json!([]))).await.expect(201);
    let had = format!("{services}/had");
    for (addresses, code) in [
        (json!(["192.0.2.2", "192.0.2.1"]), 200),
        (json!(["192.0.2.1", "192.0.2.3"]), 403),
        (json!(["192.0.2.2"]), 200),
        (json!(["192.0.2.1"]), 403),
        (json!(null), 200),
    ] {
        raw.patch(&*had, MERGE, &json!({ "spec": { "externalIPs": addresses } })).await.expect(code);
    }
}

#[tokio::test]
async fn pods_get_tolerations_for_their_extended_resources() {
    let server = with(&["ExtendedResourceToleration"]).await;
    let raw = server.raw();
    let asks = |name: &str, resource: &str| {
        let amounts = json!({ "cpu": "1", resource: "2" });
        json!({ "name": name, "image": "i:1", "resources": { "requests": amounts, "limits": amounts } })
    };
    let known = json!({ "key": "example.com/b", "operator": "Exists", "effect": "NoSchedule" });
    let spec = json!({ "tolerations": [known],
        "initContainers": [asks("i", "example.com/c")], "containers": [asks("a", "example.com/b"), asks("b", "example.com/a")] });
    let made = raw.post(format!("{DEFAULT}/pods"), &pod("p", spec)).await.expect(201).json();
    let tolerations = made["spec"]["tolerations"].as_array().unwrap();
    let keys: Vec<&str> = tolerations.iter().map(|toleration| toleration["key"].as_str().unwrap()).collect();
    let times = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let ours: Vec<&&str> = keys.iter().filter(|key| !times.contains(key)).collect();
    assert_eq!(ours, [&"example.com/b", &"example.com/a", &"example.com/c"]);
}

#[tokio::test]
async fn required_anti_affinity_is_limited_to_hostname_topology() {
    let server = with(&["LimitPodHardAntiAffinityTopology"]).await;
    let raw = server.raw();
    let apart = |field: &str, keys: &[&str]| {
        let term = |key: &&str| json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "a": "b" } } });
        let terms: Vec<Value> = keys.iter().map(term).collect();
        json!({ "affinity": { "podAntiAffinity": { field: terms } } })
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let pods = format!("{DEFAULT}/pods");
    raw.post(&*pods, &pod("a", apart(required, &["kubernetes.io/hostname"]))).await.expect(201);
    let message = "pods \"b\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key \
                kubernetes.io/hostname is allowed";
    refused(&raw, &pods, &pod("b", apart(required, &["kubernetes.io/hostname", "zone"])), message).await;
}

#[tokio::test]
async fn pods_run_on_the_nodes_of_their_namespace() {
    let server = with(&["PodNodeSelector"]).await;
    let raw = server.raw();
    let annotated = |name: &str, selector: &str| json!({ "metadata": { "name": name, "annotations": { "scheduler.alpha.kubernetes.io/node-selector": selector } } });
    for namespace in [annotated("lab", "env=lab, disk=fast"), annotated("bad", "env")] {
        raw.post("/api/v1/namespaces", &namespace).await.expect(201);
    }
    let pods = "/api/v1/namespaces/lab/pods";
    let made =
        raw.post(pods, &pod("a", json!({ "nodeSelector": { "own": "x", "env": "lab" } }))).await.expect(201).json();
    assert_eq!(made["spec"]["nodeSelector"], json!({ "own": "x", "env": "lab", "disk": "fast" }));
    let text = "pods \"b\" is forbidden: pod node label selector conflicts with its namespace node label selector";
    refused(&raw, pods, &pod("b", json!({ "nodeSelector": { "env": "home" } })), text).await;
    let response = message(&raw.post("/api/v1/namespaces/bad/pods", &pod("a", json!({}))).await.expect(500));
    assert!(response.contains("invalid selector: env"), "{response}");
    let free = raw.post(format!("{DEFAULT}/pods"), &pod("a", json!({}))).await.expect(201).json();
    assert_eq!(free["spec"]["nodeSelector"], Value::Null);
}

#[tokio::test]
async fn settings_have_node_selectors_for_namespaces() {
    let files = tempfile::TempDir::new().unwrap();
    let own = json!({ "podNodeSelectorPluginConfig": { "clusterDefaultNodeSelector": "pool=all", "narrow": "pool=all,zone=a" } });
    let plugins = AdmissionPlugins::new(vec!["PodNodeSelector".to_owned()], vec!["ServiceAccount".to_owned()]).unwrap();
    let settings = settings(files.path(), "PodNodeSelector", &own, &plugins);
    let builder = TestServer::builder().configure(move |config| {
        config.admission = plugins;
        config.admission_configuration = settings;
    });
    let server = builder.start().await;
    let raw = server.raw();
    let own = json!({ "scheduler.alpha.kubernetes.io/node-selector": "env=lab" });
    for (name, annotations) in [("wide", json!({})), ("lab", own), ("narrow", json!({}))] {
        let namespace = json!({ "metadata": { "name": name, "annotations": annotations } });
        raw.post("/api/v1/namespaces", &namespace).await.expect(201);
    }
    let pods = |namespace: &str| format!("/api/v1/namespaces/{namespace}/pods");
    let made = async |namespace: &str, selector: Value| {
        let pod = pod("a", json!({ "nodeSelector": selector }));
        raw.post(pods(namespace), &pod).await.expect(201).json()["spec"]["nodeSelector"].clone()
    };
    assert_eq!(made("wide", json!({ "own": "x" })).await, json!({ "own": "x", "pool": "all" }));
    assert_eq!(made("lab", json!({ "own": "x" })).await, json!({ "own": "x", "env": "lab" }), "the annotation counts");
    assert_eq!(made("narrow", json!({ "zone": "a" })).await, json!({ "zone": "a", "pool": "all" }));
    let conflict = "pod node label selector conflicts with its namespace node label selector";
    let not_allowed = "pod node label selector labels conflict with its namespace whitelist";
    for (selector, why) in
        [(json!({ "pool": "b" }), conflict), (json!({ "zone": "b" }), not_allowed), (json!({ "x": "y" }), not_allowed)]
    {
        let message = format!("pods \"b\" is forbidden: {why}");
        refused(&raw, &pods("narrow"), &pod("b", json!({ "nodeSelector": selector })), &message).await;
    }
}

#[tokio::test]
async fn events_beyond_a_limit_are_refused() {
    let files = tempfile::TempDir::new().unwrap();
    let limits =
        json!([{ "type": "SourceAndObject", "qps": 1, "burst": 100 }, { "type": "Namespace", "qps": 1, "burst": 3 }]);
    let own =
        json!({ "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": limits });
    let plugins = || AdmissionPlugins::new(vec!["EventRateLimit".to_owned()], Vec::new()).unwrap();
    let settings = settings(files.path(), "EventRateLimit", &own, &plugins());
    let builder = TestServer::builder().configure(move |config| {
        config.admission = plugins();
        config.admission_configuration = settings;
    });
    let server = builder.start().await;
    let raw = server.raw();
    let post = async |namespace: &str, name: &str, query: &str| {
        let object = json!({ "kind": "Pod", "namespace": namespace, "name": "p" });
        let event = json!({ "metadata": { "name": name }, "involvedObject": object, "reason": "R" });
        raw.post(format!("/api/v1/namespaces/{namespace}/events{query}"), &event).await
    };
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "other" } })).await.expect(201);
    // A dry run consumes no token. On a slow machine the bucket may refill a little meanwhile, so one more event may
    // pass.
    for _ in 0..5 {
        post("default", "dry", "?dryRun=All").await.expect(201);
    }
    let mut refused = None;
    for number in 0..200 {
        let answer = post("default", &format!("e{number}"), "").await;
        if answer.status != 201 {
            refused = Some((number, answer.expect(429).json()));
            break;
        }
    }
    let (number, refused) = refused.expect("a limit is reached");
    assert!(number >= 3, "{number}");
    assert_eq!(refused["message"], "Too many requests: limit reached on type Namespace for key default");
    assert_eq!((&refused["reason"], &refused["code"]), (&json!("TooManyRequests"), &json!(429)));
    post("other", "e", "").await.expect(201);
    raw.post(format!("{DEFAULT}/configmaps"), &json!({ "metadata": { "name": "m" } })).await.expect(201);

    // If the plugin is enabled without limits, the server does not start.
    let error =
        Server::start(Config { admission: plugins(), ..Config::default() }).await.err().expect("it has no limits");
    assert!(format!("{error:#}").contains("EventRateLimit has no limits"), "{error:#}");
}

#[tokio::test]
async fn writes_to_missing_namespaces_are_refused() {
    let on = vec!["NamespaceExists".to_owned()];
    let off = vec!["NamespaceLifecycle".to_owned()];
    let plugins = AdmissionPlugins::new(on, off).unwrap();
    let server = TestServer::builder().configure(move |config| config.admission = plugins).start().await;
    let raw = server.raw();
    let map = json!({ "metadata": { "name": "m" } });
    let response = raw.post("/api/v1/namespaces/nowhere/configmaps", &map).await.expect(404);
    assert_eq!(message(&response), "namespaces \"nowhere\" not found");
    raw.post(format!("{DEFAULT}/configmaps"), &map).await.expect(201);
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "now" } })).await.expect(201);
    raw.post("/api/v1/namespaces/now/configmaps", &map).await.expect(201);
}

#[tokio::test]
async fn a_missing_namespace_is_made_for_the_first_object_in_it() {
    let server = with(&["NamespaceAutoProvision"]).await;
    let raw = server.raw();
    let map = json!({ "metadata": { "name": "m" } });
    let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    // A dry run creates no namespace.
    let response = raw.post(format!("{}?dryRun=All", maps("new")), &map).await.expect(404);
    assert_eq!(message(&response), "namespaces \"new\" not found");
    // The server creates the namespace, also for a user without the right to create namespaces.
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"] }]);
    let cluster = "/apis/rbac.authorization.k8s.io/v1";
    raw.post(format!("{cluster}/clusterroles"), &json!({ "metadata": { "name": "maps" }, "rules": rules }))
        .await
        .expect(201);
    let binding = super::rights::binding("maps", "cluster:maps", ("User", "ann"));
    raw.post(format!("{cluster}/clusterrolebindings"), &binding).await.expect(201);
    raw.post(maps("new"), &map).header("impersonate-user", "ann").await.expect(201);
    let made = raw.get("/api/v1/namespaces/new").await.expect(200).json();
    assert_eq!((&made["status"]["phase"], &made["spec"]["finalizers"]), (&json!("Active"), &json!(["kubernetes"])));
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "new");
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "other" } }))
        .header("impersonate-user", "ann")
        .await
        .expect(403);
    // An apply and concurrent requests work too.
    let applied = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" } });
    let apply = "application/apply-patch+yaml";
    raw.patch(format!("{}/m?fieldManager=t", maps("applied")), apply, &applied).await.expect(201);
    let named = |number: usize| json!({ "metadata": { "name": format!("m{number}") } });
    let several = (0..8).map(|number| {
        let (raw, path) = (raw.clone(), maps("several"));
        async move { raw.post(path, &named(number)).await.status }
    });
    assert_eq!(futures::future::join_all(several).await, [201; 8]);
    // An invalid name is rejected, and reads create no namespace.
    let response = raw.post(maps("A_b"), &map).await.expect(403);
    assert!(
        message(&response).starts_with("configmaps \"m\" is forbidden: Namespace \"A_b\" is invalid: metadata.name"),
        "{}",
        response.text()
    );
    raw.get(maps("read")).await.expect(200);
    raw.get("/api/v1/namespaces/read").await.expect(404);
    // A namespace that is being deleted is not a missing one.
    raw.patch("/api/v1/namespaces/new", MERGE, &json!({ "metadata": { "finalizers": ["example.org/held"] } }))
        .await
        .expect(200);
    raw.delete("/api/v1/namespaces/new").await.expect(200);
    let response = raw.post(maps("new"), &json!({ "metadata": { "name": "late" } })).await.expect(403);
    assert!(message(&response).contains("because it is being terminated"), "{}", response.text());
}

#[tokio::test]
async fn always_deny_refuses_all_modifications() {
    let mut server = TestServer::builder().sqlite().start().await;
    let maps = format!("{DEFAULT}/configmaps");
    server.raw().post(&*maps, &json!({ "metadata": { "name": "had" } })).await.expect(201);
    let plugins = || AdmissionPlugins::new(vec!["AlwaysDeny".to_owned()], Vec::new()).unwrap();
    server.change(|config| config.admission = plugins());
    server.restart().await;
    let raw = server.raw();
    let denied = |what: &str| format!("{what} is forbidden: admission control is denying all modifications");
    refused(&raw, &maps, &json!({ "metadata": { "name": "m" } }), &denied("configmaps \"m\"")).await;
    refused(&raw, "/api/v1/namespaces", &json!({ "metadata": { "name": "n" } }), &denied("namespaces \"n\"")).await;
    let had = format!("{maps}/had");
    let changed = json!({ "data": { "a": "b" } });
    assert_eq!(message(&raw.patch(&*had, MERGE, &changed).await.expect(403)), denied("configmaps \"had\""));
    assert_eq!(message(&raw.delete(&*had).await.expect(403)), denied("configmaps \"had\""));
    raw.delete(&*maps).await.expect(403);
    // Reads pass, and the server is ready.
    raw.get(&*had).await.expect(200);
    raw.get("/readyz").await.expect(200);
}

#[tokio::test]
async fn owner_references_need_delete_and_blocking_ones_finalizer_rights() {
    let server = with(&["OwnerReferencesPermissionEnforcement"]).await;
    let raw = server.raw();
    let set = |name: &str, rules: Value| {
        let (raw, name) = (raw.clone(), name.to_owned());
        async move {
            raw.post(format!("{RBAC}/roles"), &json!({ "metadata": { "name": name }, "rules": rules }))
                .await
                .expect(201);
            let group = "rbac.authorization.k8s.io";
            let binding = json!({ "metadata": { "name": name },
                "roleRef": { "apiGroup": group, "kind": "Role", "name": name },
                "subjects": [{ "apiGroup": group, "kind": "User", "name": name }] });
            raw.post(format!("{RBAC}/rolebindings"), &binding).await.expect(201);
        }
    };
    let rule = |verbs: &[&str], resource: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": verbs });
    set("writes", json!([rule(&["create", "get", "patch"], "configmaps")])).await;
    set("deletes", json!([rule(&["create", "delete"], "configmaps")])).await;
    let held = json!([rule(&["create", "delete"], "configmaps"), rule(&["update"], "secrets/finalizers")]);
    set("holds", held).await;
    let maps = format!("{DEFAULT}/configmaps");
    let owned = |name: &str, kind: &str, holds: bool| {
        let owner = json!({ "apiVersion": "v1", "kind": kind, "name": "s", "uid": "u", "blockOwnerDeletion": holds });
        json!({ "metadata": { "name": name, "ownerReferences": [owner] } })
    };
    let asks = |user: &str, map: Value| {
        let call = raw.post(&*maps, &map).header("impersonate-user", user);
        async move {
            let answer = call.await;
            (answer.status, message(&answer))
        }
    };
    assert_eq!(asks("writes", json!({ "metadata": { "name": "free" } })).await.0, 201);
    let no_delete = "is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>";
    let told = (403, format!("configmaps \"a\" {no_delete}"));
    assert_eq!(asks("writes", owned("a", "Secret", false)).await, told);
    let patch = json!({ "metadata": { "labels": { "a": "b" } } });
    let own = format!("{maps}/free");
    raw.patch(&*own, MERGE, &patch).header("impersonate-user", "writes").await.expect(200);
    let patch =
        json!({ "metadata": { "ownerReferences": owned("free", "Secret", false)["metadata"]["ownerReferences"] } });
    let answer = raw.patch(&*own, MERGE, &patch).header("impersonate-user", "writes").await.expect(403);
    assert_eq!(message(&answer), format!("configmaps \"free\" {no_delete}"));
    assert_eq!(asks("deletes", owned("a", "Secret", false)).await.0, 201);
    let no_hold =
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    let told = (403, format!("configmaps \"b\" is forbidden: {no_hold}"));
    assert_eq!(asks("deletes", owned("b", "Secret", true)).await, told);
    assert_eq!(asks("holds", owned("b", "Secret", true)).await.0, 201);
    let unknown = "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion v1 Kind Nothing: \
                   no matches for kind \"Nothing\" in version \"v1\"";
    let told = (403, format!("configmaps \"c\" is forbidden: {unknown}"));
    assert_eq!(asks("holds", owned("c", "Nothing", true)).await, told);
}
