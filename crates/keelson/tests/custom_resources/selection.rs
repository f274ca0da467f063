//! Tests of selectable fields of custom resources: in lists, watches and deletions of collections.
//!
//! The definition names them; all other fields are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keelson_testkit::{HookReply, HookRequest, HookServer, Raw, TestServer, converted_review};
use serde_json::{Value, json};

use super::webhooks::with_field;
use super::{DEFINITIONS, MERGE, definition, establish, until, version};

const SELS: &str = "/apis/select.example.com/v1/namespaces/default/sels";

/// Fields of every selectable type in version `v1`, another one in `v2`, and none in `v3`.
fn sels() -> Value {
    let spec = json!({ "type": "object", "properties": {
        "s": { "type": "string" }, "i": { "type": "integer" }, "b": { "type": "boolean" }, "other": { "type": "string" },
        "deep": { "type": "object", "properties": { "in": { "type": "string" } } },
    } });
    let of = |name: &str, stored: bool, fields: &[&str]| {
        let mut version = version(name, stored);
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec.clone();
        // Versions with equal schemas and different selectable fields are refused.
        version["schema"]["openAPIV3Schema"]["description"] = json!(name);
        if !fields.is_empty() {
            version["selectableFields"] = fields.iter().map(|path| json!({ "jsonPath": path })).collect();
        }
        version
    };
    let v1 = of("v1", true, &[".spec.s", ".spec.i", ".spec.b", ".spec.deep.in"]);
    definition(
        "select.example.com",
        "sels",
        "Sel",
        json!([v1, of("v2", false, &[".spec.other"]), of("v3", false, &[])]),
    )
}

async fn filled() -> (TestServer, Raw) {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &sels()).await;
    for (name, spec) in [
        ("a", json!({ "s": "one", "i": 1, "b": true, "deep": { "in": "d" } })),
        ("b", json!({ "s": "two", "i": -5, "b": false })),
        ("c", json!({ "s": "a,b=c" })),
        ("d", json!({ "other": "x" })),
    ] {
        let object = json!({ "metadata": { "name": name, "labels": { "n": name } }, "spec": spec });
        raw.post(SELS, &object).await.expect(201);
    }
    (server, raw)
}

/// The names in the result of a query.
async fn names_found(raw: &Raw, query: &str) -> String {
    let list = raw.get(format!("{SELS}?{query}")).await.expect(200).json();
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_selected_by_declared_fields() {
    let (_server, raw) = filled().await;
    for (selector, expected) in [
        ("spec.s%3Done", "a"),
        ("spec.s%3D%3Done", "a"),
        ("spec.s!%3Done", "bcd"),
        ("spec.s%3DOne", ""),
        ("spec.i%3D1", "a"),
        ("spec.i%3D01", ""),
        ("spec.i%3D-5", "b"),
        ("spec.b%3Dfalse", "b"),
        ("spec.s%3D", "d"),
        ("spec.i%3D", "cd"),
        ("spec.deep.in%3Dd", "a"),
        ("spec.s%3Done,spec.i%3D1", "a"),
        ("spec.s%3Done,spec.i%3D2", ""),
        ("metadata.name%3Da,spec.s%3Done", "a"),
        (r"spec.s%3Da%5C%2Cb%5C%3Dc", "c"),
    ] {
        assert_eq!(names_found(&raw, &format!("fieldSelector={selector}")).await, expected, "{selector}");
    }
    assert_eq!(names_found(&raw, "fieldSelector=spec.s!%3Done&labelSelector=n%3Dc").await, "c");
    let everywhere = raw.get("/apis/select.example.com/v1/sels?fieldSelector=spec.s%3Dtwo").await.expect(200).json();
    assert_eq!(everywhere["items"].as_array().unwrap().len(), 1);

    // Chunks of a selection: together they equal the selection.
    let mut walked = String::new();
    let mut query = "fieldSelector=spec.s!%3Done&limit=1".to_owned();
    loop {
        let chunk = raw.get(format!("{SELS}?{query}")).await.expect(200).json();
        walked.push_str(chunk["items"][0]["metadata"]["name"].as_str().unwrap());
        let Some(token) = chunk["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else { break };
        query = format!("fieldSelector=spec.s!%3Done&limit=1&continue={token}");
    }
    assert_eq!(walked, "bcd");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_version_has_fields_of_its_own_and_no_others() {
    let (_server, raw) = filled().await;
    let place = |version: &str| SELS.replace("/v1/", &format!("/{version}/"));
    let refused = async |path: String| raw.get(path).await.expect(400).json()["message"].as_str().unwrap().to_owned();
    for (version, field) in [
        ("v1", "spec.other"),
        ("v1", "spec.nope"),
        ("v1", ".spec.s"),
        ("v1", "status.x"),
        ("v2", "spec.s"),
        ("v3", "spec.s"),
    ] {
        let told = refused(format!("{}?fieldSelector={field}%3Dx", place(version))).await;
        assert_eq!(told, format!("field label not supported: {field}"), "{version}");
    }
    let own = raw.get(format!("{}?fieldSelector=spec.other%3Dx", place("v2"))).await.expect(200).json();
    assert_eq!(own["items"][0]["metadata"]["name"], "d");
    raw.get(format!("{}?fieldSelector=metadata.name%3Da", place("v3"))).await.expect(200);
    let watched = refused(format!("{SELS}?watch=1&fieldSelector=spec.other%3Dx")).await;
    assert_eq!(watched, "field label not supported: spec.other");
    raw.delete(format!("{SELS}?fieldSelector=spec.nope%3Dx")).await.expect(400);
    assert_eq!(names_found(&raw, "").await, "abcd", "nothing was deleted");

    // One field is no longer declared, another one is new.
    let mut changed = sels();
    changed["spec"]["versions"][0]["selectableFields"] =
        json!([{ "jsonPath": ".spec.s" }, { "jsonPath": ".spec.other" }]);
    let versions = json!({ "spec": { "versions": changed["spec"]["versions"] } });
    raw.patch(format!("{DEFINITIONS}/sels.select.example.com"), MERGE, &versions).await.expect(200);
    until(&raw, &format!("{SELS}?fieldSelector=spec.i%3D1"), |found| found["code"] == 400).await;
    assert_eq!(names_found(&raw, "fieldSelector=spec.other%3Dx").await, "d");
    assert_eq!(names_found(&raw, "fieldSelector=spec.s%3Dtwo").await, "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_take_declared_fields_and_search_in_them() {
    let (_server, raw) = filled().await;
    assert_eq!(names_found(&raw, "fieldSelector=spec.s!%3Done&keelson.io/sortBy=-metadata.name").await, "dcb");
    assert_eq!(names_found(&raw, "fieldSelector=spec.b%3Dtrue&keelson.io/filter=spec.i+%3E+0").await, "a");
    assert_eq!(names_found(&raw, "keelson.io/search=two").await, "b");
    let body = raw.get(format!("{SELS}?keelson.io/search=two&keelson.io/matches=true")).await.expect(200).json();
    assert_eq!(body["items"][0]["matches"][0]["field"], ".spec.s");
    // Each version has its own selectable fields.
    let v2 = SELS.replace("/v1/", "/v2/");
    let refused = raw.get(format!("{v2}?fieldSelector=spec.s%3Done&keelson.io/count=true")).await.expect(400).json();
    assert!(refused["message"].as_str().unwrap().contains("field label not supported: spec.s"), "{refused}");
}

/// A frequently selected field has an index, whatever its type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declared_fields_are_indexed_and_sorted_by() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut definition = sels();
    definition["spec"]["versions"].as_array_mut().unwrap().truncate(1);
    establish(&raw, &definition).await;
    for number in 0..300 {
        let spec = json!({ "s": format!("s{}", number % 30), "i": number, "b": number % 100 == 7 });
        let object = json!({ "metadata": { "name": format!("n{number:03}") }, "spec": spec });
        raw.post(SELS, &object).await.expect(201);
    }
    // Also for an ordinary list: the index finds the same as a scan.
    let kept = async || {
        let metrics = raw.get("/metrics").await.expect(200).text();
        let value = metrics.lines().find_map(|line| line.strip_prefix("keelson_cache_views "));
        value.unwrap_or_else(|| panic!("no count in {metrics}")).parse::<f64>().unwrap()
    };
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push((kept().await, names_found(&raw, "fieldSelector=spec.s%3Ds8,spec.i!%3D38").await));
    }
    let all: String = [8, 68, 98, 128, 158, 188, 218, 248, 278].map(|number| format!("n{number:03}")).concat();
    assert_eq!(seen, [0.0, 0.0, 0.0, 1.0].map(|kept| (kept, all.clone())));
    let first = raw.get(format!("{SELS}?fieldSelector=spec.s%3Ds8&limit=4")).await.expect(200).json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names_found(&raw, &format!("fieldSelector=spec.s%3Ds8&limit=6&continue={token}")).await, all[12..]);

    for (selector, expected) in [("spec.s%3Ds7", 10), ("spec.i%3D42", 1), ("spec.b%3Dtrue", 3)] {
        let mut looked_at = Vec::new();
        for limit in 1..=4 {
            // Each query differs, so that no result is cached.
            let filter = format!("keelson.io/filter=spec.i+%3C+{}", 1000 + limit);
            let asked = format!("{SELS}?fieldSelector={selector}&limit=1&keelson.io/count=true&{filter}");
            let answer = raw.get(asked).await.expect(200);
            assert_eq!(answer.header("keelson-total-count"), expected.to_string(), "{selector}");
            looked_at.push(answer.header("keelson-objects-scanned").parse::<usize>().unwrap());
        }
        let is_known = selector.starts_with("spec.s");
        let made = if is_known { [expected; 3] } else { [300, 300, 300 + expected] };
        assert_eq!(looked_at, [&made[..], &[expected]].concat(), "{selector}");
    }
    let sorted = format!("{SELS}?limit=3&keelson.io/sortBy=-spec.b,spec.i:number&fieldSelector=spec.s!%3Ds7");
    let page = raw.get(sorted).await.expect(200).json();
    let shown: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| item["spec"]["i"].clone()).collect();
    assert_eq!(shown, [107, 207, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_sees_objects_enter_and_leave_its_selection() {
    let (_server, raw) = filled().await;
    let mut watch = raw.get(format!("{SELS}?watch=1&fieldSelector=spec.s%3Done&resourceVersion=0")).stream().await;
    let mut event = async || {
        let event = watch.next_json().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]), event["object"]["spec"]["i"].clone())
    };
    let told = |kind: &str, name: &str, i: Value| (kind.to_owned(), name.to_owned(), i);
    assert_eq!(event().await, told("ADDED", "a", json!(1)));
    let set = async |name: &str, spec: Value| {
        raw.patch(format!("{SELS}/{name}"), MERGE, &json!({ "spec": spec })).await.expect(200);
    };
    set("b", json!({ "s": "one" })).await;
    assert_eq!(event().await, told("ADDED", "b", json!(-5)));
    set("b", json!({ "i": 7 })).await;
    assert_eq!(event().await, told("MODIFIED", "b", json!(7)));
    set("b", json!({ "s": "two", "i": 8 })).await;
    assert_eq!(event().await, told("DELETED", "b", json!(7)), "as it last was in the selection");
    set("c", json!({ "i": 1 })).await;
    raw.delete(format!("{SELS}/a")).await.expect(200);
    assert_eq!(event().await, told("DELETED", "a", json!(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_delete_removes_only_selected_objects() {
    let (_server, raw) = filled().await;
    let deleted =
        raw.delete(format!("{SELS}?fieldSelector=spec.s!%3Done&labelSelector=n!%3Dc")).await.expect(200).json();
    assert_eq!(deleted["items"].as_array().unwrap().len(), 2);
    assert_eq!(names_found(&raw, "").await, "ac");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_with_schemas_of_their_own_may_have_the_same_selectable_fields() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let with = |versions: &[&str], path: &str| {
        let mut made = sels();
        made["spec"]["versions"].as_array_mut().unwrap().retain(|it| versions.contains(&it["name"].as_str().unwrap()));
        for version in made["spec"]["versions"].as_array_mut().unwrap() {
            version["selectableFields"] = json!([{ "jsonPath": path }]);
        }
        made
    };
    let message = async |definition: &Value| {
        let refused = raw.post(DEFINITIONS, definition).await.expect(422).json();
        refused["message"].as_str().unwrap().to_owned()
    };
    let why = "Invalid value: \".spec.nope\": is an invalid path: does not refer to a valid field";
    let head = "CustomResourceDefinition.apiextensions.k8s.io \"sels.select.example.com\" is invalid: ";
    let each = [0, 1].map(|place| format!("spec.versions[{place}].selectableFields[0].jsonPath: {why}"));
    assert_eq!(message(&with(&["v1", "v2"], ".spec.nope")).await, format!("{head}[{}]", each.join(", ")));
    let one = format!("{head}spec.selectableFields[0].jsonPath: {why}");
    assert_eq!(message(&with(&["v1"], ".spec.nope")).await, one, "fields common to all versions are above them");
    establish(&raw, &with(&["v1", "v2"], ".spec.s")).await;
    raw.post(SELS, &json!({ "metadata": { "name": "a" }, "spec": { "s": "x" } })).await.expect(201);
    for version in ["v1", "v2"] {
        let place = SELS.replace("/v1/", &format!("/{version}/"));
        let chosen = raw.get(format!("{place}?fieldSelector=spec.s%3Dx")).await.expect(200).json();
        assert_eq!(chosen["items"].as_array().unwrap().len(), 1, "{version}");
    }
}

/// Two versions with a common field, whose values a webhook changes, and a field of the second one only.
async fn marked(hook: &HookServer, raw: &Raw) {
    let text = json!({ "type": "string" });
    let mut first = with_field("v1", true, json!({ "name": text }));
    first["selectableFields"] = json!([{ "jsonPath": ".spec.name" }]);
    let mut second = with_field("v2", false, json!({ "name": text, "address": text }));
    second["selectableFields"] = json!([{ "jsonPath": ".spec.name" }, { "jsonPath": ".spec.address" }]);
    let mut marks = definition("marks.example.com", "marks", "Mark", json!([first, second]));
    let client = json!({ "url": hook.url("/convert"), "caBundle": hook.ca_bundle() });
    let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
    marks["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": webhook });
    establish(raw, &marks).await;
}

fn marks(version: &str) -> String {
    format!("/apis/marks.example.com/{version}/namespaces/default/marks")
}

/// Converts `NAME` in the first version to `NAME-two` in the second, and the address.
fn marked_twice(review: &Value) -> Value {
    converted_review(review, |spec, wanted| {
        let name = spec["name"].as_str().unwrap_or_default().trim_end_matches("-two");
        match wanted.ends_with("v2") {
            true => json!({ "name": format!("{name}-two"), "address": name }),
            false => json!({ "name": name }),
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_are_selected_by_their_values_in_the_version_of_the_request() {
    // SIZE: one story, in its order.
    let fails = Arc::new(AtomicBool::new(false));
    let hook = HookServer::start(&["127.0.0.1"], {
        let fails = fails.clone();
        move |request: HookRequest| {
            let fails = fails.load(Ordering::SeqCst);
            std::future::ready(if fails { HookReply::Closes } else { HookReply::Json(marked_twice(&request.body)) })
        }
    })
    .await;
    let server = TestServer::start().await;
    let raw = server.raw();
    marked(&hook, &raw).await;
    let object = |name: &str, value: &str| json!({ "metadata": { "name": name, "labels": { "n": name } }, "spec": { "name": value } });
    for (version, name, value) in [("v1", "a", "x"), ("v1", "b", "y"), ("v2", "c", "x-two"), ("v1", "d", "z")] {
        raw.post(marks(version), &object(name, value)).await.expect(201);
    }
    let names = |list: &Value| -> String {
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
    };
    let names_found = async |version: &str, query: &str| {
        names(&raw.get(format!("{}?{query}", marks(version))).await.expect(200).json())
    };
    for (version, selector, expected) in [
        ("v2", "spec.name%3Dx-two", "ac"),
        ("v2", "spec.name%3Dx", ""),
        ("v2", "spec.name!%3Dx-two", "bd"),
        ("v2", "spec.address%3Dx", "ac"),
        ("v2", "spec.address%3Dx,metadata.name%3Dc", "c"),
        ("v1", "spec.name%3Dx", "ac"),
        ("v1", "spec.name%3Dx-two", ""),
    ] {
        assert_eq!(names_found(version, &format!("fieldSelector={selector}")).await, expected, "{version} {selector}");
    }
    assert_eq!(names_found("v2", "fieldSelector=spec.name%3Dx-two&labelSelector=n%3Dc").await, "c");
    let shown = raw.get(format!("{}?fieldSelector=spec.address%3Dy", marks("v2"))).await.expect(200).json();
    assert_eq!(shown["items"][0]["spec"], json!({ "name": "y-two", "address": "y" }));

    // Chunks together equal the selection.
    let (mut walked, mut query) = (String::new(), "fieldSelector=spec.name!%3Dy-two&limit=1".to_owned());
    loop {
        let chunk = raw.get(format!("{}?{query}", marks("v2"))).await.expect(200).json();
        walked.push_str(&names(&chunk));
        let Some(token) = chunk["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else { break };
        query = format!("fieldSelector=spec.name!%3Dy-two&limit=1&continue={token}");
    }
    assert_eq!(walked, "acd");

    // A watch reports objects that enter or leave the selection, in its version.
    let begun = "watch=1&fieldSelector=spec.name%3Dx-two&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = raw.get(format!("{}?{begun}&allowWatchBookmarks=true", marks("v2"))).stream().await;
    let mut event = async || {
        let event = watch.next_json().await.unwrap();
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (event["type"].as_str().unwrap().to_owned(), name, event["object"]["spec"]["name"].clone())
    };
    let told = |kind: &str, name: &str, value: &str| (kind.to_owned(), name.to_owned(), json!(value));
    assert_eq!([event().await, event().await], [told("ADDED", "a", "x-two"), told("ADDED", "c", "x-two")]);
    assert_eq!(event().await.0, "BOOKMARK");
    let rename = async |name: &str, value: &str| {
        let patch = json!({ "spec": { "name": value } });
        raw.patch(format!("{}/{name}", marks("v1")), MERGE, &patch).await.expect(200);
    };
    rename("d", "w").await;
    rename("b", "x").await;
    assert_eq!(event().await, told("ADDED", "b", "x-two"));
    rename("b", "y").await;
    assert_eq!(event().await, told("DELETED", "b", "x-two"));
    let label = json!({ "metadata": { "labels": { "more": "1" } } });
    raw.patch(format!("{}/a", marks("v1")), MERGE, &label).await.expect(200);
    assert_eq!(event().await, told("MODIFIED", "a", "x-two"));
    drop(watch);

    // Queries use only stored objects, and report that.
    let query = "fieldSelector=spec.name%3Dx-two&keelson.io/count=true";
    let refused = raw.get(format!("{}?{query}", marks("v2"))).await.expect(400).json();
    assert!(refused["message"].as_str().unwrap().contains("a webhook converts"), "{refused}");
    assert_eq!(names_found("v1", "fieldSelector=spec.name%3Dx&keelson.io/sortBy=-metadata.name").await, "ca");

    // With a failing webhook no object is selected or deleted by mistake.
    rename("b", "q").await;
    fails.store(true, Ordering::SeqCst);
    raw.get(format!("{}?fieldSelector=spec.name%3Dq-two", marks("v2"))).await.expect(500);
    raw.delete(format!("{}?fieldSelector=spec.name%3Dq-two", marks("v2"))).await.expect(500);
    fails.store(false, Ordering::SeqCst);
    raw.delete(format!("{}?fieldSelector=spec.name%3Dq-two", marks("v2"))).await.expect(200);
    assert_eq!(names_found("v1", "").await, "acd");
}
