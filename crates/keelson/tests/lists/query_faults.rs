//! Tests of faulty queries with a plausible result: paths that lead nowhere, and conditions without a value.
//!
//! The former are refused or get a warning, the latter are counted and get a warning.

use keelson_testkit::{Answer, DEFINITIONS, Raw, TestServer, definition, definition_version};
use serde_json::json;

use crate::names;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FOOS: &str = "/apis/ex.io/v1/namespaces/default/foos";

async fn create_map(raw: &Raw, name: &str, data: serde_json::Value) {
    let map = json!({"metadata": {"name": name, "labels": {"of": "faults"}, "finalizers": ["a.b/x"]}, "data": data});
    raw.post(MAPS, &map).await.expect(201);
}

fn warnings(answer: &Answer) -> Vec<&str> {
    answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
}

#[tokio::test]
async fn paths_that_lead_nowhere_are_refused() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let refused = async |query: &str, expected: &str| {
        let answer = raw.get(format!("{PODS}?{query}")).await.expect(400).json();
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(expected), "{query}: {message}");
    };
    let nowhere = "keelson.io/sortBy: .spec.nodeNam does not exist in a Pod: there is no field \"nodeNam\" in .spec";
    refused("keelson.io/sortBy=spec.nodeNam", nowhere).await;
    refused("keelson.io/fields=spec.containers.image", ".spec.containers is a list, whose items are").await;
    refused("keelson.io/groupBy=spec.nodeName.x", ".spec.nodeName has no fields").await;
    refused("keelson.io/filter=any(spec.containers,.imag=='x')", "no field \"imag\" in .spec.containers[*]").await;
    refused("keelson.io/filter=exists(status.phase[0])", ".status.phase is not a list").await;
    refused("keelson.io/sortBy=--metadata.name", "a name that begins with - must be in brackets").await;
    refused("keelson.io/sortBy=$metadata.name", "a name that begins with $ must be in brackets").await;
    refused("keelson.io/page=99999999999999999999999&limit=1", "the number of a page has at most 64 bits").await;
    refused("watch=1&keelson.io/filter=spec.nodeNam=='a'", "does not exist").await;
    raw.get(format!("{PODS}/p?keelson.io/fields=spec.nodeNam")).await.expect(400);
    for known in [
        "keelson.io/sortBy=-$.metadata.creationTimestamp:time",
        "keelson.io/fields=metadata.labels['a/b'],spec.containers[*].image",
        "keelson.io/groupBy=spec.nodeSelector[*]",
    ] {
        raw.get(format!("{PODS}?{known}")).await.expect(200);
    }
}

#[tokio::test]
async fn an_unknown_field_of_a_custom_kind_is_warned_of() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}, "open": open}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let foos = definition("ex.io", "foos", "Foo", json!([definition_version("v1", true, schema)]));
    raw.post(DEFINITIONS, &foos).await.expect(201);
    let get = async |query: &str| raw.get(format!("{FOOS}?keelson.io/{query}")).await;
    for known in ["sortBy=spec.size", "sortBy=spec.open.any.thing", "sortBy=metadata.name", "sortBy=kind"] {
        assert_eq!(warnings(&get(known).await.expect(200)), [""; 0], "{known}");
    }
    let answer = get("sortBy=spec.sice").await.expect(200);
    let expected = r#"299 - "keelson.io/sortBy: .spec.sice does not exist: there is no field \"sice\" in .spec""#;
    assert_eq!(warnings(&answer), [expected]);
    get("sortBy=spec.size.x").await.expect(400);
}

#[tokio::test]
async fn conditions_without_a_value_are_counted_and_warned_of() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create_map(&raw, "a", json!({"n": "1"})).await;
    create_map(&raw, "b", json!({})).await;
    create_map(&raw, "c", json!({"m": "2"})).await;
    let path = format!("{MAPS}?labelSelector=of&keelson.io/where=");
    let counted = |answer: &Answer| answer.header("keelson-failed-evaluations").to_owned();
    let answer = raw.get(format!("{path}object.data.n=='1'")).await.expect(200);
    assert_eq!((names(&answer.json()), counted(&answer)), (vec!["a"], "2".to_owned()));
    let [warning] = warnings(&answer)[..] else { panic!("{:?}", warnings(&answer)) };
    assert!(warning.contains("keelson.io/where has no value for 2 objects, which are not in the answer: no such key"));
    // The cached view catches up with the changes.
    create_map(&raw, "d", json!({"n": "1"})).await;
    create_map(&raw, "e", json!({"m": "1"})).await;
    raw.patch(format!("{MAPS}/b"), "application/merge-patch+json", &json!({"data": {"n": "1"}})).await.expect(200);
    let answer = raw.get(format!("{path}object.data.n=='1'")).await.expect(200);
    assert_eq!((names(&answer.json()).len(), counted(&answer)), (3, "2".to_owned()));
    let groups = raw.get(format!("{path}object.data.n=='1'&keelson.io/groupBy=data.n")).await.expect(200);
    assert_eq!((groups.json()["totalValues"].clone(), counted(&groups)), (json!(1), "2".to_owned()));
    // With a value for each object there is no warning.
    let answer = raw.get(format!("{path}has(object.data.n)%26%26object.data.n=='1'")).await.expect(200);
    assert_eq!((names(&answer.json()).len(), counted(&answer), warnings(&answer).len()), (3, String::new(), 0));
    // A field that no object has.
    let answer = raw.get(format!("{path}object.dataa.n=='1'")).await.expect(200);
    assert_eq!(counted(&answer), "5");
    assert!(warnings(&answer)[0].contains("object.dataa.n does not exist: there is no field \\\"dataa\\\""));
    // Items that are plain values.
    let filter = format!("{MAPS}?labelSelector=of&keelson.io/filter=any(metadata.finalizers,.=='a.b/x')");
    assert_eq!(names(&raw.get(filter).await.expect(200).json()).len(), 5);
}
