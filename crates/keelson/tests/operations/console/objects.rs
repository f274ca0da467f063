//! Tests of one object in the browser: it is read, edited concurrently with others, scaled and deleted, and its related
//! objects are shown.
//!
//! After each step the tests read the stored object.

use std::time::Duration;

use keelson_server::{Config, Switches};
use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::{ADMIN, Lab};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MERGE: &str = "application/merge-patch+json";
const PAGE: &str = "r/apps/v1/deployments/default/web";

fn deployment() -> Value {
    let container = json!({"name": "main", "image": "nginx:1.27"});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": spec})
}

/// Waits for the editor, and replaces a text in it.
pub(super) async fn edit(lab: &Lab, from: &str, to: &str) {
    let area = "document.querySelector('.editor .code-editor')";
    let is_ready = format!("{area}?.dataset.readOnly === 'false' && {area}.dataset.loaded === 'true'");
    lab.browser.until(&format!("{is_ready} && {area}.value.includes({})", json!(from))).await;
    let changed = format!("{area}.value.replace({}, {})", json!(from), json!(to));
    // Sets the text like a paste; typing a whole object would take long.
    let typed = format!("void ({area}.value = {changed})");
    lab.browser.value(&typed).await;
    lab.browser.until(&format!("{area}.value.includes({})", json!(to))).await;
}

pub(super) async fn press_button(lab: &Lab, text: &str) {
    let button = format!(
        "[...document.querySelectorAll('main button, dialog button')].find(one => one.innerText === {})",
        json!(text)
    );
    lab.browser.until(&format!("{button} !== undefined && !{button}.disabled")).await;
    lab.browser.value(&format!("{button}.click()")).await;
}

async fn stored(lab: &Lab, pointer: &str) -> Value {
    let object = lab.raw().get(format!("{DEPLOYMENTS}/web")).await.expect(200).json();
    object.pointer(pointer).cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_have_a_dry_run_and_conflicts_name_the_managers() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post(format!("{DEPLOYMENTS}?fieldManager=maker"), &deployment()).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open(PAGE).await;
    lab.browser.until("document.querySelector('.yaml .code')?.innerText.includes('image: nginx:1.27')").await;
    assert_eq!(lab.browser.value("document.body.innerText.includes('managedFields')").await, false);

    // A dry run shows the result, and writes nothing.
    lab.browser.until("document.querySelector('.actions button.danger:not(:disabled)') !== null").await;
    lab.browser.press("e").await;
    edit(&lab, "replicas: 3", "replicas: 7").await;
    press_button(&lab, "Show what would change").await;
    let added = "[...document.querySelectorAll('.diff .new')].some(line => line.innerText.includes('replicas: 7'))";
    lab.browser.until(added).await;
    assert_eq!(stored(&lab, "/spec/replicas").await, 3);

    // Another client writes first.
    let other = json!({"spec": {"replicas": 9, "paused": true}});
    raw.patch(format!("{DEPLOYMENTS}/web?fieldManager=autopilot"), MERGE, &other).await.expect(200);
    press_button(&lab, "Save").await;
    let conflicts = "document.querySelector('.conflicts')?.innerText";
    lab.browser.until(&format!("{conflicts}?.includes('.spec.replicas') && {conflicts}.includes('autopilot')")).await;
    press_button(&lab, "Take their changes over, and keep mine").await;
    edit(&lab, "replicas: 7", "replicas: 8").await;
    press_button(&lab, "Save").await;
    lab.shows("web is saved").await;
    assert_eq!((stored(&lab, "/spec/replicas").await, stored(&lab, "/spec/paused").await), (json!(8), json!(true)));

    // Server-side apply names the owner, and takes the field over only if forced.
    lab.browser.click("input[value=apply]").await;
    edit(&lab, "image: nginx:1.27", "image: nginx:1.28").await;
    press_button(&lab, "Save").await;
    lab.browser.until(&format!("{conflicts}?.includes('.image') && {conflicts}.includes('maker')")).await;
    assert_eq!(stored(&lab, "/spec/template/spec/containers/0/image").await, "nginx:1.27");
    press_button(&lab, "Take the fields over").await;
    // The page says nothing new at the end of the write, so the store is read until it has it.
    let image = async || stored(&lab, "/spec/template/spec/containers/0/image").await;
    let taken = async {
        while image().await != "nginx:1.28" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), taken).await.expect("the fields are taken over");
    lab.browser.until("document.querySelector('.problem') === null").await;
    lab.ends_without_complaints(&["a status of 409"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_scaled_its_dependents_are_found_and_it_is_deleted() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    let made = raw.post(DEPLOYMENTS, &deployment()).await.expect(201).json();
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": made["metadata"]["uid"]});
    let map = json!({"metadata": {"name": "belongs", "ownerReferences": [owner]}});
    raw.post("/api/v1/namespaces/default/configmaps", &map).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open(PAGE).await;
    lab.browser.until("document.querySelectorAll('.actions button:not(:disabled)').length === 3").await;
    scale_with_care(&lab).await;
    // The page shows the written state without a reload.
    lab.browser.until("document.querySelector('.yaml .code')?.innerText.includes('replicas: 5')").await;

    lab.browser.press("R").await;
    lab.browser.until("document.querySelector('.members a')?.innerText === 'belongs'").await;
    lab.browser.click(".members a").await;
    lab.shows("Deployment web").await;
    lab.browser.click(".summary dd a").await;

    lab.browser.until("document.querySelector('.actions button.danger:not(:disabled)') !== null").await;
    lab.browser.press("D").await;
    lab.shows("This can't be undone.").await;
    assert_eq!(lab.browser.value("document.activeElement.innerText").await, "Keep it");
    lab.browser.click("dialog button.danger").await;
    lab.shows("Nothing here.").await;
    raw.get(format!("{DEPLOYMENTS}/web")).await.expect(404);
    lab.ends_without_complaints(&[]).await;
}

/// Scales the deployment from 3 to 5: the typed text stays in the field, invalid numbers are rejected, and 0 needs a
/// confirmation.
async fn scale_with_care(lab: &Lab) {
    let field = "document.querySelector('dialog input')";
    let button = "document.querySelector('dialog button[type=submit]')";
    lab.browser.press("s").await;
    lab.browser.until(&format!("{field}?.value === '3' && document.activeElement === {field}")).await;
    for text in ["", "-1", "1.5", "1e3", "2147483648"] {
        lab.browser.fill("dialog input", text).await;
        lab.browser.until(&format!("{field}.value === {} && {button}.disabled", json!(text))).await;
        lab.browser.press("Enter").await;
        lab.shows("A whole number from 0 to 2,147,483,647 is wanted.").await;
    }
    lab.browser.fill("dialog input", "0").await;
    lab.browser.until(&format!("!{button}.disabled")).await;
    lab.browser.press("Enter").await;
    lab.shows("With 0 replicas nothing of web runs.").await;
    assert_eq!(stored(lab, "/spec/replicas").await, 3);
    lab.browser.fill("dialog input", "5").await;
    lab.browser.press("Enter").await;
    lab.shows("web is scaled to 5").await;
    assert_eq!(stored(lab, "/spec/replicas").await, 5);
    lab.browser.press("s").await;
    lab.browser.until(&format!("{field}?.value === '5'")).await;
    lab.browser.fill("dialog input", "0").await;
    lab.browser.press("Enter").await;
    lab.browser.until(&format!("{button}?.innerText === 'Scale to 0'")).await;
    lab.browser.press("Enter").await;
    lab.shows("web is scaled to 0").await;
    assert_eq!(stored(lab, "/spec/replicas").await, 0);
    let again = json!({"spec": {"replicas": 5}});
    lab.raw().patch(format!("{DEPLOYMENTS}/web"), MERGE, &again).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_folds_and_the_events_of_an_object_are_shown() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    let made = raw.post(DEPLOYMENTS, &deployment()).await.expect(201).json();
    lab.log_in(ADMIN).await;
    lab.open(PAGE).await;
    let code = "document.querySelector('.yaml .code')?.innerText";
    lab.browser.until(&format!("{code}?.includes('image: nginx:1.27')")).await;

    // The children of a key are folded and unfolded with it.
    let template = "document.querySelector('.fold[aria-label$=\" template\"]')";
    assert_eq!(lab.browser.value(&format!("{template}.ariaExpanded")).await, "true");
    lab.browser.value(&format!("{template}.focus()")).await;
    lab.browser.press("Enter").await;
    lab.browser.until(&format!("{template}.ariaExpanded === 'false' && !{code}.includes('image:')")).await;
    lab.browser.until(&format!("/template:.*… \\d+ lines/.test({code}) && {code}.includes('replicas: 3')")).await;
    lab.browser.press("Enter").await;
    lab.browser.until(&format!("{template}.ariaExpanded === 'true' && {code}.includes('image: nginx:1.27')")).await;
    press_button(&lab, "Fold").await;
    lab.browser.until(&format!("!{code}.includes('replicas: 3') && {code}.includes('spec:')")).await;
    press_button(&lab, "Unfold").await;
    lab.browser.until(&format!("{code}.includes('replicas: 3')")).await;

    let event = |name: &str, message: &str| {
        let about = json!({"kind": "Deployment", "apiVersion": "apps/v1", "namespace": "default", "name": "web",
            "uid": made["metadata"]["uid"]});
        json!({"metadata": {"name": name}, "involvedObject": about, "reason": "Tested", "type": "Normal", "message": message})
    };
    let events = "/api/v1/namespaces/default/events";
    lab.browser.press("v").await;
    lab.shows("No events tell of this object.").await;
    raw.post(events, &event("web.1", "it was looked at")).await.expect(201);
    lab.shows("it was looked at").await;
    let mut of_another = event("other.1", "it was left alone");
    of_another["involvedObject"]["uid"] = json!("another");
    raw.post(events, &of_another).await.expect(201);
    raw.post(events, &event("web.2", "it was looked at again")).await.expect(201);
    lab.shows("it was looked at again").await;
    assert_eq!(lab.browser.value("document.body.innerText.includes('it was left alone')").await, false);
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_versions_and_migrations_are_shown_with_how_far_they_are() {
    let all = ["*", "-root-ca-certificate-publisher-controller", "-serviceaccount-controller"];
    let migrating = |config: &mut Config| config.controllers = Switches::parse(all).expect("names of controllers");
    let Some(lab) = Lab::start(TestServer::builder().configure(migrating)).await else { return };
    let raw = lab.raw();
    for number in 0..3 {
        raw.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": format!("map-{number}")}}))
            .await
            .expect(201);
    }
    lab.log_in(ADMIN).await;
    lab.open("storage").await;
    lab.browser.until("document.querySelector('tbody tr') !== null").await;
    // One of many resources, which all servers store in one version.
    let rows = "[...document.querySelectorAll('.storage table:last-of-type tbody tr')]";
    lab.browser.until(&format!("{rows}.length > 20")).await;
    lab.browser.fill(".storage input[type=search]", "apps.deployments").await;
    lab.browser.until(&format!("{rows}.length === 1 && {rows}[0].innerText.includes('apps/v1')")).await;

    let migration =
        json!({"metadata": {"name": "maps"}, "spec": {"resource": {"group": "", "resource": "configmaps"}}});
    let migrations = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
    raw.post(migrations, &migration).await.expect(201);
    let row =
        "[...document.querySelectorAll('.storage tbody tr')].find(row => row.innerText.includes('maps'))?.innerText";
    lab.browser.until(&format!("{row}?.includes('configmaps') && {row}.includes('Succeeded')")).await;
    let progress =
        json!({"metadata": {"annotations": {"keelson.io/objects-done": "3", "keelson.io/objects-total": "5"}}});
    raw.patch(format!("{migrations}/maps"), MERGE, &progress).await.expect(200);
    let bar = "document.querySelector('.storage tbody progress')";
    lab.browser.until(&format!("{row}.includes('3 of 5') && {bar}.value === 3 && {bar}.max === 5")).await;
    lab.ends_without_complaints(&[]).await;
}
