//! Tests of names that several definitions of a group claim, and of changed names.
//!
//! The first claim wins; the conditions of the other definitions name it.

use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::{DEFINITIONS, MERGE, condition, definition, establish, until, until_gone, version};

const GROUP: &str = "names.example.com";

#[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
fn named(plural: &str, kind: &str, others: Value) -> Value {
    let mut definition = definition(GROUP, plural, kind, json!([version("v1", true)]));
    for (name, value) in others.as_object().unwrap() {
        definition["spec"]["names"][name] = value.clone();
    }
    definition
}

fn path(plural: &str) -> String {
    format!("{DEFINITIONS}/{plural}.{GROUP}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_definition_gets_a_name_once_it_is_free() {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &named("apples", "Apple", json!({ "shortNames": ["ap"] }))).await;
    raw.post(DEFINITIONS, &named("apples2", "Apple", json!({ "singular": "apple2" }))).await.expect(201);
    let refused = until(&raw, &path("apples2"), |found| condition(found, "NamesAccepted").0 == "False").await;
    let told = condition(&refused, "NamesAccepted");
    assert_eq!((told.1.as_str(), told.2.as_str()), ("ListKindConflict", "\"AppleList\" is already in use"));
    let told = condition(&refused, "Established");
    assert_eq!((told.1.as_str(), told.2.as_str()), ("NotAccepted", "not all names are accepted"));
    assert_eq!(refused["status"]["acceptedNames"], json!({ "plural": "apples2", "singular": "apple2", "kind": "" }));
    raw.get("/apis/names.example.com/v1/namespaces/default/apples2").await.expect(404);

    raw.delete(path("apples")).await.expect(200);
    until(&raw, &path("apples2"), |found| condition(found, "Established").0 == "True").await;
    raw.get("/apis/names.example.com/v1/namespaces/default/apples2").await.expect(200);
    until_gone(&raw, "/apis/names.example.com/v1/namespaces/default/apples").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_change_while_objects_are_served() {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &named("pears", "Pear", json!({ "shortNames": ["pe"] }))).await;
    establish(&raw, &named("plums", "Plum", json!({ "shortNames": ["taken"] }))).await;
    let pears = "/apis/names.example.com/v1/namespaces/default/pears";
    raw.post(pears, &json!({ "metadata": { "name": "a" } })).await.expect(201);
    let change =
        json!({ "spec": { "names": { "shortNames": ["birne"], "singular": "birne1", "listKind": "PearBasket" } } });
    raw.patch(path("pears"), MERGE, &change).await.expect(200);
    let list = until(&raw, pears, |list| list["kind"] == "PearBasket").await;
    assert_eq!(list["items"][0]["kind"], "Pear");
    let shown = raw.get("/apis/names.example.com/v1").await.expect(200).json()["resources"][0].clone();
    assert_eq!((&shown["singularName"], &shown["shortNames"]), (&json!("birne1"), &json!(["birne"])));

    let into = json!({ "spec": { "names": { "shortNames": ["taken"], "singular": "pear9" } } });
    raw.patch(path("pears"), MERGE, &into).await.expect(200);
    let found = until(&raw, &path("pears"), |found| condition(found, "NamesAccepted").0 == "False").await;
    assert_eq!(condition(&found, "NamesAccepted").1, "ShortNamesConflict");
    assert_eq!(condition(&found, "Established").0, "True", "a served definition stays served");
    let accepted = &found["status"]["acceptedNames"];
    assert_eq!((&accepted["singular"], &accepted["shortNames"]), (&json!("pear9"), &json!(["birne"])));
    raw.get(format!("{pears}/a")).await.expect(200);
    raw.delete(path("plums")).await.expect(200);
    let found = until(&raw, &path("pears"), |found| condition(found, "NamesAccepted").0 == "True").await;
    assert_eq!(found["status"]["acceptedNames"]["shortNames"], json!(["taken"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_names_categories_and_subresources_are_discovered_in_both_forms() {
    const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let server = TestServer::start().await;
    let raw = server.raw();
    let names = json!({ "shortNames": ["fg", "fi"], "categories": ["all", "fruit"], "singular": "feige", "listKind": "FigBasket" });
    let mut figs = named("figs", "Fig", names);
    figs["spec"]["scope"] = json!("Cluster");
    figs["spec"]["versions"][0]["subresources"] =
        json!({ "status": {}, "scale": { "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n" } });
    let group = figs["spec"]["group"].as_str().unwrap().to_owned();
    establish(&raw, &figs).await;
    let legacy = raw.get(format!("/apis/{group}/v1")).await.expect(200).json();
    let all: Vec<&str> =
        legacy["resources"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(all, ["figs", "figs/status", "figs/scale"]);
    let found = &legacy["resources"][0];
    assert_eq!(
        (&found["shortNames"], &found["categories"], &found["singularName"], &found["namespaced"]),
        (&json!(["fg", "fi"]), &json!(["all", "fruit"]), &json!("feige"), &json!(false))
    );
    let aggregated = raw.get("/apis").header("accept", V2).await.expect(200).json();
    let groups = aggregated["items"].as_array().unwrap();
    let found = groups.iter().find(|item| item["metadata"]["name"] == *group).unwrap();
    let found = &found["versions"][0]["resources"][0];
    assert_eq!(
        (&found["shortNames"], &found["categories"], &found["singularResource"], &found["scope"]),
        (&json!(["fg", "fi"]), &json!(["all", "fruit"]), &json!("feige"), &json!("Cluster"))
    );
    let below: Vec<&str> =
        found["subresources"].as_array().unwrap().iter().map(|it| it["subresource"].as_str().unwrap()).collect();
    assert_eq!(below, ["status", "scale"]);
    assert_eq!(raw.get(format!("/apis/{group}/v1/figs")).await.expect(200).json()["kind"], "FigBasket");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_hides_nothing_that_is_built_in() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let announced = raw.get("/apis/keelson.io/v1alpha1").await.expect(200).text();
    let own = definition("keelson.io", "parameters", "Parameter", json!([version("v1alpha1", true)]));
    let refused = raw.post(DEFINITIONS, &own).await.expect(422).json();
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.group");
    let why = "is the group of the API server itself and can't be served by anything else";
    assert!(refused["message"].as_str().unwrap().contains(why), "{refused}");
    assert_eq!(raw.get("/apis/keelson.io/v1alpha1").await.expect(200).text(), announced);
}

/// As upstream, such a definition is established, and served in versions of its own only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_built_in_groups_are_those_of_the_server_alone() {
    const GROUP: &str = "networking.k8s.io";
    let server = TestServer::start().await;
    let raw = server.raw();
    for (plural, kind, own, is_stored) in [("routes", "Route", "v7", true), ("bridges", "Bridge", "v1example", false)] {
        let versions = json!([version("v1", !is_stored), version(own, is_stored)]);
        let mut beside = definition(GROUP, plural, kind, versions);
        beside["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": "unapproved, a test" });
        establish(&raw, &beside).await;
        let path = |version: &str| format!("/apis/{GROUP}/{version}/namespaces/default/{plural}");
        let sent = json!({ "metadata": { "name": "a" } });
        let hidden = raw.get(path("v1")).await.expect(404).json();
        assert_eq!(hidden["message"], "the server could not find the requested resource");
        raw.post(path("v1"), &sent).await.expect(404);
        raw.post(path(own), &sent).await.expect(201);
        let listed = raw.get(path(own)).await.expect(200).json();
        assert_eq!(listed["items"][0]["apiVersion"], format!("{GROUP}/{own}"));
        let shown = raw.get(format!("/apis/{GROUP}/v1")).await.expect(200).json();
        let is_ingress = |resource: &Value| resource["name"] == "ingresses";
        assert!(shown["resources"].as_array().unwrap().iter().any(is_ingress), "{shown}");
        assert!(!shown.to_string().contains(plural), "{shown}");
        let document = raw.get(format!("/openapi/v3/apis/{GROUP}/v1")).await.expect(200).text();
        assert!(!document.contains(&format!("/{plural}")), "a definition is not described where it is not served");
    }
}
