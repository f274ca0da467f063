//! Tests of dependents when their owners are deleted in the background, in the foreground, or with orphans.
//!
//! Some owners are in other namespaces or never existed.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use keelson_server::Switches;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// The timeout for background work of the server.
const PATIENCE: Duration = Duration::from_secs(30);

/// Creates an object with these owners. Returns a blocking owner reference to it.
async fn create(raw: &Raw, collection: &str, name: &str, owners: &[&Value]) -> Value {
    create_with(raw, collection, json!({"name": name, "ownerReferences": owners})).await
}

async fn create_with(raw: &Raw, collection: &str, metadata: Value) -> Value {
    let made = raw.post(collection, &json!({"metadata": metadata})).await.expect(201).json();
    json!({
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "name": made["metadata"]["name"],
        "uid": made["metadata"]["uid"],
        "blockOwnerDeletion": true,
    })
}

async fn delete(raw: &Raw, path: &str, policy: &str) -> Value {
    raw.delete(format!("{path}?propagationPolicy={policy}")).await.expect(200).json()
}

/// Waits until the object at the path is as expected; a 404 gives null.
async fn until(raw: &Raw, path: &str, what: impl Fn(&Value) -> bool) -> Value {
    let wait = async {
        loop {
            let answer = raw.get(path).await;
            let object = if answer.status == 404 { Value::Null } else { answer.json() };
            if what(&object) {
                return object;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{path} does not become what it should"))
}

async fn gone(raw: &Raw, path: &str) {
    until(raw, path, Value::is_null).await;
}

async fn release(raw: &Raw, path: &str) {
    raw.patch(path, MERGE, &json!({"metadata": {"finalizers": null}})).await.expect(200);
}

fn path(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

#[tokio::test]
async fn in_the_background_dependents_go_after_their_last_owner_at_every_depth() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let owner = create(&raw, CONFIG_MAPS, "owner", &[]).await;
    let other = create(&raw, CONFIG_MAPS, "other", &[]).await;
    let child = create(&raw, SECRETS, "child", &[&owner]).await;
    create(&raw, CONFIG_MAPS, "grandchild", &[&child]).await;
    create(&raw, SECRETS, "shared", &[&owner, &other]).await;
    create(&raw, SECRETS, "stranger", &[]).await;

    delete(&raw, &path(CONFIG_MAPS, "owner"), "Background").await;
    gone(&raw, &path(SECRETS, "child")).await;
    gone(&raw, &path(CONFIG_MAPS, "grandchild")).await;
    let left =
        |object: &Value| object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1);
    until(&raw, &path(SECRETS, "shared"), left).await;
    delete(&raw, &path(CONFIG_MAPS, "other"), "Background").await;
    gone(&raw, &path(SECRETS, "shared")).await;
    raw.get(path(SECRETS, "stranger")).await.expect(200);
}

/// The collector forgets an owner when it is deleted.
#[tokio::test]
async fn a_late_dependent_is_deleted_before_its_siblings() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let owner = create(&raw, CONFIG_MAPS, "owner", &[]).await;
    create(&raw, SECRETS, "early", &[&owner]).await;
    let held = json!({"name": "held", "ownerReferences": [owner], "finalizers": ["example.com/keep"]});
    create_with(&raw, SECRETS, held).await;
    let mut elsewhere = owner.clone();
    elsewhere["name"] = json!("another");
    create(&raw, SECRETS, "wrong-name", &[&elsewhere]).await;
    gone(&raw, &path(SECRETS, "wrong-name")).await;
    delete(&raw, &path(CONFIG_MAPS, "owner"), "Background").await;
    gone(&raw, &path(SECRETS, "early")).await;
    for late in ["late", "later"] {
        create(&raw, SECRETS, late, &[&owner]).await;
        gone(&raw, &path(SECRETS, late)).await;
    }
    // Owners that are added or removed later count like those of the create.
    create(&raw, SECRETS, "free", &[]).await;
    raw.patch(path(SECRETS, "free"), MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    raw.patch(path(SECRETS, "free"), MERGE, &json!({"metadata": {"ownerReferences": [owner]}})).await.expect(200);
    gone(&raw, &path(SECRETS, "free")).await;
    let deleted = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
    until(&raw, &path(SECRETS, "held"), deleted).await;
}

#[tokio::test]
async fn in_the_foreground_an_owner_waits_for_the_dependents_that_block_it() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let owner = create(&raw, CONFIG_MAPS, "owner", &[]).await;
    let held = json!({"name": "held", "ownerReferences": [owner], "finalizers": ["example.com/keep"]});
    let child = create_with(&raw, SECRETS, held).await;
    create(&raw, SECRETS, "grandchild", &[&child]).await;
    create(&raw, SECRETS, "free", &[&owner]).await;
    let mut lax = owner.clone();
    lax["blockOwnerDeletion"] = json!(false);
    let lax = json!({"name": "lax", "ownerReferences": [lax], "finalizers": ["example.com/keep"]});
    create_with(&raw, SECRETS, lax).await;

    let marked = delete(&raw, &path(CONFIG_MAPS, "owner"), "Foreground").await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    for name in ["free", "grandchild"] {
        gone(&raw, &path(SECRETS, name)).await;
    }
    let deleted = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
    until(&raw, &path(SECRETS, "held"), deleted).await;
    raw.get(path(CONFIG_MAPS, "owner")).await.expect(200);
    release(&raw, &path(SECRETS, "held")).await;
    gone(&raw, &path(CONFIG_MAPS, "owner")).await;
    until(&raw, &path(SECRETS, "lax"), deleted).await;
    release(&raw, &path(SECRETS, "lax")).await;
    gone(&raw, &path(SECRETS, "lax")).await;
}

#[tokio::test]
async fn a_circle_of_owners_can_be_deleted_in_the_foreground() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let first = create(&raw, CONFIG_MAPS, "first", &[]).await;
    let second = create(&raw, CONFIG_MAPS, "second", &[&first]).await;
    let references = json!({"metadata": {"ownerReferences": [second]}});
    raw.patch(path(CONFIG_MAPS, "first"), MERGE, &references).await.expect(200);
    delete(&raw, &path(CONFIG_MAPS, "first"), "Foreground").await;
    gone(&raw, &path(CONFIG_MAPS, "first")).await;
    gone(&raw, &path(CONFIG_MAPS, "second")).await;
}

#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let owner = create(&raw, CONFIG_MAPS, "owner", &[]).await;
    let other = create(&raw, CONFIG_MAPS, "other", &[]).await;
    create(&raw, SECRETS, "child", &[&owner]).await;
    create(&raw, SECRETS, "shared", &[&owner, &other]).await;
    let marked = delete(&raw, &path(CONFIG_MAPS, "owner"), "Orphan").await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    gone(&raw, &path(CONFIG_MAPS, "owner")).await;
    let child = raw.get(path(SECRETS, "child")).await.expect(200).json();
    assert_eq!(child["metadata"].get("ownerReferences"), None);
    let shared = raw.get(path(SECRETS, "shared")).await.expect(200).json();
    assert_eq!(shared["metadata"]["ownerReferences"], json!([other]));
}

#[tokio::test]
async fn owners_without_dependents_and_namespaces_go_whatever_the_policy() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for policy in ["Foreground", "Orphan", "Background"] {
        create(&raw, CONFIG_MAPS, "alone", &[]).await;
        delete(&raw, &path(CONFIG_MAPS, "alone"), policy).await;
        gone(&raw, &path(CONFIG_MAPS, "alone")).await;
        create(&raw, "/api/v1/namespaces", "team", &[]).await;
        create(&raw, "/api/v1/namespaces/team/configmaps", "content", &[]).await;
        delete(&raw, "/api/v1/namespaces/team/configmaps/content", policy).await;
        delete(&raw, "/api/v1/namespaces/team", policy).await;
        gone(&raw, "/api/v1/namespaces/team").await;
    }
}

#[tokio::test]
async fn missed_deletions_happen_after_a_restart() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let owner = create(&raw, CONFIG_MAPS, "owner", &[]).await;
    let held = json!({"name": "held", "ownerReferences": [owner], "finalizers": ["example.com/keep"]});
    create_with(&raw, SECRETS, held).await;
    delete(&raw, &path(CONFIG_MAPS, "owner"), "Foreground").await;
    server.restart().await;
    let raw = server.raw();
    release(&raw, &path(SECRETS, "held")).await;
    gone(&raw, &path(SECRETS, "held")).await;
    gone(&raw, &path(CONFIG_MAPS, "owner")).await;
}

#[tokio::test]
async fn only_owners_that_can_be_looked_for_are_missed() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let owner = create(&raw, CONFIG_MAPS, "owner", &[]).await;
    let with = |change: Value| {
        let mut reference = owner.clone();
        for (field, value) in change.as_object().unwrap() {
            reference[field] = value.clone();
        }
        reference
    };
    let custom = with(json!({"apiVersion": "example.com/v1", "kind": "Widget"}));
    create(&raw, SECRETS, "of-a-custom-object", &[&custom]).await;
    create(&raw, "/api/v1/nodes", "of-a-namespaced-object", &[&owner]).await;
    create(&raw, SECRETS, "of-one-of-another-uid", &[&with(json!({"uid": "another"}))]).await;
    create(&raw, SECRETS, "of-one-of-another-name", &[&with(json!({"name": "another"}))]).await;
    gone(&raw, &path(SECRETS, "of-one-of-another-uid")).await;
    gone(&raw, &path(SECRETS, "of-one-of-another-name")).await;
    raw.get(path(SECRETS, "of-a-custom-object")).await.expect(200);
    raw.get("/api/v1/nodes/of-a-namespaced-object").await.expect(200);
}

/// Starts a server whose collector is off until a restart, with these objects. Each owns and blocks the next one, and
/// the last one the first.
async fn ring(names: &[&str]) -> (TestServer, Raw) {
    let idle = Switches::parse(["*", "-garbage-collector-controller"]).unwrap();
    let server = TestServer::builder().sqlite().configure(|config| config.controllers = idle).start().await;
    let raw = server.raw();
    let mut references = Vec::new();
    for name in names {
        references.push(create(&raw, CONFIG_MAPS, name, &[]).await);
    }
    for (place, name) in names.iter().enumerate() {
        let owner = &references[(place + 1) % names.len()];
        let owned = json!({"metadata": {"ownerReferences": [owner]}});
        raw.patch(path(CONFIG_MAPS, name), MERGE, &owned).await.expect(200);
    }
    (server, raw)
}

/// As in upstream, nothing happens to them until a client removes a reference.
#[tokio::test]
async fn objects_in_owner_cycles_stay_and_block_no_others() {
    for names in [&["self"][..], &["a", "b"], &["a", "b", "c"]] {
        let (mut server, raw) = ring(names).await;
        for name in names {
            delete(&raw, &path(CONFIG_MAPS, name), "Foreground").await;
        }
        server.change(|config| config.controllers = Switches::default());
        // In the second round the objects are already in this state when the collector starts.
        for _ in 0..2 {
            server.restart().await;
            let raw = server.raw();
            let owner = create(&raw, CONFIG_MAPS, "owner", &[]).await;
            create(&raw, SECRETS, "child", &[&owner]).await;
            delete(&raw, &path(CONFIG_MAPS, "owner"), "Foreground").await;
            gone(&raw, &path(SECRETS, "child")).await;
            gone(&raw, &path(CONFIG_MAPS, "owner")).await;
            for name in names {
                let kept = raw.get(path(CONFIG_MAPS, name)).await.expect(200).json();
                assert_eq!(kept["metadata"]["finalizers"], json!(["foregroundDeletion"]), "{name} of {names:?}");
            }
        }
        let raw = server.raw();
        let free = json!({"metadata": {"ownerReferences": null}});
        raw.patch(path(CONFIG_MAPS, names[0]), MERGE, &free).await.expect(200);
        for name in names {
            gone(&raw, &path(CONFIG_MAPS, name)).await;
        }
    }
}

#[tokio::test]
async fn a_ring_of_owners_can_be_deleted_in_the_foreground() {
    let (mut server, _) = ring(&["a", "b", "c", "d"]).await;
    server.change(|config| config.controllers = Switches::default());
    server.restart().await;
    let raw = server.raw();
    delete(&raw, &path(CONFIG_MAPS, "b"), "Foreground").await;
    for name in ["a", "b", "c", "d"] {
        gone(&raw, &path(CONFIG_MAPS, name)).await;
    }
}

/// A dependent is created while its owner waits for another one.
#[tokio::test]
async fn a_dependent_that_comes_while_its_owner_waits_goes_too() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let owner = create(&raw, CONFIG_MAPS, "owner", &[]).await;
    let held = json!({"name": "held", "ownerReferences": [owner], "finalizers": ["example.com/keep"]});
    create_with(&raw, SECRETS, held).await;
    delete(&raw, &path(CONFIG_MAPS, "owner"), "Foreground").await;
    for late in ["late", "later"] {
        create(&raw, SECRETS, late, &[&owner]).await;
        gone(&raw, &path(SECRETS, late)).await;
    }
    raw.get(path(CONFIG_MAPS, "owner")).await.expect(200);
    release(&raw, &path(SECRETS, "held")).await;
    gone(&raw, &path(CONFIG_MAPS, "owner")).await;
}

#[tokio::test]
async fn an_owner_in_another_namespace_is_reported() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await.expect(201);
    let owner = create(&raw, "/api/v1/namespaces/other/configmaps", "owner", &[]).await;
    let mut absent = owner.clone();
    absent["uid"] = json!("absent");
    create(&raw, SECRETS, "of-none", &[&absent]).await;
    create(&raw, SECRETS, "child", &[&owner]).await;
    create(&raw, "/api/v1/nodes", "node", &[&owner]).await;
    gone(&raw, &path(SECRETS, "of-none")).await;
    gone(&raw, &path(SECRETS, "child")).await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DOwnerRefInvalidNamespace";
    let both = |found: &Value| found["items"].as_array().is_some_and(|items| items.len() == 2);
    let found = until(&raw, events, both).await;
    let of = |name: &str| {
        let events = found["items"].as_array().unwrap();
        events.iter().find(|event| event["involvedObject"]["name"] == name).unwrap_or_else(|| panic!("{found}"))
    };
    let uid = owner["uid"].as_str().unwrap();
    let message = |namespace: &str| {
        format!(
            "ownerRef [v1/ConfigMap, namespace: {namespace}, name: owner, uid: {uid}] does not exist in namespace \"{namespace}\""
        )
    };
    let child = of("child");
    assert_eq!(child["message"], message("default"));
    assert_eq!((&child["type"], &child["count"]), (&json!("Warning"), &json!(1)));
    assert_eq!(child["source"]["component"], "garbage-collector-controller");
    let involved = &child["involvedObject"];
    assert_eq!(
        (&involved["kind"], &involved["apiVersion"], &involved["namespace"]),
        (&json!("Secret"), &json!("v1"), &json!("default"))
    );
    let node = of("node");
    assert_eq!(node["message"], message(""));
    assert_eq!((&node["involvedObject"]["kind"], node["involvedObject"].get("namespace")), (&json!("Node"), None));
    raw.get("/api/v1/nodes/node").await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_dependents_are_deleted_within_seconds() {
    const MANY: usize = 2_000;
    let server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let owner = create(&raw, CONFIG_MAPS, "owner", &[]).await;
    let started = Instant::now();
    let posts = stream::iter(0..16).map(|lane| {
        let (raw, owner) = (raw.clone(), &owner);
        async move {
            for number in (lane..MANY).step_by(16) {
                create(&raw, SECRETS, &format!("number-{number}"), &[owner]).await;
            }
        }
    });
    posts.buffer_unordered(16).collect::<Vec<_>>().await;
    let (making, started) = (started.elapsed(), Instant::now());
    delete(&raw, &path(CONFIG_MAPS, "owner"), "Foreground").await;
    gone(&raw, &path(CONFIG_MAPS, "owner")).await;
    // Sixteen clients created them concurrently. Sequential deletions would take several times as long.
    let collecting = started.elapsed();
    assert!(collecting < 2 * making, "made in {making:?}, collected in {collecting:?}");
    let left = raw.get(SECRETS).await.expect(200).json();
    assert_eq!(left["items"], json!([]));
}
