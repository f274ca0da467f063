//! Tests of edits that are concurrent with other clients' edits: no value is misplaced, lost or rounded, and no foreign
//! field is taken over.
//!
//! After each step the tests read the stored object.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::objects::{edit, press_button};
use super::{ADMIN, Lab};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const EDITOR: &str = "r/apps/v1/deployments/default/web?tab=edit";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/x.example.org/v1/namespaces/default/things";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const TEXT: &str = "document.querySelector('.editor .code-editor')?.value";
/// A number that JavaScript's numbers cannot represent exactly.
const LARGE: &str = "9007199254740993";

fn deployment() -> Value {
    let containers = json!([{"name": "a", "image": "img/a:1"}, {"name": "b", "image": "img/b:1"}]);
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

async fn images(raw: &Raw) -> Vec<String> {
    let stored = raw.get(DEPLOYMENT).await.expect(200).json();
    let containers = stored.pointer("/spec/template/spec/containers").and_then(Value::as_array).cloned();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    containers.unwrap_or_default().iter().map(|one| format!("{} {}", text(one, "name"), text(one, "image"))).collect()
}

/// Defines `things` with an arbitrary spec and these columns.
async fn define_things(raw: &Raw, columns: Value) {
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": schema, "additionalPrinterColumns": columns});
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing"});
    let definition = json!({
        "metadata": {"name": "things.x.example.org"},
        "spec": {"group": "x.example.org", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    raw.post(DEFINITIONS, &definition).await.expect(201);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while raw.get(THINGS).await.status != 200 {
        assert!(std::time::Instant::now() < deadline, "things are not served");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_stays_with_its_container_or_is_refused() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post(DEPLOYMENTS, &deployment()).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open(EDITOR).await;
    edit(&lab, "img/b:1", "img/b:2").await;
    let sidecar = json!([{"op": "add", "path": "/spec/template/spec/containers/0", "value": {"name": "sidecar", "image": "img/s:1"}}]);
    raw.patch(DEPLOYMENT, JSON_PATCH, &sidecar).await.expect(200);
    press_button(&lab, "Save").await;
    lab.shows(".spec.template.spec.containers[name=sidecar]").await;
    press_button(&lab, "Take their changes over, and keep mine").await;
    lab.browser.until(&format!("{TEXT}.includes('img/s:1')")).await;
    press_button(&lab, "Save").await;
    lab.shows("web is saved").await;
    assert_eq!(images(&raw).await, ["sidecar img/s:1", "a img/a:1", "b img/b:2"]);

    // The edited container was deleted: the page shows its path, and keeps the text until the user decides.
    lab.browser.until(&format!("{TEXT}.includes('img/s:1')")).await;
    edit(&lab, "img/a:1", "img/a:2").await;
    let gone = json!([{"op": "remove", "path": "/spec/template/spec/containers/1"}]);
    raw.patch(DEPLOYMENT, JSON_PATCH, &gone).await.expect(200);
    press_button(&lab, "Save").await;
    press_button(&lab, "Take their changes over, and keep mine").await;
    lab.shows("These changes of yours have no place in what others have made of the object").await;
    lab.shows(".spec.template.spec.containers[name=a] others have removed it").await;
    assert_eq!(lab.browser.value(&format!("{TEXT}.includes('img/a:2')")).await, true);
    press_button(&lab, "Leave these changes of mine out").await;
    lab.browser.until(&format!("!{TEXT}.includes('img/a:2')")).await;
    assert_eq!(images(&raw).await, ["sidecar img/s:1", "b img/b:2"]);
    lab.ends_without_complaints(&["a status of 409"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_apply_owns_only_the_changed_fields() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    let applied = async |replicas: u32, code: u16| {
        let mut object = deployment();
        object["spec"]["replicas"] = json!(replicas);
        raw.patch(format!("{DEPLOYMENT}?fieldManager=gitops"), APPLY, &object).await.expect(code);
    };
    applied(2, 201).await;
    lab.log_in(ADMIN).await;
    lab.open(EDITOR).await;
    lab.browser.click("input[value=apply]").await;
    edit(&lab, "metadata:\n", "metadata:\n  annotations:\n    looked-at: \"yes\"\n").await;
    press_button(&lab, "Save").await;
    lab.shows("web is saved").await;
    edit(&lab, "img/b:1", "img/b:2").await;
    press_button(&lab, "Save").await;
    // Another manager owns the image: the apply must be forced, and the conflict shows the container's name.
    lab.browser.until("document.querySelector('.conflicts td:last-child')?.innerText === 'img/b:2'").await;
    press_button(&lab, "Leave these fields to them").await;
    lab.browser.until(&format!("{TEXT}.includes('img/b:1') && !{TEXT}.includes('img/b:2')")).await;

    applied(5, 200).await;
    let stored = raw.get(DEPLOYMENT).await.expect(200).json();
    assert_eq!(
        (&stored["spec"]["replicas"], &stored["metadata"]["annotations"]["looked-at"]),
        (&json!(5), &json!("yes"))
    );
    let owned = stored["metadata"]["managedFields"].as_array().unwrap().iter();
    let owned = owned.filter(|one| one["manager"] == "keelson-console").map(|one| one["fieldsV1"].clone());
    let expected = json!({"f:metadata": {"f:annotations": {"f:looked-at": {}}}});
    assert_eq!(owned.collect::<Vec<_>>(), [expected]);

    // An apply cannot remove a field that others own.
    lab.browser.value("location.reload()").await;
    lab.browser.until(&format!("{TEXT}?.includes('replicas: 5')")).await;
    lab.browser.click("input[value=apply]").await;
    edit(&lab, "  replicas: 5\n", "").await;
    press_button(&lab, "Save").await;
    lab.shows(".spec.replicas an apply removes only fields that it has set before").await;
    lab.ends_without_complaints(&["a status of 409"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_keep_their_digits_wherever_they_are_shown_and_saved() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    define_things(&raw, json!([{"name": "Large", "type": "integer", "jsonPath": ".spec.large"}])).await;
    let large: u64 = LARGE.parse().unwrap();
    let kept = json!({"large": large, "list": [{"large": -9_007_199_254_740_993_i64}], "note": "first"});
    raw.post(
        THINGS,
        &json!({"apiVersion": "x.example.org/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": kept}),
    )
    .await
    .expect(201);
    lab.log_in(ADMIN).await;
    lab.open_list("r/x.example.org/v1/things").await;
    lab.browser.until(&format!("document.querySelector('tbody tr').innerText.includes('{LARGE}')")).await;
    lab.open("r/x.example.org/v1/things/default/one").await;
    lab.browser.until(&format!("document.querySelector('.yaml .code')?.innerText.includes('large: {LARGE}')")).await;
    lab.open("r/x.example.org/v1/things/default/one?tab=edit").await;
    lab.browser.until(&format!("{TEXT}?.includes('large: {LARGE}') && {TEXT}.includes('large: -{LARGE}')")).await;
    edit(&lab, "note: first", "note: second\n  float: 1.50").await;
    press_button(&lab, "Show what would change").await;
    let added = "[...document.querySelectorAll('.diff .new')].some(line => line.innerText.includes('float: 1.5'))";
    lab.browser.until(added).await;
    assert_eq!(lab.browser.value("document.querySelector('.diff').innerText.includes('740992')").await, false);
    press_button(&lab, "Save").await;
    lab.shows("one is saved").await;
    let stored = raw.get(format!("{THINGS}/one")).await.expect(200).text();
    assert_eq!(stored.matches(LARGE).count(), 2, "{stored}");
    assert!(stored.contains("second"), "{stored}");
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_objects_inherit_are_names_like_any_other() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    let filter = ".spec.x[?(@.t==\"a\")].v";
    let columns = ["constructor", "toString", "valueOf", "__proto__"]
        .map(|name| json!({"name": name, "type": "string", "jsonPath": filter}));
    define_things(&raw, json!(columns)).await;
    let spec = json!({"x": [{"t": "a", "v": "cell"}], "constructor": "kept", "toString": {"a": 1}});
    let thing = json!({"apiVersion": "x.example.org/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": spec});
    raw.post(THINGS, &thing).await.expect(201);
    let map = json!({"metadata": {"name": "bystander"}});
    raw.post("/api/v1/namespaces/default/configmaps", &map).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open_list("r/x.example.org/v1/things").await;
    lab.browser.until("document.querySelector('tbody tr').innerText.split('cell').length === 5").await;

    lab.open("r/x.example.org/v1/things/default/one?tab=edit").await;
    edit(&lab, "spec:\n", "spec:\n  __proto__:\n    method: DELETE\n").await;
    raw.patch(format!("{THINGS}/one"), MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    press_button(&lab, "Take the changes over into the text").await;
    lab.browser.until(&format!("{TEXT}.includes('a: b') && {TEXT}.includes('method: DELETE')")).await;
    assert_eq!(lab.browser.value("[({}).method ?? '', Object.isFrozen(Object.prototype)]").await, json!(["", true]));
    press_button(&lab, "Save").await;
    lab.shows("one is saved").await;
    // Pages that are opened afterwards only read.
    lab.browser.value("document.querySelector('.brand').click()").await;
    lab.browser.until("document.querySelector('.home') !== null").await;
    lab.open_list("r/core/v1/configmaps?ns=default").await;
    lab.open("r/core/v1/configmaps/default/bystander?tab=history").await;
    lab.shows("as far as the history goes").await;
    raw.get("/api/v1/namespaces/default/configmaps/bystander").await.expect(200);
    let stored = raw.get(format!("{THINGS}/one")).await.expect(200).json();
    let expected = json!({"x": [{"t": "a", "v": "cell"}], "constructor": "kept", "toString": {"a": 1}, "__proto__": {"method": "DELETE"}});
    assert_eq!(stored["spec"], expected);
    lab.ends_without_complaints(&["a status of 410"]).await;
}
