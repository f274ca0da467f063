//! Tests of server-side apply and patches of built-in kinds: duplicate list items, whole numbers written as floats, and
//! objects that become too large with their managedFields.

use http::Method;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Map, Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const YAML: &str = "application/yaml";

fn deployment(env: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i", "env": env}]},
            },
        },
    })
}

/// The fields of a variable that a manager owns; null if there are none.
fn variable<'a>(object: &'a Value, manager: &str, name: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let Some(entry) = entries.iter().find(|entry| entry["manager"] == manager) else { return &Value::Null };
    let containers = &entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"];
    &containers["k:{\"name\":\"c\"}"]["f:env"][format!("k:{{\"name\":\"{name}\"}}")]
}

async fn patch(raw: &Raw, path: &str, form: &str, body: &str, code: u16) -> Value {
    let call = raw.call(Method::PATCH, path).header("content-type", form);
    call.body(body.to_owned()).await.expect(code).json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_an_update_repeats_is_owned_by_it() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let one = format!("{DEPLOYMENTS}/web");
    let (by_a, by_up) = (format!("{one}?fieldManager=a"), format!("{one}?fieldManager=up"));
    let wanted = deployment(&json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]));
    let mut live = raw.patch(&*by_a, APPLY, &wanted).await.expect(201).json();
    let env = "/spec/template/spec/containers/0/env";
    let with = |live: &mut Value, items: Value| *live.pointer_mut(env).unwrap() = items;

    with(&mut live, json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]));
    let mut twice = raw.put(&*by_up, &live).await.expect(200).json();
    assert_eq!((variable(&twice, "up", "A"), variable(&twice, "a", "A")), (&json!({}), &Value::Null));
    assert_eq!(variable(&twice, "a", "B"), &json!({".": {}, "f:name": {}, "f:value": {}}));
    let refused = raw.patch(&*by_a, APPLY, &wanted).await.expect(409).json();
    let conflict = "Apply failed with 1 conflict: conflict with \"up\" using apps/v1: \
                    .spec.template.spec.containers[name=\"c\"].env[name=\"A\"]";
    assert_eq!(refused["message"], conflict);

    with(&mut twice, json!([{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]));
    let once = raw.put(format!("{one}?fieldManager=down"), &twice).await.expect(200).json();
    assert_eq!(variable(&once, "down", "A"), &json!({".": {}, "f:name": {}, "f:value": {}}));
    assert_eq!(variable(&once, "up", "A"), &Value::Null);
    let forced = raw.patch(format!("{by_a}&force=true"), APPLY, &wanted).await.expect(200).json();
    assert_eq!(forced.pointer(env), wanted.pointer(env));
    assert_eq!(variable(&forced, "down", "A"), &json!({".": {}, "f:name": {}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_number_is_one_however_it_is_written() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let one = format!("{DEPLOYMENTS}/web");
    let by_a = format!("{one}?fieldManager=a&force=true");
    raw.post(DEPLOYMENTS, &deployment(&json!([]))).await.expect(201);
    for (text, number) in [("3.0", 3), ("4e0", 4), ("1e2", 100), ("2.5e1", 25), ("0.7E1", 7)] {
        let change = format!(
            r#"{{"spec":{{"replicas":{text},"template":{{"spec":{{"containers":[{{"name":"c","image":"i",
            "ports":[{{"containerPort":8e1,"hostPort":80.0}}],"livenessProbe":{{"tcpSocket":{{"port":8.0e1}}}}}}]}}}}}}}}"#
        );
        let patched = patch(&raw, &one, STRATEGIC, &change, 200).await;
        assert_eq!(patched["spec"]["replicas"], number, "{text}");
        let container = &patched["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
        assert_eq!(container["livenessProbe"]["tcpSocket"]["port"], 80);
        patch(&raw, &one, STRATEGIC, r#"{"spec":{"replicas":1}}"#, 200).await;

        let mut whole = deployment(&json!([]));
        whole["spec"]["replicas"] = json!("REPLICAS");
        let whole = whole.to_string().replace("\"REPLICAS\"", text);
        assert_eq!(patch(&raw, &by_a, APPLY, &whole, 200).await["spec"]["replicas"], number, "{text}");
        let yaml =
            format!("apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: {text}\n");
        assert_eq!(
            patch(&raw, &by_a.replace("=a", "=b"), APPLY, &yaml, 200).await["spec"]["replicas"],
            number,
            "{text}"
        );
        patch(&raw, &one, STRATEGIC, r#"{"spec":{"replicas":1}}"#, 200).await;
        // These values are decoded by the type of the field.
        patch(&raw, &one, MERGE, &format!(r#"{{"spec":{{"replicas":{text}}}}}"#), 422).await;
        let replace = format!(r#"[{{"op":"replace","path":"/spec/replicas","value":{text}}}]"#);
        patch(&raw, &one, JSON_PATCH, &replace, 422).await;
        raw.call(Method::POST, DEPLOYMENTS)
            .header("content-type", "application/json")
            .body(whole.clone())
            .await
            .expect(400);
        let body = raw.call(Method::POST, format!("{DEPLOYMENTS}?dryRun=All")).header("content-type", YAML);
        let body = body.body(whole.replace("\"web\"", "web2"));
        assert_eq!(body.await.expect(201).json()["spec"]["replicas"], number, "{text}");
    }
    for fraction in ["3.5", "1e-1", "1e11"] {
        patch(&raw, &one, STRATEGIC, &format!(r#"{{"spec":{{"replicas":{fraction}}}}}"#), 422).await;
        let mut whole = deployment(&json!([]));
        whole["spec"]["replicas"] = json!("REPLICAS");
        patch(&raw, &by_a, APPLY, &whole.to_string().replace("\"REPLICAS\"", fraction), 500).await;
    }
}

/// A ConfigMap of 860 kB. Its managedFields make it larger than the store allows.
fn large(name: &str) -> Value {
    let data: Map<String, Value> = (0..9_999).map(|at| (format!("key-{at:060}"), json!("0123456789abcdef"))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_too_large_with_managed_fields_are_stored_without_them() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let one = format!("{CONFIG_MAPS}/large");
    let made = raw.post(CONFIG_MAPS, &large("large")).await.expect(201).json();
    assert_eq!(made["metadata"]["managedFields"], Value::Null);
    let read = raw.get(&*one).await.expect(200).json();
    assert_eq!((&read["metadata"], read["data"].as_object().unwrap().len()), (&made["metadata"], 9_999));
    // An object without managedFields gets none from a patch, but an apply would add an entry for all fields.
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = raw.patch(&*one, MERGE, &labelled).await.expect(200).json();
    assert_eq!(patched["metadata"]["managedFields"], Value::Null);
    let applied = raw.patch(format!("{one}?fieldManager=m"), APPLY, &large("large")).await.expect(413).json();
    assert!(applied["message"].as_str().unwrap().contains("--max-object-bytes"), "{applied}");

    // An object that grows until its managedFields no longer fit.
    let mut small = large("grows");
    let data = small["data"].as_object_mut().unwrap();
    let removed: Vec<_> = data.keys().take(300).cloned().collect();
    removed.iter().for_each(|key| drop(data.remove(key)));
    let made = raw.post(CONFIG_MAPS, &small).await.expect(201).json();
    assert_eq!(made["metadata"]["managedFields"].as_array().map(Vec::len), Some(1));
    let grown = raw.put(format!("{CONFIG_MAPS}/grows"), &large("grows")).await.expect(200).json();
    assert_eq!((&grown["metadata"]["managedFields"], grown["data"].as_object().unwrap().len()), (&Value::Null, 9_999));
    let revision = &grown["metadata"]["resourceVersion"];
    let again = raw.put(format!("{CONFIG_MAPS}/grows"), &large("grows")).await.expect(200).json();
    assert_eq!(&again["metadata"]["resourceVersion"], revision, "what changes nothing writes nothing");
}
