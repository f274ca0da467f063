//! Tests of attacks on migrations: too many of them, forged results, and leases and definitions that are deleted
//! meanwhile. No resource is falsely reported as stored in one version, and every migration that can end does.

use std::sync::atomic::Ordering;

use keelson_resources::storage_version_hash;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use crate::custom_migrations::{DEFINITION, OBJECTS, definition, start, stored, versions};
use crate::migrations::{MIGRATIONS, condition, has_ended, holds, migration, migrations, storing, with_migrator};
use crate::storage_states::{STATES, make_scaler, persisted, store_as};
use crate::{CONFIG_MAPS, config_map, name, until};

const MERGE: &str = "application/merge-patch+json";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// The number of migrations that a client creates for an existing resource, and the same number for missing ones.
const FLOOD: usize = 200;

async fn until_all_have_ended(raw: &Raw) {
    until("all migrations end", || async { migrations(raw).await.iter().all(has_ended) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_migrations_does_not_block_the_needed_one() {
    let server = TestServer::builder().configure(with_migrator).configure(storing("v1")).start().await;
    let raw = server.raw();
    for number in 0..10 {
        make_scaler(&raw, &format!("s{number}")).await;
    }
    for number in 0..FLOOD {
        raw.post(MIGRATIONS, &migration(&format!("same-{number}"), "", "nothings")).await.expect(201);
        let other = migration(&format!("other-{number}"), "flood.example.com", &format!("r{number}"));
        raw.post(MIGRATIONS, &other).await.expect(201);
        let real = migration(&format!("real-{number}"), "autoscaling", "horizontalpodautoscalers");
        raw.post(MIGRATIONS, &real).await.expect(201);
    }
    store_as(&server, "v2").await;
    raw.post(CONFIG_MAPS, &config_map("a", 1)).await.expect(201);
    let metric =
        "keelson_stored_encodings{resource=\"horizontalpodautoscalers.autoscaling\",encoding=\"autoscaling/v2\"} 10";
    until("all is written anew", || async { raw.get("/metrics").await.expect(200).text().contains(metric) }).await;
    until_all_have_ended(&raw).await;
    for migration in migrations(&raw).await {
        let is_real = migration["spec"]["resource"]["group"] == "autoscaling";
        let why = condition(&migration, "Failed")["message"].as_str().unwrap_or_default();
        let fits = match why {
            "resource does not exist in discovery" => !is_real,
            "" => is_real && holds(&migration, "Succeeded"),
            // The controller processed it while the server changed its version.
            why => is_real && (why.ends_with(" of the same resource is under way") || why.starts_with("the servers ")),
        };
        assert!(fits, "{migration}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_migration_conditions_do_not_change_stored_versions() {
    let (store, server, _hook, is_broken) = start().await;
    let raw = server.raw();
    is_broken.store(true, Ordering::SeqCst);
    raw.patch(DEFINITION, MERGE, &json!({ "spec": { "versions": versions("v2") } })).await.expect(200);
    for kind in ["Succeeded", "Failed"] {
        let is_hindered = |migration: &Value| {
            let message = condition(migration, "Running")["message"].as_str().unwrap_or_default();
            !has_ended(migration) && message.contains("failed and is retried")
        };
        until("one is under way", || async { migrations(&raw).await.iter().any(is_hindered) }).await;
        let running = migrations(&raw).await.into_iter().find(is_hindered).unwrap();
        let over = json!([{
            "type": kind, "status": "True", "reason": "MadeUp", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
        }]);
        let path = format!("{MIGRATIONS}/{}", name(&running));
        raw.patch(format!("{path}/status"), MERGE, &json!({ "status": { "conditions": over } })).await.expect(200);
        until("another begins", || async {
            migrations(&raw).await.iter().any(|it| !has_ended(it) && name(it) != name(&running))
        })
        .await;
        assert!(!holds(&raw.get(&*path).await.expect(200).json(), "Running"), "what has ended is left alone");
        assert_eq!(definition(&raw).await["status"]["storedVersions"], json!(["v1", "v2"]));
        assert!(stored(&store).await.iter().all(|object| object["apiVersion"] == "move.example.com/v1"));
    }
    // The server's lease is deleted during the migration, and is created again.
    let id = server.running().server_id();
    raw.delete(format!("{LEASES}/{id}")).await.expect(200);
    is_broken.store(false, Ordering::SeqCst);
    until("the old version leaves the list", || async {
        definition(&raw).await["status"]["storedVersions"] == json!(["v2"])
    })
    .await;
    assert!(stored(&store).await.iter().all(|object| object["apiVersion"] == "move.example.com/v2"));
    until_all_have_ended(&raw).await;
    raw.get(format!("{LEASES}/{id}")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_migrating_condition_names_only_existing_migrations() {
    let (_store, server, _hook, is_broken) = start().await;
    let raw = server.raw();
    is_broken.store(true, Ordering::SeqCst);
    raw.patch(DEFINITION, MERGE, &json!({ "spec": { "versions": versions("v2") } })).await.expect(200);
    let said = async || condition(&definition(&raw).await, "StorageMigrating")["message"].clone();
    let other_than = async |gone: Option<&str>| {
        let names = migrations(&raw).await.iter().map(|it| name(it).to_owned()).collect::<Vec<_>>();
        let running = said().await;
        names.into_iter().find(|it| Some(&**it) != gone && running == format!("Migration {it} is running"))
    };
    until("one is under way", || async { other_than(None).await.is_some() }).await;
    let first = other_than(None).await.unwrap();
    raw.delete(format!("{MIGRATIONS}/{first}")).await.expect(200);
    until("another one takes its place", || async { other_than(Some(&first)).await.is_some() }).await;
    is_broken.store(false, Ordering::SeqCst);
    until("it comes to its end", || async {
        definition(&raw).await["status"]["storedVersions"] == json!(["v2"])
            && said().await == "The migration has succeeded and the stored versions have been updated"
    })
    .await;
    until_all_have_ended(&raw).await;
    // A client claims in the status that an unknown migration runs.
    let mut conditions = definition(&raw).await["status"]["conditions"].clone();
    let migrating = conditions.as_array_mut().unwrap().iter_mut().find(|it| it["type"] == "StorageMigrating").unwrap();
    (migrating["status"], migrating["message"]) = (json!("True"), json!("Migration nobody is running"));
    raw.patch(format!("{DEFINITION}/status"), MERGE, &json!({ "status": { "conditions": conditions } }))
        .await
        .expect(200);
    until("it is put right", || async {
        said().await == "The migration was stopped before its end"
            && !holds(&definition(&raw).await, "StorageMigrating")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_goes_in_the_middle_takes_its_migration_along() {
    let (store, server, _hook, is_broken) = start().await;
    let raw = server.raw();
    is_broken.store(true, Ordering::SeqCst);
    raw.patch(DEFINITION, MERGE, &json!({ "spec": { "versions": versions("v2") } })).await.expect(200);
    let is_hindered = |migration: &Value| {
        condition(migration, "Running")["message"].as_str().unwrap_or_default().contains("failed and is retried")
    };
    until("one is under way", || async { migrations(&raw).await.iter().any(is_hindered) }).await;
    assert_eq!(stored(&store).await.len(), OBJECTS);
    // The deletion of the objects needs the webhook too: it converts the objects that admission gets.
    is_broken.store(false, Ordering::SeqCst);
    raw.delete(DEFINITION).await.expect(200);
    until("the definition is gone", || async { raw.get(DEFINITION).await.status == 404 }).await;
    until_all_have_ended(&raw).await;
    assert!(stored(&store).await.is_empty());
    let state = format!("{STATES}/hosts.move.example.com");
    until("its state is gone", || async { raw.get(&*state).await.status == 404 }).await;
    // A new migration with the same name begins from the start.
    let again = json!({
        "metadata": { "name": "hosts.move.example.com" },
        "spec": {
            "group": "move.example.com", "scope": "Namespaced", "names": { "plural": "hosts", "kind": "Host" },
            "versions": versions("v2"),
        },
    });
    raw.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &again).await.expect(201);
    until("it is known what is stored", || async {
        let found = raw.get(&*state).await;
        found.status == 200 && persisted(&found.json()) == [storage_version_hash("move.example.com", "v2", "Host")]
    })
    .await;
}
