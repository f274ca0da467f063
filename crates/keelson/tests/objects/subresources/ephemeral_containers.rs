//! Tests of `pods/ephemeralcontainers`, which `kubectl debug` writes.
//!
//! Containers can be added but not changed, and no other field of the pod changes.

use serde_json::{Value, json};

use super::{Lab, MERGE, NAMESPACE, STRATEGIC, check};

const PATH: &str = "pods/p/ephemeralcontainers";

fn debugger(name: &str, image: &str) -> Value {
    json!({"name": name, "image": image, "targetContainerName": "main"})
}

#[tokio::test]
async fn a_debugger_is_added_and_nothing_else_changes() {
    let lab = Lab::start().await;
    let made = lab.pod("p", json!({})).await;
    let path = format!("{NAMESPACE}/{PATH}");
    let patch = json!({"metadata": {"labels": {"sneaked": "in"}},
        "spec": {"activeDeadlineSeconds": 5, "ephemeralContainers": [debugger("debug", "tool")]}});
    let patched = lab.raw.patch(path.clone(), STRATEGIC, &patch).await.expect(200).json();
    let mut expected = made["spec"].clone();
    let added = &patched["spec"]["ephemeralContainers"];
    assert_eq!((&added[0]["name"], &added[0]["image"]), (&json!("debug"), &json!("tool")));
    expected["ephemeralContainers"] = added.clone();
    assert_eq!(patched["spec"], expected);
    assert_eq!(patched["metadata"]["labels"], made["metadata"]["labels"]);
    assert_eq!(patched["metadata"]["generation"], 2);
    assert_eq!(lab.get(PATH).await, patched);
    let mut next = patched.clone();
    let more = next["spec"]["ephemeralContainers"].as_array_mut().unwrap();
    more.push(debugger("more", "tool"));
    let put = lab.raw.put(path, &next).await.expect(200).json();
    assert_eq!(put["spec"]["ephemeralContainers"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn existing_ephemeral_containers_are_immutable() {
    let lab = Lab::start().await;
    lab.pod("p", json!({})).await;
    let path = format!("{NAMESPACE}/{PATH}");
    let set = |containers: Value| {
        let patch = json!({"spec": {"ephemeralContainers": containers}});
        lab.raw.patch(path.clone(), MERGE, &patch)
    };
    set(json!([debugger("debug", "tool")])).await.expect(200);
    let fault = |what: &str| {
        format!(
            "Pod \"p\" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not \
             be {what}\n"
        )
    };
    check(&set(json!([])).await, 422, "Invalid", &fault("removed"));
    let changed = fault("changed") + "- image: \"tool\"\n+ image: \"other\"\n";
    check(&set(json!([debugger("debug", "other")])).await, 422, "Invalid", &changed);
}
