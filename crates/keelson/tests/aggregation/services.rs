//! Tests of APIServices that the server creates: their owners, changes and deletions by clients, and their recreation.
//!
//! The server creates the APIServices of built-in versions and definitions. Clients create the others.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::{AGGREGATED, MERGE, SERVICES, api_service, condition, until, until_reason};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

async fn get(raw: &Raw, name: &str) -> Value {
    raw.get(format!("{SERVICES}/{name}")).await.expect(200).json()
}

/// Waits until all earlier changes are processed: the server deletes a superfluous APIService after them.
async fn all_looked_at(raw: &Raw) {
    let unwanted = json!({
        "metadata": { "name": "v1.spurious.example.org", "labels": { LABEL: "true" } },
        "spec": { "group": "spurious.example.org", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15 },
    });
    raw.post(SERVICES, &unwanted).await.expect(201);
    until(raw, &format!("{SERVICES}/v1.spurious.example.org"), |found| found["code"] == 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_built_in_version_has_an_api_service_that_is_local() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let listed = raw.get(SERVICES).await.expect(200).json();
    let mut found: Vec<String> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    found.sort();
    let groups = raw.get("/apis").await.expect(200).json();
    let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap());
    let mut expected: Vec<String> = versions
        .map(|version| version["groupVersion"].as_str().unwrap().split_once('/').unwrap())
        .filter(|(group, _)| *group != "apiregistration.k8s.io")
        .map(|(group, version)| format!("{version}.{group}"))
        .chain(["v1.".to_owned()])
        .collect();
    expected.sort();
    assert_eq!(found, expected);

    let apps = get(&raw, "v1.apps").await;
    let spec = json!({ "group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15 });
    assert_eq!(apps["spec"], spec);
    assert_eq!(apps["metadata"]["labels"], json!({ LABEL: "onstart" }));
    assert_eq!(condition(&apps).1, "Local");
    let managers: Vec<_> =
        apps["metadata"]["managedFields"].as_array().unwrap().iter().map(|entry| &entry["manager"]).collect();
    assert_eq!(managers, ["kube-apiserver"]);
    let core = get(&raw, "v1.").await;
    assert_eq!(core["spec"], json!({ "version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_built_in_api_services_stay_changed_until_a_start() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let (scheduling, batch) = (format!("{SERVICES}/v1.scheduling.k8s.io"), format!("{SERVICES}/v1.batch"));
    raw.delete(&scheduling).await.expect(200);
    raw.patch(&batch, MERGE, &json!({ "spec": { "groupPriorityMinimum": 19000 } })).await.expect(200);
    all_looked_at(&raw).await;
    raw.get(&scheduling).await.expect(404);
    assert_eq!(get(&raw, "v1.batch").await["spec"]["groupPriorityMinimum"], 19000);
    raw.get("/apis/scheduling.k8s.io/v1/priorityclasses").await.expect(200);
    let groups = raw.get("/apis").await.expect(200).text();
    assert!(groups.contains("scheduling.k8s.io/v1"), "what is served is shown: {groups}");

    let kept = json!({
        "metadata": { "name": "v1.old.example.org", "labels": { LABEL: "onstart" } },
        "spec": { "group": "old.example.org", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15 },
    });
    raw.post(SERVICES, &kept).await.expect(201);
    server.restart().await;
    let raw = server.raw();
    until(&raw, &scheduling, |found| found["kind"] == "APIService").await;
    until(&raw, &batch, |found| found["spec"]["groupPriorityMinimum"] == 17400).await;
    until(&raw, &format!("{SERVICES}/v1.old.example.org"), |found| found["code"] == 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_service_of_a_custom_group_follows_its_definition() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    let version =
        |name: &str, served: bool| json!({ "name": name, "served": served, "storage": name == "v1", "schema": schema });
    let definition = json!({
        "metadata": { "name": "widgets.mix.example.org" },
        "spec": {
            "group": "mix.example.org", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    });
    raw.post(DEFINITIONS, &definition).await.expect(201);
    let (stable, beta) = (format!("{SERVICES}/v1.mix.example.org"), format!("{SERVICES}/v1beta1.mix.example.org"));
    let made = until(&raw, &stable, |found| found["kind"] == "APIService").await;
    let spec =
        json!({ "group": "mix.example.org", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100 });
    assert_eq!((&made["spec"], &made["metadata"]["labels"]), (&spec, &json!({ LABEL: "true" })));
    raw.get(&beta).await.expect(404);

    let serve = |served: bool| json!({ "spec": { "versions": [version("v1", true), version("v1beta1", served)] } });
    let path = format!("{DEFINITIONS}/widgets.mix.example.org");
    raw.patch(&path, MERGE, &serve(true)).await.expect(200);
    until(&raw, &beta, |found| found["kind"] == "APIService").await;
    raw.patch(&path, MERGE, &serve(false)).await.expect(200);
    until(&raw, &beta, |found| found["code"] == 404).await;

    raw.delete(&stable).await.expect(200);
    until(&raw, &stable, |found| found["kind"] == "APIService").await;
    raw.patch(&stable, MERGE, &json!({ "spec": { "versionPriority": 7 } })).await.expect(200);
    until(&raw, &stable, |found| found["spec"]["versionPriority"] == 100).await;
    let noted = json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } } });
    raw.patch(&stable, MERGE, &noted).await.expect(200);
    // Without the label it belongs to a user.
    let own = json!({ "metadata": { "labels": { LABEL: null } }, "spec": { "versionPriority": 7 } });
    raw.patch(&stable, MERGE, &own).await.expect(200);
    all_looked_at(&raw).await;
    let found = get(&raw, "v1.mix.example.org").await;
    assert_eq!((&found["spec"]["versionPriority"], &found["metadata"]["annotations"]["c"]), (&json!(7), &json!("d")));
    let taken = json!({ "metadata": { "labels": { LABEL: "true" } } });
    raw.patch(&stable, MERGE, &taken).await.expect(200);
    let found = until(&raw, &stable, |found| found["spec"]["versionPriority"] == 100).await;
    assert_eq!(found["metadata"]["labels"]["a"], "b");

    raw.delete(&path).await.expect(200);
    until(&raw, &stable, |found| found["code"] == 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_core_group_is_served_here_whatever_its_api_service_says() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let core = format!("{SERVICES}/v1.");
    let before = raw.get("/api").header("accept", AGGREGATED).await.expect(200);
    let elsewhere = json!({ "spec": { "service": { "namespace": "default", "name": "nowhere", "port": 443 } } });
    raw.patch(&core, MERGE, &elsewhere).await.expect(200);
    // A later item of the same queue shows that the earlier ones are processed.
    let another = api_service("later.example.org", "v1", &elsewhere["spec"]["service"]);
    raw.post(SERVICES, &another).await.expect(201);
    until_reason(&raw, "v1.later.example.org", "ServiceNotFound").await;
    until_reason(&raw, "v1.", "Local").await;
    raw.get("/api/v1/namespaces/default").await.expect(200);
    let after = raw.get("/api").header("accept", AGGREGATED).await.expect(200);
    assert_eq!((after.header("etag"), after.text()), (before.header("etag"), before.text()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_service_hides_neither_the_announcement_nor_the_api_services() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let registered = |group: &str, version: &str| {
        let service = json!({ "namespace": "default", "name": "nowhere" });
        json!({
            "metadata": { "name": format!("{version}.{group}") },
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
                "service": service, "insecureSkipTLSVerify": true,
            },
        })
    };
    for version in ["v1", "v1alpha1"] {
        let refused = raw.post(SERVICES, &registered("keelson.io", version)).await.expect(422).json();
        assert_eq!(refused["details"]["causes"][0]["field"], "spec.group", "{refused}");
    }
    raw.get("/apis/keelson.io/v1alpha1").await.expect(200);

    // An APIService for the group of APIServices is stored, as in kube-apiserver, and has no effect.
    raw.post(SERVICES, &registered("apiregistration.k8s.io", "v1")).await.expect(201);
    all_looked_at(&raw).await;
    raw.get(format!("{SERVICES}/v1.apps")).await.expect(200);
    raw.delete(format!("{SERVICES}/v1.apiregistration.k8s.io")).await.expect(200);
}
