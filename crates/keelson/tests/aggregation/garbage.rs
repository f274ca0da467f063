//! Tests of garbage collection with owners or dependents on an aggregated server: they are deleted as if all were
//! local. Dependents of an unavailable or lying server are not deleted.

use std::path::Path;
use std::time::Duration;

use keelson_testkit::{HookReply, Raw, TestServer};
use serde_json::{Value, json};

use super::backend::{Backend, resource};
use super::example::Example;
use super::{until, until_reason};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FLUNDERS: &str = "/apis/wardle.example.com/v1/namespaces/default/flunders";
const TRAINS: &str = "/apis/rail.example.org/v1/namespaces/default/trains";
const HOLD: &str = "example.org/hold";

/// An owner reference to an object in a response.
fn owner(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "blockOwnerDeletion": true,
    })
}

/// Creates a ConfigMap with these owners.
async fn map(raw: &Raw, name: &str, owners: &[Value]) -> Value {
    let object = json!({ "metadata": { "name": name, "ownerReferences": owners } });
    raw.post(MAPS, &object).await.expect(201).json()
}

/// Creates a flunder with these finalizers.
async fn flunder(raw: &Raw, name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    let object = json!({
        "apiVersion": "wardle.example.com/v1", "kind": "Flunder",
        "metadata": { "name": name, "ownerReferences": owners, "finalizers": finalizers },
        "spec": { "colour": "red" },
    });
    raw.post(FLUNDERS, &object).await.expect(201).json()
}

async fn delete(raw: &Raw, path: &str, policy: &str) {
    raw.delete(path).json(&json!({ "propagationPolicy": policy })).await.expect(200);
}

async fn until_gone(raw: &Raw, path: &str) {
    until(raw, path, |found| found["reason"] == "NotFound").await;
}

/// Waits until an object has no owners.
async fn until_free(raw: &Raw, path: &str) {
    until(raw, path, |found| found["metadata"]["uid"].is_string() && found["metadata"]["ownerReferences"].is_null())
        .await;
}

/// Waits until the collector has processed all earlier objects of the main server.
async fn collected_here(raw: &Raw, name: &str) {
    let owner_here = map(raw, &format!("{name}-owner"), &[]).await;
    map(raw, name, &[owner(&owner_here)]).await;
    delete(raw, &format!("{MAPS}/{name}-owner"), "Background").await;
    until_gone(raw, &format!("{MAPS}/{name}")).await;
}

async fn let_go(raw: &Raw, path: &str) {
    raw.patch(path, super::MERGE, &json!({ "metadata": { "finalizers": null } })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_and_dependents_are_collected_across_servers() {
    let main = TestServer::start().await;
    let _flunders = Example::flunders(&main, |_| "memory:".to_owned()).await;
    let raw = main.raw();
    // The owner is local, its dependent is on the aggregated server.
    let here = map(&raw, "here", &[]).await;
    flunder(&raw, "of-here", &[owner(&here)], &[]).await;
    delete(&raw, &format!("{MAPS}/here"), "Background").await;
    until_gone(&raw, &format!("{FLUNDERS}/of-here")).await;
    // The owner is on the aggregated server, its dependents are on both.
    let there = flunder(&raw, "there", &[], &[]).await;
    map(&raw, "of-there", &[owner(&there)]).await;
    flunder(&raw, "of-there", &[owner(&there)], &[]).await;
    delete(&raw, &format!("{FLUNDERS}/there"), "Background").await;
    until_gone(&raw, &format!("{MAPS}/of-there")).await;
    until_gone(&raw, &format!("{FLUNDERS}/of-there")).await;
    // One of two owners is deleted: the dependent remains with the other.
    let [first, second] = [flunder(&raw, "first", &[], &[]).await, map(&raw, "second", &[]).await];
    map(&raw, "of-both", &[owner(&first), owner(&second)]).await;
    delete(&raw, &format!("{FLUNDERS}/first"), "Background").await;
    let one_left = |found: &Value| found["metadata"]["ownerReferences"].as_array().is_some_and(|left| left.len() == 1);
    let left = until(&raw, &format!("{MAPS}/of-both"), one_left).await;
    assert_eq!(left["metadata"]["ownerReferences"][0]["name"], "second");
    // Owners that never existed.
    let mut ghost = owner(&there);
    ghost["name"] = json!("ghost");
    map(&raw, "of-ghost", &[ghost]).await;
    until_gone(&raw, &format!("{MAPS}/of-ghost")).await;
    let mut ghost = owner(&here);
    ghost["name"] = json!("ghost");
    flunder(&raw, "of-ghost", &[ghost], &[]).await;
    until_gone(&raw, &format!("{FLUNDERS}/of-ghost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_and_orphan_deletion_work_across_servers() {
    let main = TestServer::start().await;
    let _flunders = Example::flunders(&main, |_| "memory:".to_owned()).await;
    let raw = main.raw();
    // An owner on the aggregated server waits for its local dependent, which has a finalizer.
    let there = flunder(&raw, "there", &[], &[]).await;
    let held = json!({ "metadata": { "name": "held", "ownerReferences": [owner(&there)], "finalizers": [HOLD] } });
    raw.post(MAPS, &held).await.expect(201);
    delete(&raw, &format!("{FLUNDERS}/there"), "Foreground").await;
    until(&raw, &format!("{MAPS}/held"), |found| found["metadata"]["deletionTimestamp"].is_string()).await;
    let waits = raw.get(format!("{FLUNDERS}/there")).await.expect(200).json();
    assert_eq!(waits["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let_go(&raw, &format!("{MAPS}/held")).await;
    until_gone(&raw, &format!("{MAPS}/held")).await;
    until_gone(&raw, &format!("{FLUNDERS}/there")).await;
    // The owner is local, and its dependent with a finalizer is on the aggregated server.
    let here = map(&raw, "here", &[]).await;
    let dependent = flunder(&raw, "held", &[owner(&here)], &[HOLD]).await;
    assert!(dependent["metadata"]["uid"].is_string());
    // The collector processes changes in order: when it has handled this one, it knows the earlier ones.
    let mut ghost = owner(&here);
    ghost["name"] = json!("ghost");
    flunder(&raw, "told", &[ghost], &[]).await;
    until_gone(&raw, &format!("{FLUNDERS}/told")).await;
    delete(&raw, &format!("{MAPS}/here"), "Foreground").await;
    until(&raw, &format!("{FLUNDERS}/held"), |found| found["metadata"]["deletionTimestamp"].is_string()).await;
    raw.get(format!("{MAPS}/here")).await.expect(200);
    let_go(&raw, &format!("{FLUNDERS}/held")).await;
    until_gone(&raw, &format!("{FLUNDERS}/held")).await;
    until_gone(&raw, &format!("{MAPS}/here")).await;

    // Dependents that are orphaned.
    let there = flunder(&raw, "leaves", &[], &[]).await;
    map(&raw, "left", &[owner(&there)]).await;
    collected_here(&raw, "settled").await;
    delete(&raw, &format!("{FLUNDERS}/leaves"), "Orphan").await;
    until_gone(&raw, &format!("{FLUNDERS}/leaves")).await;
    until_free(&raw, &format!("{MAPS}/left")).await;
    let here = map(&raw, "leaves", &[]).await;
    flunder(&raw, "left", &[owner(&here)], &[]).await;
    let mut ghost = owner(&here);
    ghost["name"] = json!("ghost");
    flunder(&raw, "told", &[ghost], &[]).await;
    until_gone(&raw, &format!("{FLUNDERS}/told")).await;
    delete(&raw, &format!("{MAPS}/leaves"), "Orphan").await;
    until_gone(&raw, &format!("{MAPS}/leaves")).await;
    until_free(&raw, &format!("{FLUNDERS}/left")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_on_unreachable_servers_keep_their_dependents() {
    let main = TestServer::start().await;
    let store = |directory: &Path| format!("sqlite:{}", directory.display());
    let mut flunders = Example::flunders(&main, store).await;
    let raw = main.raw();
    let [lives, goes] = [flunder(&raw, "lives", &[], &[]).await, flunder(&raw, "goes", &[], &[HOLD]).await];
    let here = map(&raw, "here", &[]).await;
    flunder(&raw, "of-here", &[owner(&here)], &[]).await;
    map(&raw, "of-lives", &[owner(&lives)]).await;
    map(&raw, "of-goes", &[owner(&goes)]).await;
    // The object is being deleted, and is gone when its last finalizer is removed.
    delete(&raw, &format!("{FLUNDERS}/goes"), "Background").await;
    flunders.kill().await;
    let mut ghost = owner(&lives);
    ghost["name"] = json!("ghost");
    map(&raw, "of-ghost", &[ghost]).await;
    delete(&raw, &format!("{MAPS}/here"), "Background").await;
    until_gone(&raw, &format!("{MAPS}/here")).await;
    until_reason(&raw, "v1.wardle.example.com", "FailedDiscoveryCheck").await;
    // Meanwhile unrelated objects are collected.
    for number in 0..3 {
        collected_here(&raw, &format!("others-{number}")).await;
    }
    for name in ["of-lives", "of-goes", "of-ghost"] {
        let found = raw.get(format!("{MAPS}/{name}")).await.expect(200).json();
        assert!(found["metadata"]["deletionTimestamp"].is_null(), "{name} is being deleted");
    }
    flunders.start_again().await;
    until_gone(&raw, &format!("{MAPS}/of-ghost")).await;
    until_gone(&raw, &format!("{FLUNDERS}/of-here")).await;
    let_go(&raw, &format!("{FLUNDERS}/goes")).await;
    until_gone(&raw, &format!("{MAPS}/of-goes")).await;
    raw.get(format!("{MAPS}/of-lives")).await.expect(200);
}

/// Trains on an aggregated server whose responses the test sets.
async fn trains(raw: &Raw) -> Backend {
    let backend = Backend::start(raw, "rails").await;
    let mut trains = resource("trains", "Train");
    trains["verbs"] = json!(["delete", "get", "list", "patch", "watch"]);
    backend.serve(&[("rail.example.org", "v1", json!([trains]))]);
    backend
}

fn train(name: &str, uid: &Value) -> Value {
    json!({
        "apiVersion": "rail.example.org/v1", "kind": "Train",
        "metadata": { "name": name, "namespace": "default", "uid": uid, "resourceVersion": "1" },
    })
}

/// The response of a server about an object that it does not have, or cannot find at the moment.
fn status(code: u16, reason: &str, name: &str) -> HookReply {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
        "details": { "name": name },
    });
    HookReply::Other(code, vec![("content-type", "application/json".to_owned())], status.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_not_found_status_with_the_name_proves_absence() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let backend = trains(&raw).await;
    let listed = json!({ "kind": "TrainList", "metadata": { "resourceVersion": "1" }, "items": [] });
    backend.answer("/apis/rail.example.org/v1/trains", HookReply::Json(listed));
    backend.answer(&format!("{TRAINS}/express"), HookReply::Json(train("express", &json!("u1"))));
    backend.answer(&format!("{TRAINS}/never"), status(404, "NotFound", "never"));
    let page = vec![("content-type", "text/plain".to_owned())];
    backend.answer(&format!("{TRAINS}/page"), HookReply::Other(404, page, "404 page not found".to_owned()));
    backend.answer(&format!("{TRAINS}/another"), status(404, "NotFound", "trains"));
    backend.answer(&format!("{TRAINS}/failing"), status(500, "InternalError", "failing"));
    backend.answer(&format!("{TRAINS}/forbidden"), status(403, "Forbidden", "forbidden"));
    backend.answer(&format!("{TRAINS}/garbage"), HookReply::Json(json!({ "metadata": {} })));
    backend.answer(&format!("{TRAINS}/swapped"), HookReply::Json(train("express", &json!("u9"))));
    backend.register(&raw, "rail.example.org", "v1").await;
    until_reason(&raw, "v1.rail.example.org", "Passed").await;
    let stays = ["page", "another", "failing", "forbidden", "garbage", "swapped"];
    let named = stays.map(|name| (name, name, "u2"));
    for (name, of, uid) in
        named.into_iter().chain([("lives", "express", "u1"), ("gone", "never", "u1"), ("other", "express", "u0")])
    {
        map(&raw, name, &[owner(&train(of, &json!(uid)))]).await;
    }
    until_gone(&raw, &format!("{MAPS}/gone")).await;
    until_gone(&raw, &format!("{MAPS}/other")).await;
    let asked = &backend.asked(&format!("{TRAINS}/never"))[0].headers["x-remote-user"];
    assert_eq!(asked, "system:serviceaccount:kube-system:generic-garbage-collector");
    // The collector checks each of these objects repeatedly.
    for name in stays {
        let path = format!("{TRAINS}/{name}");
        let again = async {
            while backend.asked(&path).len() < 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(super::lab::PATIENCE, again).await.expect("it is not judged again");
        raw.get(format!("{MAPS}/{name}")).await.expect(200);
    }
    raw.get(format!("{MAPS}/lives")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_claims_a_foreign_uid_keeps_its_dependents_unchanged() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mine = map(&raw, "mine", &[]).await;
    map(&raw, "of-mine", &[owner(&mine)]).await;
    let backend = trains(&raw).await;
    let mut thief = train("thief", &mine["metadata"]["uid"]);
    thief["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    thief["metadata"]["finalizers"] = json!(["orphan"]);
    let listed = json!({ "kind": "TrainList", "metadata": { "resourceVersion": "1" }, "items": [thief] });
    backend.answer("/apis/rail.example.org/v1/trains", HookReply::Json(listed));
    backend.answer(&format!("{TRAINS}/thief"), HookReply::Json(thief));
    backend.register(&raw, "rail.example.org", "v1").await;
    // A request with a body shows that the collector has removed the finalizer.
    let patched = async {
        while !backend.asked(&format!("{TRAINS}/thief")).iter().any(|asked| asked.body["metadata"].is_object()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::lab::PATIENCE, patched).await.expect("nobody deals with it");
    let kept = raw.get(format!("{MAPS}/of-mine")).await.expect(200).json();
    assert_eq!(kept["metadata"]["ownerReferences"][0]["name"], "mine");
}

/// The objects of such a server are unknown. Nothing is deleted because of them, and no other object waits for the
/// server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_or_endless_lists_delay_no_other_collection() {
    for reply in [HookReply::Hangs, HookReply::Stalls, HookReply::Endless, HookReply::Closes] {
        let server = TestServer::start().await;
        let raw = server.raw();
        let backend = trains(&raw).await;
        backend.answer("/apis/rail.example.org/v1/trains", reply.clone());
        backend.answer(&format!("{TRAINS}/express"), reply);
        backend.register(&raw, "rail.example.org", "v1").await;
        until_reason(&raw, "v1.rail.example.org", "Passed").await;
        map(&raw, "of-express", &[owner(&train("express", &json!("u1")))]).await;
        let asked = async {
            while !backend.was_asked("/trains") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(super::lab::PATIENCE, asked).await.expect("nobody asks what there is");
        for number in 0..3 {
            collected_here(&raw, &format!("others-{number}")).await;
        }
        raw.get(format!("{MAPS}/of-express")).await.expect(200);
    }
}
