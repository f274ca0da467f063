//! Tests of the deletion of namespaces: all of their objects are deleted first, even if some of them block it.
//!
//! No new object may be created in a namespace meanwhile.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const NAMESPACES: &str = "/api/v1/namespaces";
/// The timeout for background work of the server.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of objects in a large namespace, and the timeout for their deletion in a build without optimization.
const MANY: usize = 10_000;
const MANY_PATIENCE: Duration = Duration::from_secs(60);

async fn namespace(raw: &Raw, name: &str) -> Value {
    raw.post(NAMESPACES, &json!({"metadata": {"name": name}})).await.expect(201).json()
}

fn config_maps(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/configmaps")
}

async fn config_map(raw: &Raw, namespace: &str, name: &str, finalizers: Value) {
    let body = json!({"metadata": {"name": name, "finalizers": finalizers}});
    raw.post(config_maps(namespace), &body).await.expect(201);
}

async fn delete(raw: &Raw, namespace: &str) -> Value {
    raw.delete(format!("{NAMESPACES}/{namespace}")).await.expect(200).json()
}

/// Waits until the path gives 404.
async fn gone(raw: &Raw, path: &str, patience: Duration) {
    let wait = async {
        while raw.get(path).await.status != 404 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(patience, wait).await.unwrap_or_else(|_| panic!("{path} is still there"));
}

async fn release(raw: &Raw, namespace: &str, name: &str) {
    let path = format!("{}/{name}", config_maps(namespace));
    raw.patch(path, MERGE, &json!({"metadata": {"finalizers": null}})).await.expect(200);
}

#[tokio::test]
async fn namespaces_with_finalizers_in_their_content_delay_no_others() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let held: Vec<String> = (0..12).map(|number| format!("held-{number}")).collect();
    for name in &held {
        namespace(&raw, name).await;
        config_map(&raw, name, "kept", json!(["example.com/keep"])).await;
        config_map(&raw, name, "free", json!([])).await;
        assert_eq!(delete(&raw, name).await["status"]["phase"], "Terminating");
    }
    namespace(&raw, "free").await;
    config_map(&raw, "free", "content", json!([])).await;
    delete(&raw, "free").await;
    gone(&raw, &format!("{NAMESPACES}/free"), PATIENCE).await;
    for name in &held {
        gone(&raw, &format!("{}/free", config_maps(name)), PATIENCE).await;
        raw.get(format!("{}/kept", config_maps(name))).await.expect(200);
        release(&raw, name, "kept").await;
    }
    for name in &held {
        gone(&raw, &format!("{NAMESPACES}/{name}"), PATIENCE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_with_ten_thousand_objects_is_emptied_in_seconds() {
    let server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    namespace(&raw, "large").await;
    let started = Instant::now();
    let posts = stream::iter(0..16).map(|lane| {
        let raw = raw.clone();
        async move {
            for number in (lane..MANY).step_by(16) {
                config_map(&raw, "large", &format!("number-{number}"), json!([])).await;
            }
        }
    });
    posts.buffer_unordered(16).collect::<Vec<_>>().await;
    let (making, started) = (started.elapsed(), Instant::now());
    delete(&raw, "large").await;
    gone(&raw, &format!("{NAMESPACES}/large"), MANY_PATIENCE).await;
    // Sixteen clients created them concurrently. Sequential deletions would take several times as long.
    let emptying = started.elapsed();
    assert!(emptying < 2 * making, "made in {making:?}, emptied in {emptying:?}");
}

#[tokio::test]
async fn namespace_conditions_report_remaining_content() {
    let server = TestServer::start().await;
    let raw = server.raw();
    namespace(&raw, "team").await;
    config_map(&raw, "team", "one", json!(["example.com/keep"])).await;
    config_map(&raw, "team", "two", json!(["example.com/keep", "example.com/other"])).await;
    delete(&raw, "team").await;
    let path = format!("{NAMESPACES}/team");
    let response = async |left: &str, held: &str| {
        let told = async {
            loop {
                let conditions = raw.get(&path).await.expect(200).json()["status"]["conditions"].clone();
                let message = |kind: &str| {
                    let found = conditions.as_array().into_iter().flatten().find(|condition| condition["type"] == kind);
                    found.map(|condition| (condition["status"].clone(), condition["message"].clone()))
                };
                if message("NamespaceContentRemaining") == Some((json!("True"), json!(left)))
                    && message("NamespaceFinalizersRemaining") == Some((json!("True"), json!(held)))
                {
                    let deleted = "All content successfully deleted, may be waiting on finalization";
                    assert_eq!(message("NamespaceDeletionContentFailure"), Some((json!("False"), json!(deleted))));
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("never told: {left}; {held}"));
    };
    response(
        "Some resources are remaining: configmaps. has 2 resource instances",
        "Some content in the namespace has finalizers remaining: example.com/keep in 2 resource instances, example.com/other in 1 resource instances",
    )
    .await;
    release(&raw, "team", "two").await;
    response(
        "Some resources are remaining: configmaps. has 1 resource instances",
        "Some content in the namespace has finalizers remaining: example.com/keep in 1 resource instances",
    )
    .await;
    release(&raw, "team", "one").await;
    gone(&raw, &path, PATIENCE).await;
}

#[tokio::test]
async fn a_deletion_continues_after_a_restart() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    namespace(&raw, "team").await;
    config_map(&raw, "team", "kept", json!(["example.com/keep"])).await;
    delete(&raw, "team").await;
    tokio::time::timeout(PATIENCE, server.restart())
        .await
        .expect("a held namespace does not keep a server from stopping");
    let raw = server.raw();
    release(&raw, "team", "kept").await;
    gone(&raw, &format!("{NAMESPACES}/team"), PATIENCE).await;
}

#[tokio::test]
async fn a_malformed_spec_is_refused_and_no_spec_is_the_usual_one() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for spec in [json!([]), json!("x"), json!({"finalizers": "zz"}), json!({"finalizers": [1]})] {
        let body = json!({"metadata": {"name": "bad"}, "spec": spec});
        raw.post(NAMESPACES, &body).await.expect(400);
    }
    for (name, spec) in [("null", json!(null)), ("empty", json!({})), ("nulls", json!({"finalizers": null}))] {
        let made = raw.post(NAMESPACES, &json!({"metadata": {"name": name}, "spec": spec})).await.expect(201).json();
        assert_eq!(made["spec"], json!({"finalizers": ["kubernetes"]}), "{name}");
        config_map(&raw, name, "content", json!([])).await;
        delete(&raw, name).await;
        gone(&raw, &format!("{}/content", config_maps(name)), PATIENCE).await;
        gone(&raw, &format!("{NAMESPACES}/{name}"), PATIENCE).await;
    }
}

#[tokio::test]
async fn finalize_changes_the_finalizers_of_the_spec_and_metadata_but_no_status() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let spec = json!({"finalizers": ["example.com/mine"]});
    let made = raw.post(NAMESPACES, &json!({"metadata": {"name": "team"}, "spec": spec})).await.expect(201).json();
    assert_eq!(made["spec"], json!({"finalizers": ["example.com/mine", "kubernetes"]}));
    let path = format!("{NAMESPACES}/team");
    let finalize = format!("{path}/finalize");

    let mut changed = made.clone();
    changed["metadata"]["labels"]["other"] = json!("label");
    changed["status"]["phase"] = json!("Terminating");
    changed["spec"]["finalizers"] = json!(["kubernetes", "example.com/other", "example.com/mine"]);
    let mut answer = raw.put(&finalize, &changed).await.expect(200).json();
    assert_eq!(answer["spec"], changed["spec"]);
    raw.put(&finalize, &changed).await.expect(409);
    assert_eq!(answer["metadata"]["labels"], changed["metadata"]["labels"]);
    for field in ["spec", "metadata"] {
        answer[field] = made[field].clone();
    }
    assert_eq!(answer, made);
    raw.get(&finalize).await.expect(405);

    let unnamed = json!({"metadata": {"name": "team"}, "spec": {"finalizers": ["mine"]}});
    let refused = raw.put(&finalize, &unnamed).await.expect(422).json();
    assert_eq!(
        refused["message"],
        "Namespace \"team\" is invalid: spec.finalizers[0]: Invalid value: \"mine\": name is neither a standard \
         finalizer name nor is it fully qualified"
    );
    let ordinary = raw.patch(&path, MERGE, &json!({"spec": {"finalizers": null}})).await.expect(200).json();
    assert_eq!(ordinary["spec"], changed["spec"], "only finalize may touch them");

    // The server removes its own finalizer when the namespace is empty. Finalizers of others remain until they remove
    // them.
    config_map(&raw, "team", "content", json!([])).await;
    delete(&raw, "team").await;
    let emptied = async {
        loop {
            let now = raw.get(&path).await.expect(200).json();
            if now["spec"] == json!({"finalizers": ["example.com/other", "example.com/mine"]}) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut now = tokio::time::timeout(PATIENCE, emptied).await.unwrap();
    raw.get(format!("{}/content", config_maps("team"))).await.expect(404);
    now["spec"] = json!({});
    raw.put(&finalize, &now).await.expect(200);
    raw.get(&path).await.expect(404);
}

#[tokio::test]
async fn the_namespaces_that_everybody_counts_on_stay() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for name in ["default", "kube-system", "kube-public"] {
        let refused = raw.delete(format!("{NAMESPACES}/{name}")).await.expect(403).json();
        let message = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        assert_eq!((refused["message"].as_str(), &refused["reason"]), (Some(message.as_str()), &json!("Forbidden")));
        assert_eq!(raw.get(format!("{NAMESPACES}/{name}")).await.json()["status"]["phase"], "Active");
    }
    let uid = raw.get(format!("{NAMESPACES}/default")).await.json()["metadata"]["uid"].as_str().unwrap().to_owned();
    let meant = json!({"preconditions": {"uid": "wrong"}});
    let refused = raw.delete(format!("{NAMESPACES}/default")).json(&meant).await.expect(409).json();
    let message = format!(
        "Operation cannot be fulfilled on namespaces \"default\": Precondition failed: UID in precondition: wrong, UID in object \
         meta: {uid}"
    );
    assert_eq!(refused["message"], message.as_str());
}

/// An object that is posted to a subresource counts as a create in its namespace.
#[tokio::test]
async fn subresource_creates_need_an_active_namespace() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let posts = [
        (
            "pods/p/eviction",
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}),
            "pods \"p\"",
        ),
        ("pods/p/binding", json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}), "pods \"p\""),
        (
            "serviceaccounts/sa/token",
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}}),
            "serviceaccounts \"sa\"",
        ),
    ];
    for (path, body, _) in &posts {
        let refused = raw.post(format!("{NAMESPACES}/none/{path}"), body).await.expect(404).json();
        assert_eq!(refused["message"], "namespaces \"none\" not found", "{path}");
        assert_eq!(refused["details"], json!({"name": "none", "kind": "namespaces"}), "{path}");
    }
    namespace(&raw, "going").await;
    config_map(&raw, "going", "held", json!(["example.com/mine"])).await;
    delete(&raw, "going").await;
    for (path, body, object) in &posts {
        let refused = raw.post(format!("{NAMESPACES}/going/{path}"), body).await.expect(403).json();
        let message = format!(
            "{object} is forbidden: unable to create new content in namespace going because it is being terminated"
        );
        assert_eq!(refused["message"], message.as_str(), "{path}");
    }
}
