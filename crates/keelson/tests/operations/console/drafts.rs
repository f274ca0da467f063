//! Tests of drafts: they survive tabs, links, reloads and an expired token, the user must confirm before leaving them,
//! and another user never sees them.
//!
//! After each step the tests check the browser's session storage and the stored object.

use keelson_testkit::{Raw, TestServer};
use serde_json::json;

use super::objects::{edit, press_button};
use super::{ADMIN, Lab};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EDITOR: &str = "r/core/v1/configmaps/default/map?tab=edit";
const TEXT: &str = "document.querySelector('.editor .code-editor')?.value";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn stored(raw: &Raw) -> String {
    let map = raw.get(format!("{MAPS}/map")).await.expect(200).json();
    map["data"]["sky"].as_str().unwrap_or_default().to_owned()
}

async fn start() -> Option<Lab> {
    let lab = Lab::start(TestServer::builder()).await?;
    let map = json!({"metadata": {"name": "map"}, "data": {"sky": "blue"}});
    lab.raw().post(MAPS, &map).await.expect(201);
    Some(lab)
}

/// Recreates the account, and returns a token of it.
async fn token_of_new_account(raw: &Raw) -> String {
    let _ = raw.delete(format!("{ACCOUNTS}/ann")).await;
    raw.post(ACCOUNTS, &json!({"metadata": {"name": "ann"}})).await.expect(201);
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = raw.post(format!("{ACCOUNTS}/ann/token"), &asked).await.expect(201).json();
    token["status"]["token"].as_str().unwrap().to_owned()
}

/// Waits until the session storage has the draft.
async fn until_draft_is_stored(lab: &Lab) {
    lab.browser.until("sessionStorage.getItem('keelson.drafts')?.includes('sky: grey')").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_unsaved_text_needs_confirmation_and_keeps_a_draft() {
    let Some(lab) = start().await else { return };
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/configmaps?ns=default").await;
    lab.browser.click("tr[data-name=map] a").await;
    lab.browser.click("#tab-edit:not(:disabled)").await;
    // Without an edit no confirmation is needed.
    lab.browser.until(&format!("{TEXT}?.includes('sky: blue')")).await;
    lab.browser.click("#tab-events").await;
    lab.shows("No events tell of this object.").await;
    lab.browser.click("#tab-edit").await;
    edit(&lab, "sky: blue", "sky: grey").await;

    for way in [
        "document.querySelector('#tab-events').click()",
        "document.querySelector('.crumbs a').click()",
        "history.back()",
    ] {
        lab.browser.value(&format!("void {way}")).await;
        lab.shows("Leave without saving?").await;
        press_button(&lab, "Stay").await;
        lab.browser.until(&format!("document.querySelector('dialog') === null && {TEXT}?.includes('sky: grey')")).await;
        lab.browser.until("location.search === '?tab=edit'").await;
    }
    lab.browser.value("void history.back()").await;
    lab.shows("Leave without saving?").await;
    press_button(&lab, "Leave, and keep the draft").await;
    lab.shows("No events tell of this object.").await;
    lab.browser.click("#tab-edit").await;
    lab.shows("This is your draft of before, which is not saved.").await;
    lab.browser.until(&format!("{TEXT}?.includes('sky: grey')")).await;

    // The draft survives a reload, and is removed when it is saved or discarded.
    until_draft_is_stored(&lab).await;
    lab.open(EDITOR).await;
    lab.shows("This is your draft of before, which is not saved.").await;
    press_button(&lab, "Throw it away").await;
    lab.shows("Throw away what you wrote?").await;
    lab.browser.click("dialog button.danger").await;
    lab.browser
        .until(&format!("{TEXT}?.includes('sky: blue') && sessionStorage.getItem('keelson.drafts') === null"))
        .await;
    edit(&lab, "sky: blue", "sky: grey").await;
    until_draft_is_stored(&lab).await;
    press_button(&lab, "Save").await;
    lab.shows("map is saved").await;
    lab.browser.until("sessionStorage.getItem('keelson.drafts') === null").await;
    assert_eq!(stored(&lab.raw()).await, "grey");

    // The logout removes all drafts.
    edit(&lab, "sky: grey", "sky: black").await;
    lab.press_log_out().await;
    lab.shows("is thrown away when you log out").await;
    press_button(&lab, "Throw it away and log out").await;
    lab.browser.until("document.querySelector('main.login') !== null").await;
    let left = "[sessionStorage.length, document.title, location.pathname + location.search]";
    assert_eq!(lab.browser.value(left).await, json!([0, "keelson", "/console/"]));
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drafts_survive_an_expired_token_for_their_user_only() {
    let Some(lab) = start().await else { return };
    let raw = lab.raw();
    let binding = json!({
        "metadata": {"name": "ann"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "ann", "namespace": "default"}],
    });
    raw.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    lab.log_in(&token_of_new_account(&raw).await).await;
    lab.open(EDITOR).await;
    edit(&lab, "sky: blue", "sky: grey").await;
    let token = token_of_new_account(&raw).await;
    press_button(&lab, "Save").await;
    lab.shows("The server no longer takes your credentials").await;
    lab.shows("stays if you log in as system:serviceaccount:default:ann").await;
    assert_eq!(stored(&raw).await, "blue");
    lab.browser.fill("#token", &token).await;
    lab.browser.press("Enter").await;
    lab.browser.until(&format!("document.querySelector('dialog') === null && {TEXT}?.includes('sky: grey')")).await;
    press_button(&lab, "Save").await;
    lab.shows("map is saved").await;
    assert_eq!(stored(&raw).await, "grey");

    edit(&lab, "sky: grey", "sky: grey or black").await;
    until_draft_is_stored(&lab).await;
    token_of_new_account(&raw).await;
    press_button(&lab, "Save").await;
    lab.shows("The server no longer takes your credentials").await;
    lab.browser.fill("#token", ADMIN).await;
    lab.browser.press("Enter").await;
    lab.browser.until("document.querySelector('.user')?.innerText === 'admin'").await;
    lab.browser.until(&format!("{TEXT}?.includes('sky: grey\\n')")).await;
    assert_eq!(lab.browser.value("sessionStorage.getItem('keelson.drafts')").await, json!(null));
    assert_eq!(lab.browser.value(&format!("{TEXT}.includes('or black')")).await, false);
    lab.ends_without_complaints(&["a status of 401"]).await;
}
