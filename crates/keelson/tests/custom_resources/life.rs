//! Tests of the life of a definition: creation, deletion, and recreation.
//!
//! The objects of a definition are deleted with it, and a second definition of the same name has none of them.

use keelson_testkit::{ProcessServer, TestServer};
use serde_json::{Value, json};

use super::{APPLY, DEFINITIONS, MERGE, condition, definition, establish, until, until_gone, version};

const MAYS: &str = "/apis/life.example.com/v1/namespaces/default/mays";
const MAYS_DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/mays.life.example.com";

fn mays() -> Value {
    definition("life.example.com", "mays", "May", json!([version("v1", true)]))
}

fn may(name: &str) -> Value {
    json!({ "apiVersion": "life.example.com/v1", "kind": "May", "metadata": { "name": name }, "spec": { "a": "x" } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_established_definition_is_served_at_once() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.get(MAYS).await.expect(404);
    let mut watch = raw.get(format!("{DEFINITIONS}?watch=1")).stream().await;
    raw.post(DEFINITIONS, &mays()).await.expect(201);
    let told: Vec<Value> =
        [watch.next_json().await.unwrap(), watch.next_json().await.unwrap(), watch.next_json().await.unwrap()].into();
    let state = |event: &Value| {
        let of = |kind| condition(&event["object"], kind);
        (event["type"].as_str().unwrap().to_owned(), of("NamesAccepted"), of("Established"))
    };
    let text = |texts: [&str; 3]| (texts[0].to_owned(), texts[1].to_owned(), texts[2].to_owned());
    let accepted = text(["True", "NoConflicts", "no conflicts found"]);
    let initial = "the initial names have been accepted";
    let nothing = text(["", "", ""]);
    assert_eq!(state(&told[0]), ("ADDED".to_owned(), nothing.clone(), nothing));
    let installing = text(["False", "Installing", initial]);
    assert_eq!(state(&told[1]), ("MODIFIED".to_owned(), accepted.clone(), installing));
    let established = text(["True", "InitialNamesAccepted", initial]);
    assert_eq!(state(&told[2]), ("MODIFIED".to_owned(), accepted, established));
    let names = json!({ "plural": "mays", "singular": "may", "kind": "May", "listKind": "MayList" });
    assert_eq!(told[2]["object"]["status"]["acceptedNames"], names);

    // At once: a client that sees it established may use it.
    raw.post(MAYS, &may("a")).await.expect(201);
    let list = raw.get(MAYS).await.expect(200).json();
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("MayList"), &json!("May")));
    let discovered = raw.get("/apis/life.example.com/v1").await.expect(200).json();
    let verbs = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    assert_eq!(discovered["resources"][0]["verbs"], json!(verbs));
    let applied = raw.patch(format!("{MAYS}/b?fieldManager=m"), APPLY, &may("b")).await.expect(201).json();
    assert_eq!(applied["metadata"]["managedFields"][0]["operation"], "Apply");
    let chunk = raw.get(format!("{MAYS}?limit=1")).await.expect(200).json();
    assert_eq!(chunk["metadata"]["remainingItemCount"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_definition_disappears_after_its_objects() {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &mays()).await;
    raw.post(MAYS, &may("free")).await.expect(201);
    let mut held = may("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    raw.post(MAYS, &held).await.expect(201);

    let deleted = raw.delete(MAYS_DEFINITION).await.expect(200).json();
    assert_eq!(deleted["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(
        (&deleted["metadata"]["generation"], condition(&deleted, "Terminating").1.as_str()),
        (&json!(1), "InstanceDeletionPending")
    );
    let terminating =
        until(&raw, MAYS_DEFINITION, |found| condition(found, "Terminating").1 == "InstanceDeletionInProgress");
    assert_eq!(condition(&terminating.await, "Terminating").2, "CustomResource deletion is in progress");
    until_gone(&raw, &format!("{MAYS}/free")).await;

    let refused = raw.post(MAYS, &may("new")).await.expect(403).json();
    let message = "mays.life.example.com \"new\" is forbidden: create not allowed while custom resource definition is terminating";
    assert_eq!(refused["message"], message);
    raw.patch(format!("{MAYS}/new?fieldManager=m"), APPLY, &may("new")).await.expect(403);
    raw.patch(format!("{MAYS}/held"), MERGE, &json!({ "metadata": { "labels": { "a": "b" } } })).await.expect(200);
    let verbs = raw.get("/apis/life.example.com/v1").await.expect(200).json()["resources"][0]["verbs"].clone();
    assert_eq!(verbs, json!(["delete", "deletecollection", "get", "list", "watch"]));
    raw.post(DEFINITIONS, &mays()).await.expect(409);

    let release = json!({ "metadata": { "finalizers": null } });
    raw.patch(format!("{MAYS}/held"), MERGE, &release).await.expect(200);
    until_gone(&raw, MAYS_DEFINITION).await;
    until_gone(&raw, MAYS).await;
    raw.get("/apis/life.example.com").await.expect(404);

    establish(&raw, &mays()).await;
    assert_eq!(raw.get(MAYS).await.expect(200).json()["items"], json!([]), "nothing is left of the one before");
    raw.post(MAYS, &may("free")).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_with_a_finalizer_reports_deleted_objects() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut definition = mays();
    definition["metadata"]["finalizers"] = json!(["example.com/mine"]);
    establish(&raw, &definition).await;
    raw.post(MAYS, &may("a")).await.expect(201);
    raw.delete(MAYS_DEFINITION).await.expect(200);
    let found = until(&raw, MAYS_DEFINITION, |found| condition(found, "Terminating").0 == "False").await;
    let told = condition(&found, "Terminating");
    assert_eq!((told.1.as_str(), told.2.as_str()), ("InstanceDeletionCompleted", "removed all instances"));
    assert_eq!(found["metadata"]["finalizers"], json!(["example.com/mine"]));
    assert_eq!(raw.get(MAYS).await.expect(200).json()["items"], json!([]));
    raw.patch(MAYS_DEFINITION, MERGE, &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    until_gone(&raw, MAYS).await;
}

#[tokio::test]
async fn a_restarted_server_serves_definitions_before_it_is_ready() {
    let mut server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).start().await;
    let raw = server.raw();
    establish(&raw, &mays()).await;
    raw.post(MAYS, &may("a")).await.expect(201);
    server.kill().await;
    server.restart().await;
    let raw = server.raw();
    assert_eq!(raw.get(format!("{MAYS}/a")).await.expect(200).json()["spec"]["a"], "x");
    raw.delete(MAYS_DEFINITION).await.expect(200);
    server.kill().await;
    server.restart().await;
    until_gone(&server.raw(), MAYS_DEFINITION).await;
    until_gone(&server.raw(), MAYS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protected_groups_require_the_approval_annotation() {
    const APPROVAL: &str = "api-approved.kubernetes.io";
    const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/mays.x.k8s.io";
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut mays = definition("x.k8s.io", "mays", "May", json!([version("v1", true)]));
    let why = "Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
    let refused = raw.post(DEFINITIONS, &mays).await.expect(422).json();
    assert_eq!(refused["details"]["causes"][0]["message"], why, "{refused}");
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.annotations[api-approved.kubernetes.io]");
    mays["metadata"]["annotations"] = json!({ APPROVAL: "not a URL" });
    raw.post(DEFINITIONS, &mays).await.expect(422);

    mays["metadata"]["annotations"] = json!({ APPROVAL: "https://example.com/pull/1" });
    let approved = establish(&raw, &mays).await;
    let text = |texts: [&str; 3]| (texts[0].to_owned(), texts[1].to_owned(), texts[2].to_owned());
    let conformant = |found: &Value| condition(found, "KubernetesAPIApprovalPolicyConformant");
    let known = until(&raw, PATH, |found| conformant(found).0 == "True").await;
    let expected = text(["True", "ApprovedAnnotation", "approved in https://example.com/pull/1"]);
    assert_eq!(conformant(&known), expected, "{approved}");
    let without = json!({ "metadata": { "annotations": { APPROVAL: null } } });
    raw.patch(PATH, MERGE, &without).await.expect(422);
    let unapproved = json!({ "metadata": { "annotations": { APPROVAL: "unapproved, for a test" } } });
    raw.patch(PATH, MERGE, &unapproved).await.expect(200);
    let known = until(&raw, PATH, |found| conformant(found).0 == "False").await;
    let expected = text(["False", "UnapprovedAnnotation", "not approved: \"unapproved, for a test\""]);
    assert_eq!(conformant(&known), expected);
    raw.get("/apis/x.k8s.io/v1/namespaces/default/mays").await.expect(200);
}
