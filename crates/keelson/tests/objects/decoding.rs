//! Tests of request bodies and patches: decoding, errors with upstream's texts, and limits of their cost.
//!
//! Every encoding is tested here; fuzzing tests the parsers alone.

use std::fmt::Write as _;

use http::Method;
use keelson_testkit::{Call, Raw, TestServer};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const YAML: &str = "application/yaml";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": ["example.com/keep"],
        "annotations": {"c": "d"}}, "data": {"a": "b"}})
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}})
}

/// The error of a rejected patch.
async fn refused(raw: &Raw, path: &str, form: &str, patch: &Value, code: u16) -> String {
    let answer = raw.patch(path, form, patch).await.expect(code).json();
    answer["message"].as_str().unwrap().to_owned()
}

/// Sends a text. Returns the response and its warnings.
async fn send(call: Call, form: &str, body: &str, code: u16) -> (Value, Vec<String>) {
    let answer = call.header("content-type", form).body(body.to_owned()).await.expect(code);
    let warnings = answer.headers.get_all("warning").iter().map(|text| text.to_str().unwrap().to_owned()).collect();
    (answer.json(), warnings)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_lost_its_name_is_refused_whole() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let path = format!("{CONFIG_MAPS}/a");
    let made = raw.post(CONFIG_MAPS, &config_map("a")).await.expect(201).json();
    let expected = "the name of the object (a based on URL) was undeterminable: name must be provided";
    for (form, patch) in [
        (MERGE, json!({"metadata": null})),
        (MERGE, json!({"metadata": {"name": ""}})),
        (STRATEGIC, json!({"metadata": {"$patch": "replace"}})),
        (JSON_PATCH, json!([{"op": "remove", "path": "/metadata"}])),
        (JSON_PATCH, json!([{"op": "remove", "path": "/metadata/name"}])),
    ] {
        assert_eq!(refused(&raw, &path, form, &patch, 400).await, expected, "{patch}");
    }
    let unnamed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}});
    let answer = raw.put(path.as_str(), &unnamed).await.expect(400).json();
    assert_eq!(answer["message"], expected);
    assert_eq!(raw.get(path.as_str()).await.expect(200).json(), made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_text_is_no_number_and_no_object() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let check = async |path: &str, value: Value, fault: &str| {
        let mut body = deployment("a");
        *body.pointer_mut(path).unwrap() = value;
        let expected = format!(
            "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct field {fault}"
        );
        for validation in ["", "?fieldValidation=Strict", "?fieldValidation=Ignore"] {
            let answer = raw.post(format!("{DEPLOYMENTS}{validation}"), &body).await.expect(400).json();
            assert_eq!(answer["message"], json!(expected), "{validation}");
        }
        let updated = raw.put(format!("{DEPLOYMENTS}/there"), &body).await.expect(400).json();
        assert_eq!(updated["message"], json!(expected));
    };
    raw.post(DEPLOYMENTS, &deployment("there")).await.expect(201);
    for replicas in [json!(""), json!(" "), json!("1")] {
        let patch = json!({"spec": {"replicas": replicas}});
        for media_type in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
            let answer = raw.patch(format!("{DEPLOYMENTS}/there"), media_type, &patch).await;
            assert!([400, 422].contains(&answer.status), "{media_type} {patch}: {}", answer.text());
        }
    }
    let kept = raw.get(format!("{DEPLOYMENTS}/there")).await.expect(200).json();
    assert_eq!(kept["metadata"]["generation"], 1, "nothing has come of it");
    check("/spec", json!(""), "Deployment.spec of type v1.DeploymentSpec").await;
    check("/spec/template", json!(""), "DeploymentSpec.spec.template of type v1.PodTemplateSpec").await;
    check(
        "/spec/selector",
        json!({"matchLabels": ""}),
        "LabelSelector.spec.selector.matchLabels of type map[string]string",
    )
    .await;
    let replicas = json!({"replicas": "", "selector": {"matchLabels": {"app": "web"}}, "template": {}});
    check("/spec", replicas, "DeploymentSpec.spec.replicas of type int32").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_json_patch_is_as_lenient_as_upstreams_library() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let patch = json!([
        {"op": "replace", "path": "/metadata/labels", "value": {"x": "y"}},
        {"op": "replace", "path": "/data/new", "value": "1"},
        {"op": "copy", "from": "/data/absent", "path": "/binaryData"},
        {"op": "add", "path": "anything/data/odd", "value": "2"},
    ]);
    let patched = raw.patch(path.as_str(), JSON_PATCH, &patch).await.expect(200).json();
    assert_eq!(patched["metadata"]["labels"], json!({"x": "y"}));
    assert_eq!(patched["data"], json!({"a": "b", "new": "1", "odd": "2"}));
    for patch in [json!([{"op": "add"}]), json!([{"op": "add", "path": "data", "value": {}}]), json!([null])] {
        let message = refused(&raw, &path, JSON_PATCH, &patch, 422).await;
        assert_eq!(message, "the server rejected our request due to an error in our request", "{patch}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_may_be_sent_as_numbers() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "a"}, "data": {"a": [], "b": [97, 98]}});
    let made = raw.post(secrets, &secret).await.expect(201).json();
    assert_eq!(made["data"], json!({"a": "", "b": "YWI="}));
    for (kind, change, b) in
        [(STRATEGIC, json!({"data": {"b": [1]}}), "AQ=="), (MERGE, json!({"data": {"b": [2, 3]}}), "AgM=")]
    {
        let patched = raw.patch(format!("{secrets}/a"), kind, &change).await.expect(200).json();
        assert_eq!(patched["data"]["b"], b, "{kind}");
    }
    raw.post(secrets, &json!({"metadata": {"name": "b"}, "data": {"b": [256]}})).await.expect(400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_that_leaves_no_object_is_shown_as_upstream_writes_it() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    // Both members are invalid; the error names the alphabetically first.
    let patch = json!({"metadata": {"labels": []}, "data": []});
    let message = refused(&raw, &path, MERGE, &patch, 422).await;
    let start = r#" "" is invalid: patch: Invalid value: "{\"apiVersion\":\"v1\",\"data\":[],\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":"#;
    assert!(message.starts_with(start), "{message}");
    let fault = "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string";
    assert!(message.ends_with(fault), "{message}");
    let patch = json!([{"op": "replace", "path": "/metadata/annotations/x", "value": {}}]);
    let message = refused(&raw, &path, JSON_PATCH, &patch, 422).await;
    assert!(
        message.contains(r#"\"metadata\":{\"annotations\":{\"c\":\"d\",\"x\":{}},\"creationTimestamp\""#),
        "{message}"
    );
    let expected = r#" "" is invalid: patch: Invalid value: "map[immutable:[] metadata:map[labels:map[a:<nil> b:c]]]": unrecognized type: bool"#;
    let patch = json!({"metadata": {"labels": {"b": "c", "a": null}}, "immutable": []});
    assert_eq!(refused(&raw, &path, STRATEGIC, &patch, 422).await, expected);
    let expected = r#" "" is invalid: patch: Invalid value: "map[metadata:[]]": cannot restore struct from: slice"#;
    assert_eq!(refused(&raw, &path, STRATEGIC, &json!({"metadata": []}), 422).await, expected);
    let path = format!("{path}?fieldValidation=Ignore");
    let message = refused(&raw, &path, JSON_PATCH, &json!("x"), 400).await;
    assert_eq!(message, "json: cannot unmarshal string into Go value of type jsonpatch.Patch");
    assert_eq!(refused(&raw, &path, MERGE, &json!([]), 400).await, "Invalid JSON Patch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_come_twice_in_yaml_are_named_by_their_lines() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let body =
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata:\n  x: one\n  z: two\n  x: three\n  \"z\": four\n";
    let (made, warnings) = send(raw.post(CONFIG_MAPS, &Value::Null), YAML, body, 201).await;
    assert_eq!(made["data"], json!({"x": "three", "z": "four"}));
    let expected = [7, 8].map(|line| {
        format!("299 - \"line {line}: key \\\"{}\\\" already set in map\"", if line == 7 { "x" } else { "z" })
    });
    assert_eq!(warnings, expected);
    let lines =
        "yaml: unmarshal errors:\n  line 7: key \"x\" already set in map\n  line 8: key \"z\" already set in map";
    let strict = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let (refused, _) = send(raw.post(strict, &Value::Null), YAML, body, 400).await;
    let expected =
        format!("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: {lines}");
    assert_eq!(refused["message"], json!(expected));
    let path = format!("{CONFIG_MAPS}/b?fieldManager=m&fieldValidation=Strict");
    let (refused, _) =
        send(raw.patch(path, APPLY, &Value::Null), APPLY, &body.replace("name: a", "name: b"), 400).await;
    let expected = format!("error strict decoding YAML: error converting YAML to JSON: {lines}");
    assert_eq!(refused["message"], json!(expected));
}

async fn post_yaml(raw: &Raw, body: &str, code: u16) -> (Value, Vec<String>) {
    send(raw.call(Method::POST, CONFIG_MAPS), YAML, body, code).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_is_read_as_kubectl_reads_it() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let head = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
    let data = "data:\n  a: \"quoted\n  text\"\n  b:\t'0o14'\n  c: <<\n  d: |\n    no line break";
    let (made, _) = post_yaml(&raw, &(head("a") + data), 201).await;
    assert_eq!(made["data"], json!({"a": "quoted text", "b": "0o14", "c": "<<", "d": "no line break"}));
    let (made, _) = post_yaml(&raw, &format!("---\n{}data: {{a: b,\nc: d\n}}\n---\n", head("b")), 201).await;
    assert_eq!(made["data"], json!({"a": "b", "c": "d"}));
    // The output is quoted so that it parses to the same value.
    let written = raw.get(format!("{CONFIG_MAPS}/a")).header("accept", YAML).await.expect(200).text();
    assert!(written.contains("  b: \"0o14\"\n  c: \"<<\"\n"), "{written}");
    let unrecognized = "the object provided is unrecognized (must be of type ConfigMap)";
    for (body, problem) in [
        ("", "Object 'Kind' is missing in '' (<empty>)"),
        ("a: \u{1}\n", "yaml: control characters are not allowed (613a20010a)"),
        ("a: [|\n", "yaml: found character that cannot start any token (613a205b7c0a)"),
        ("x: y\na: \"\\/\"\n", "yaml: line 2: found unknown escape character (783a20790a613a20225c2f220a)"),
        ("a: b\n---\nc: d\n", "yaml: line 3: more than one document (613a20620a2d2d2d0a633a20640a)"),
    ] {
        assert_eq!(post_yaml(&raw, body, 400).await.0["message"], format!("{unrecognized}: {problem}"), "{body:?}");
    }
}

/// Upstream converts YAML to JSON with sorted keys before it decodes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_yaml_are_found_in_alphabetical_order() {
    let server = TestServer::start().await;
    let body = "kind: ConfigMap\nimmutable: 5\napiVersion: v1\ndata: 7\nmetadata: {name: a}\n";
    let (refused, _) = send(server.raw().post(CONFIG_MAPS, &Value::Null), YAML, body, 400).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with("number into Go struct field ConfigMap.data of type map[string]string"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_unknown_versions_get_precise_errors() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let begin = "the object provided is unrecognized (must be of type ConfigMap): ";
    let asked =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let no = |found: &str| {
        format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {asked}"
        )
    };
    let deep = "[".repeat(10_001);
    let too_deep = "couldn't get version/kind; json parse error: invalid character '[' exceeded max depth";
    for (form, body, expected) in [
        ("application/json", "[]", format!("{} (5b5d)", no("array"))),
        ("application/json", "1", format!("{} (31)", no("number"))),
        ("application/json", "true", format!("{} (74727565)", no("bool"))),
        (YAML, "a", format!("{} (61)", no("string"))),
        ("application/json", &deep, format!("{too_deep} ({} ...)", "5b".repeat(30))),
        (
            "application/json",
            r#"{"apiVersion":"a/b/v1"}"#,
            r#"unexpected GroupVersion string: a/b/v1 ({"apiVersion":"a/b/v1"})"#.to_owned(),
        ),
    ] {
        let (answer, _) = send(raw.post(CONFIG_MAPS, &Value::Null), form, body, 400).await;
        assert_eq!(answer["message"], format!("{begin}{expected}"), "{body:.20}");
    }
    let (nothing, _) = send(raw.post(CONFIG_MAPS, &Value::Null), "application/json", "null", 422).await;
    let unnamed = "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    assert_eq!(nothing["message"], unnamed, "it is an object that says nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_a_surrogate_pair_becomes_the_replacement_character() {
    let server = TestServer::start().await;
    let body = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"x":"a\ud800b"}}"#;
    let (made, _) = send(server.raw().post(CONFIG_MAPS, &Value::Null), "application/json", body, 201).await;
    assert_eq!(made["data"]["x"], "a\u{fffd}b");
}

/// Operations that each copy the whole object are rejected before they add up. Selectors have a similar limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_patches_and_selectors_is_limited() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let numbers = vec![0; 500_000];
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "a"}, "revision": 1,
        "data": {"a": numbers}});
    raw.post(REVISIONS, &revision).await.expect(201);
    let moves = Value::Array(vec![json!({"op": "move", "from": "/data/a/0", "path": "/data/a/0"}); 9_998]);
    let message = refused(&raw, &format!("{REVISIONS}/a"), JSON_PATCH, &moves, 422).await;
    assert_eq!(message, "the server rejected our request due to an error in our request");
    let many = Value::Array(vec![json!({"op": "test", "path": "/data", "value": {}}); 10_001]);
    let message = refused(&raw, &format!("{REVISIONS}/a"), JSON_PATCH, &many, 413).await;
    let expected = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(message, expected);

    raw.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let mut selectors = String::from("fieldSelector=");
    (0..1_200).for_each(|number| write!(selectors, "metadata.name!%3Dx{number},").unwrap());
    selectors.push_str("&labelSelector=");
    (0..1_200).for_each(|number| write!(selectors, "!k{number},app!%3Dv{number},").unwrap());
    selectors.pop();
    let list = raw.get(format!("{CONFIG_MAPS}?{selectors}")).await.expect(200).json();
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    let list = raw.get(format!("{CONFIG_MAPS}?{selectors},app")).await.expect(200).json();
    assert_eq!(list["items"], json!([]));
}

/// An object with a hundred levels is a hundred times as long when indented. It is sent while it is encoded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_objects_are_indented_without_being_held() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let deep = |levels: usize| (0..levels).fold(json!([]), |inner, _| json!([inner]));
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "deep"}, "revision": 1,
        "data": {"a": vec![deep(100); 160]}});
    let made = raw.post(REVISIONS, &revision).await.expect(201).json();
    let path = format!("{REVISIONS}/deep");
    let pretty = raw.get(format!("{path}?pretty=true")).await.expect(200);
    assert!(pretty.headers.get("content-length").is_none(), "it is not held as a whole");
    assert!(pretty.body.len() > 50 * serde_json::to_vec(&made).unwrap().len());
    assert_eq!(serde_json::from_slice::<Value>(&pretty.body).unwrap(), made);
    let yaml = raw.get(path.as_str()).header("accept", YAML).await.expect(200);
    // YAML has nested lists in one line, so it is short.
    assert!(yaml.body.len() < 100_000, "{} bytes", yaml.body.len());
    let lines = std::str::from_utf8(&yaml.body).unwrap().lines().filter(|line| line.ends_with("- []")).count();
    assert_eq!(lines, 160);
}
