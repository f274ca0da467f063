//! Tolerations of pods by their namespace and the settings.
//!
//! The annotations of a namespace add tolerations to pods, and limit the permitted ones.

use keelson_server::AdmissionPlugins;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const REFUSED: &str = "is forbidden: pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";

/// Starts a server with the plugin and these settings, and without the plugin DefaultTolerationSeconds.
async fn server(settings: Value) -> TestServer {
    let files = tempfile::TempDir::new().unwrap();
    let mut own =
        json!({ "apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration" });
    own.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let off = ["ServiceAccount", "DefaultTolerationSeconds"].map(str::to_owned).to_vec();
    let plugins = AdmissionPlugins::new(vec!["PodTolerationRestriction".to_owned()], off).unwrap();
    let settings = super::optional_admission::settings(files.path(), "PodTolerationRestriction", &own, &plugins);
    let builder = TestServer::builder().configure(move |config| {
        config.admission = plugins;
        config.admission_configuration = settings;
    });
    builder.start().await
}

fn exists(key: &str) -> Value {
    json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" })
}

/// Creates a namespace with these tolerations in its annotations.
async fn namespace(raw: &Raw, name: &str, defaults: Option<&str>, allowed: Option<&str>) {
    let stated = [("defaultTolerations", defaults), ("tolerationsWhitelist", allowed)];
    let stated =
        stated.into_iter().filter_map(|(key, text)| Some((format!("scheduler.alpha.kubernetes.io/{key}"), text?)));
    let annotations: serde_json::Map<String, Value> = stated.map(|(key, text)| (key, json!(text))).collect();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": name, "annotations": annotations } }))
        .await
        .expect(201);
}

fn pod(name: &str, tolerations: &[Value], resources: &Value) -> Value {
    let container = json!({ "name": "c", "image": "i:1", "resources": resources });
    json!({ "metadata": { "name": name }, "spec": { "containers": [container], "tolerations": tolerations } })
}

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

#[tokio::test]
async fn pods_get_the_tolerations_of_their_namespace() {
    let server = server(json!({ "default": [exists("all")] })).await;
    let raw = server.raw();
    let lab = json!([exists("lab"), { "key": "wide", "operator": "Exists" }]).to_string();
    namespace(&raw, "plain", None, None).await;
    namespace(&raw, "lab", Some(&lab), None).await;
    namespace(&raw, "empty", Some(""), None).await;
    namespace(&raw, "bad", Some("[1]"), None).await;
    let made = async |namespace: &str, name: &str, tolerations: &[Value], resources: Value| {
        let made = raw.post(pods(namespace), &pod(name, tolerations, &resources)).await.expect(201).json();
        made["spec"]["tolerations"].clone()
    };
    assert_eq!(made("plain", "a", &[], json!({})).await, json!([exists("all")]), "by the settings");
    assert_eq!(made("empty", "a", &[], json!({})).await, Value::Null, "the annotation says that there are none");
    assert_eq!(
        made("lab", "a", &[exists("own")], json!({})).await,
        json!([exists("lab"), { "key": "wide", "operator": "Exists" }, exists("own")])
    );
    let part = json!({ "key": "wide", "operator": "Equal", "value": "x", "effect": "NoExecute" });
    assert_eq!(
        made("lab", "b", &[part], json!({})).await,
        json!([exists("lab"), { "key": "wide", "operator": "Exists" }]),
        "a part of another one"
    );
    // A pod with resource requests tolerates nodes with memory pressure.
    let asks = json!({ "requests": { "cpu": "1m" } });
    let pressure = exists("node.kubernetes.io/memory-pressure");
    assert_eq!(made("empty", "b", &[], asks.clone()).await, json!([pressure]));
    assert_eq!(made("empty", "c", &[json!({ "operator": "Exists" })], asks).await, json!([{ "operator": "Exists" }]));
    let response = raw.post(pods("bad"), &pod("a", &[], &json!({}))).await.expect(500).text();
    assert!(
        response.contains(
            "scheduler.alpha.kubernetes.io/defaultTolerations of namespace bad: a toleration is not an object"
        ),
        "{response}"
    );
}

#[tokio::test]
async fn pods_have_no_tolerations_that_their_namespace_does_not_allow() {
    let server = server(json!({ "whitelist": [exists("all")] })).await;
    let raw = server.raw();
    let key_alone = json!([{ "key": "lab", "operator": "Exists" }]).to_string();
    let default = json!([exists("other")]).to_string();
    namespace(&raw, "plain", None, None).await;
    namespace(&raw, "lab", None, Some(&key_alone)).await;
    namespace(&raw, "free", None, Some("")).await;
    namespace(&raw, "never", Some(&default), Some(&key_alone)).await;
    let posted = async |namespace: &str, name: &str, tolerations: &[Value]| {
        let answer = raw.post(pods(namespace), &pod(name, tolerations, &json!({}))).await;
        (answer.status, answer.json()["message"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |name: &str| (403, format!("pods {name:?} {REFUSED}"));
    assert_eq!(posted("plain", "a", &[exists("all")]).await.0, 201);
    assert_eq!(posted("plain", "b", &[exists("lab")]).await, refused("b"));
    assert_eq!(posted("plain", "c", &[]).await.0, 201);
    assert_eq!(posted("lab", "a", &[exists("lab")]).await.0, 201);
    assert_eq!(posted("lab", "b", &[exists("lab"), exists("all")]).await, refused("b"));
    assert_eq!(posted("lab", "c", &[json!({ "operator": "Exists" })]).await, refused("c"));
    assert_eq!(posted("free", "a", &[exists("anything")]).await.0, 201);
    assert_eq!(posted("never", "a", &[]).await, refused("a"), "the default is not allowed");
    // The limits apply to updates too.
    let more = json!({ "spec": { "tolerations": [exists("lab"), exists("all")] } });
    let body = raw.patch(format!("{}/a", pods("lab")), MERGE, &more).await.expect(403).json();
    assert_eq!(body["message"], format!("pods \"a\" {REFUSED}"));
    raw.patch(format!("{}/a", pods("lab")), MERGE, &json!({ "metadata": { "labels": { "a": "b" } } }))
        .await
        .expect(200);
    // Each toleration is compared with all others, so there is a limit.
    let many: Vec<Value> = (0..1025).map(|number| exists(&format!("k{number}"))).collect();
    assert_eq!(
        posted("free", "many", &many).await,
        (403, "pods \"many\" is forbidden: pod has more than 1024 tolerations".to_owned())
    );
}
