//! Tests of the aggregated discovery document with aggregated servers. They cover both forms, stale entries for a
//! failed server, a common order with other groups, and tags that depend only on the content.

use std::time::Duration;

use keelson_testkit::{HookReply, Raw, TestServer};
use serde_json::{Value, json};

use super::backend::{Backend, aggregated, resource};
use super::{AGGREGATED, MERGE, SERVICES, until, until_of, until_reason};

/// The item of the document for a group; null if there is none.
fn group(document: &Value, name: &str) -> Value {
    let items = document["items"].as_array().cloned().unwrap_or_default();
    items.into_iter().find(|item| item["metadata"]["name"] == name).unwrap_or_default()
}

/// Waits until the first version of a group has this freshness, and returns the version.
async fn version(raw: &Raw, name: &str, freshness: &str) -> Value {
    let found = until_of(raw, "/apis", AGGREGATED, |found| group(found, name)["versions"][0]["freshness"] == freshness);
    group(&found.await, name)["versions"][0].clone()
}

/// The tag of the aggregated document.
pub(crate) async fn tag(raw: &Raw) -> String {
    raw.get("/apis").header("accept", AGGREGATED).await.expect(200).header("etag").to_owned()
}

/// Different responses of a server at `/apis`, each with the name of its group.
fn answers() -> Vec<(&'static str, HookReply)> {
    let items = |name: &str, version: &str| {
        json!([{ "metadata": { "name": format!("{name}.example.org") },
                 "versions": [{ "version": version, "resources": [resource("things", "Thing")], "freshness": "Stale" }] }])
    };
    let beta = AGGREGATED.replace("v=v2", "v=v2beta1");
    let plain = |code: u16, body: &str| {
        HookReply::Other(code, vec![("content-type", "application/json".to_owned())], body.to_owned())
    };
    let said_to_be = |body: &str| HookReply::Other(200, vec![("content-type", AGGREGATED.to_owned())], body.to_owned());
    let yaml = format!("kind: APIGroupDiscoveryList\nitems: {}\n", items("yaml", "v1"));
    vec![
        ("whole", aggregated(AGGREGATED, &items("whole", "v1"))),
        ("beta", aggregated(&beta, &items("beta", "v1"))),
        ("yaml", said_to_be(&yaml)),
        ("other-group", aggregated(AGGREGATED, &items("nobody", "v1"))),
        ("other-version", aggregated(AGGREGATED, &items("other-version", "v2"))),
        ("unasked", plain(304, "")),
        ("garbage", said_to_be("garbage")),
        ("other-kind", said_to_be("{\"kind\":\"PodList\"}")),
        ("away", plain(503, "")),
        ("hangs", HookReply::Hangs),
        ("endless", HookReply::Endless),
        ("closes", HookReply::Closes),
        ("stalls", HookReply::Stalls),
        ("older", plain(404, "")),
        ("groups", plain(200, "{\"kind\":\"APIGroupList\"}")),
        ("refuses", plain(403, "")),
        ("fails", plain(500, "")),
        ("nothing", plain(204, "")),
        ("older-garbage", plain(404, "")),
        ("older-empty", plain(404, "")),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_of_failing_servers_is_marked_stale() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut backends = Vec::new();
    for (name, answer) in answers() {
        let backend = Backend::start(&raw, name).await;
        backend.answer("/apis", answer);
        let entry = |name: &str, verbs: Value| json!({ "name": name, "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": verbs });
        let older = match name {
            "older-garbage" => HookReply::Other(200, vec![], "garbage".to_owned()),
            "older-empty" => HookReply::Json(json!({ "kind": "APIResourceList", "resources": [] })),
            _ => HookReply::Json(json!({ "kind": "APIResourceList", "resources": [
                entry("things", json!(["get", "list"])), entry("things/status", json!(["get"]))] })),
        };
        backend.answer(&format!("/apis/{name}.example.org/v1"), older);
        backend.register(&raw, &format!("{name}.example.org"), "v1").await;
        backends.push((name, backend));
    }
    let check = async |names: &[&str], freshness: &str, resources: &Value| {
        for name in names {
            let found = version(&raw, &format!("{name}.example.org"), freshness).await;
            assert_eq!(&found["resources"], resources, "{name}");
        }
    };
    let things = resource("things", "Thing");
    check(&["whole", "beta", "yaml"], "Current", &json!([things])).await;
    let mut with_status = things.clone();
    let kind = json!({ "group": "", "version": "", "kind": "Thing" });
    with_status["subresources"] = json!([{ "subresource": "status", "responseKind": kind, "verbs": ["get"] }]);
    check(&["older", "groups", "refuses", "fails", "nothing"], "Current", &json!([with_status])).await;
    check(&["other-group", "other-version", "unasked", "older-empty"], "Current", &Value::Null).await;
    let stale = ["garbage", "other-kind", "away", "hangs", "endless", "closes", "stalls", "older-garbage"];
    check(&stale, "Stale", &Value::Null).await;
    // The groups are in the document, but their resources are unknown.
    for (name, backend) in &backends {
        until_reason(&raw, &format!("v1.{name}.example.org"), "Passed").await;
        let asked = backend.asked("/apis");
        let all = |field: &str| asked[0].headers[field].to_str().unwrap().to_owned();
        assert_eq!(
            (all("x-remote-user"), all("x-remote-group")),
            ("system:kube-aggregator".into(), "system:masters".into())
        );
        assert!(all("accept").starts_with(AGGREGATED), "{}", all("accept"));
        raw.get(format!("/apis/{name}.example.org")).await.expect(200);
    }
    // The older documents have the same groups.
    let names = |list: &Value, field: &str| -> Vec<Value> {
        let all = list[field].as_array().unwrap().iter();
        all.map(|group| if field == "items" { group["metadata"]["name"].clone() } else { group["name"].clone() })
            .collect()
    };
    let older = raw.get("/apis").await.expect(200).json();
    let document = raw.get("/apis").header("accept", AGGREGATED).await.expect(200).json();
    assert_eq!(names(&older, "groups"), names(&document, "items"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_is_stale_while_its_server_is_away() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let without = tag(&raw).await;
    let backend = Backend::start(&raw, "life").await;
    let things = json!([resource("things", "Thing")]);
    let alive = || backend.serve(&[("life.example.org", "v1", things.clone())]);
    let touch = async |port: u16| {
        let change = json!({ "spec": { "service": { "port": port } } });
        raw.patch(format!("{SERVICES}/v1.life.example.org"), MERGE, &change).await.expect(200);
    };
    alive();
    backend.register(&raw, "life.example.org", "v1").await;
    assert_eq!(version(&raw, "life.example.org", "Current").await["resources"], things);
    let current = tag(&raw).await;
    // Nothing listens on the other port.
    touch(1).await;
    assert_eq!(version(&raw, "life.example.org", "Stale").await.get("resources"), None);
    let stale = tag(&raw).await;
    raw.get("/apis/life.example.org").await.expect(200);
    touch(backend.hook.addr().port()).await;
    version(&raw, "life.example.org", "Current").await;
    assert_eq!(tag(&raw).await, current);
    touch(1).await;
    version(&raw, "life.example.org", "Stale").await;
    assert_eq!(tag(&raw).await, stale);
    assert!(stale != current && current != without && stale != without);
    raw.delete(format!("{SERVICES}/v1.life.example.org")).await.expect(200);
    until_of(&raw, "/apis", AGGREGATED, |found| group(found, "life.example.org").is_null()).await;
    assert_eq!(tag(&raw).await, without);
    let unchanged = raw.get("/apis").header("accept", AGGREGATED).header("if-none-match", &*without).await;
    unchanged.expect(304);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_is_current_while_the_availability_check_fails() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let backend = Backend::start(&raw, "half").await;
    let things = json!([resource("things", "Thing")]);
    backend.serve(&[("half.example.org", "v1", things.clone())]);
    backend.answer("/apis/half.example.org/v1", HookReply::Other(500, vec![], "no".to_owned()));
    backend.register(&raw, "half.example.org", "v1").await;
    until_reason(&raw, "v1.half.example.org", "FailedDiscoveryCheck").await;
    assert_eq!(version(&raw, "half.example.org", "Current").await["resources"], things);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_and_versions_of_all_sources_stand_in_one_order() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let backend = Backend::start(&raw, "ordered").await;
    let registered = [
        ("p-a.example.org", "v1", 1000, 15),
        ("p-d.example.org", "v1", 20000, 15),
        ("p-e.example.org", "v1", 1, 15),
        ("p-e.example.org", "v2", 1001, 10),
        ("p-f.example.org", "v1", 17800, 15),
        ("both.example.org", "v1", 1000, 15),
    ];
    let resources = json!([resource("things", "Thing")]);
    let served: Vec<_> = registered.iter().map(|(group, version, ..)| (*group, *version, resources.clone())).collect();
    backend.serve(&served);
    for (group, version, group_priority, priority) in registered {
        let mut service = backend.api_service(group, version);
        service["spec"]["groupPriorityMinimum"] = json!(group_priority);
        service["spec"]["versionPriority"] = json!(priority);
        raw.post(SERVICES, &service).await.expect(201);
    }
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    let versions =
        ["v1", "v2"].map(|name| json!({ "name": name, "served": true, "storage": name == "v1", "schema": schema }));
    let definition = json!({
        "metadata": { "name": "locals.both.example.org" },
        "spec": { "group": "both.example.org", "scope": "Namespaced", "versions": versions,
                  "names": { "plural": "locals", "kind": "Local" } },
    });
    raw.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    let is_whole = |found: &Value| {
        let versions = |name: &str| group(found, name)["versions"].as_array().map_or(0, Vec::len);
        let all =
            found["items"].as_array().into_iter().flatten().flat_map(|group| group["versions"].as_array().unwrap());
        versions("both.example.org") == 2
            && all.clone().all(|version| version["freshness"] == "Current")
            && versions("p-e.example.org") == 2
    };
    let document = until_of(&raw, "/apis", AGGREGATED, is_whole).await;
    let names = document["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
    let order: Vec<&str> = names.collect();
    assert_eq!(order[..4], ["apiregistration.k8s.io", "p-d.example.org", "apps", "p-f.example.org"]);
    assert_eq!(order[order.len() - 3..], ["p-e.example.org", "both.example.org", "p-a.example.org"]);
    let versions = |name: &str| -> Vec<(Value, Value)> {
        let found = group(&document, name);
        let all = found["versions"].as_array().unwrap().iter();
        all.map(|version| (version["version"].clone(), version["resources"][0]["resource"].clone())).collect()
    };
    assert_eq!(versions("p-e.example.org"), [(json!("v1"), json!("things")), (json!("v2"), json!("things"))]);
    // If both serve a version, the document has only the registered server's resources.
    assert_eq!(versions("both.example.org"), [(json!("v2"), json!("locals")), (json!("v1"), json!("things"))]);
    let older = raw.get("/apis").await.expect(200).json();
    let names = older["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), order);

    // Without the registered server, the document has the definition's resources at once.
    raw.delete(format!("{SERVICES}/v1.both.example.org")).await.expect(200);
    let shows_locals =
        |found: &Value| group(found, "both.example.org")["versions"][1]["resources"][0]["resource"] == "locals";
    until_of(&raw, "/apis", AGGREGATED, shows_locals).await;
    let automatic = format!("{SERVICES}/v1.both.example.org");
    until(&raw, &automatic, |found| found["spec"]["versionPriority"] == 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_keeps_neither_the_document_nor_a_start_waiting() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let (hangs, lives) = (Backend::start(&raw, "hangs").await, Backend::start(&raw, "lives").await);
    hangs.answer("/apis/hangs.example.org/v1", HookReply::Json(json!({})));
    hangs.answer("/apis", HookReply::Hangs);
    lives.serve(&[("lives.example.org", "v1", json!([resource("things", "Thing")]))]);
    for (backend, group) in [(&hangs, "hangs.example.org"), (&lives, "lives.example.org")] {
        backend.register(&raw, group, "v1").await;
        until_reason(&raw, &format!("v1.{group}"), "Passed").await;
    }
    let current = version(&raw, "lives.example.org", "Current").await;
    assert_eq!(version(&raw, "hangs.example.org", "Stale").await["resources"], Value::Null);
    let before = tag(&raw).await;
    let late = HookReply::After(Duration::from_secs(600), Box::new(HookReply::Closes));
    let nonsense = HookReply::Other(200, vec![("content-type", AGGREGATED.to_owned())], "none".to_owned());
    for fault in [nonsense, HookReply::Closes, HookReply::Stalls, HookReply::Endless, late] {
        // From now on neither server returns its resources.
        lives.answer("/apis", fault);
        server.restart().await;
        let raw = server.raw();
        raw.get("/readyz").await.expect(200);
        let document = raw.get("/apis").header("accept", AGGREGATED).await.expect(200).json();
        for name in ["hangs.example.org", "lives.example.org"] {
            assert_eq!(group(&document, name)["versions"][0]["freshness"], "Stale", "{name}");
        }
    }
    let raw = server.raw();
    lives.serve(&[("lives.example.org", "v1", current["resources"].clone())]);
    let touched = json!({ "metadata": { "annotations": { "a": "b" } } });
    raw.patch(format!("{SERVICES}/v1.lives.example.org"), MERGE, &touched).await.expect(200);
    version(&raw, "lives.example.org", "Current").await;
    assert_eq!(tag(&raw).await, before, "a start changes no tag");
}
