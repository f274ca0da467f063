//! Tests of all forms of credentials, and of the console's pages for each: errors in plain words, and no forbidden
//! data.
//!
//! The files of the console are public. Tests without a browser check this.

use keelson_testkit::TestServer;
use serde_json::json;

use super::{ADMIN, Lab};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_login_accepts_all_credentials_and_explains_unusable_ones() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    lab.open("").await;
    lab.browser.fill("#token", "no-such-token").await;
    lab.browser.press("Enter").await;
    lab.shows("The server does not know this token, or it has expired.").await;

    // The kubeconfig of the data directory has a certificate, which a page can't use.
    let paste = |text: &str| {
        let area = "document.querySelector('#token')";
        format!("({area}.value = {}, {area}.dispatchEvent(new Event('input', {{bubbles: true}})))", json!(text))
    };
    let file = std::fs::read_to_string(lab.server.kubeconfig()).unwrap();
    lab.browser.value(&paste(&file)).await;
    lab.browser.click("button[type=submit]").await;
    lab.shows("by a certificate and its key, which a page can't use by itself").await;
    lab.browser.value(&paste("kind: Config\nusers: [{name: a, user: {exec: {command: helper}}}]\n")).await;
    lab.browser.click("button[type=submit]").await;
    lab.shows("It gets its credentials from helper, which a page can't start.").await;
    lab.browser.value(&paste(&format!("kind: Config\nusers: [{{name: a, user: {{token: {ADMIN}}}}}]\n"))).await;
    lab.browser.click("button[type=submit]").await;
    lab.browser.until("document.querySelector('.user')?.innerText === 'admin'").await;

    // The session survives a reload, but is not kept elsewhere.
    lab.open("r/core/v1/namespaces").await;
    lab.browser.until("document.querySelector('tbody tr') !== null").await;
    let kept = "[Object.values(localStorage).join().includes('admin-token'), sessionStorage.length, document.cookie]";
    assert_eq!(lab.browser.value(kept).await, json!([false, 1, ""]));
    lab.press_log_out().await;
    lab.browser.until("document.querySelector('#token') !== null").await;
    assert_eq!(lab.browser.value("sessionStorage.length").await, 0);
    // Recent pages are gone too.
    assert_eq!(lab.browser.value("Object.values(localStorage).join().includes('/console/')").await, false);
    lab.ends_without_complaints(&["a status of 401"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_shows_permitted_objects_and_errors_for_others() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.expect(201);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    raw.post(format!("{RBAC}/roles"), &json!({"metadata": {"name": "read"}, "rules": rules})).await.expect(201);
    let binding = json!({
        "metadata": {"name": "read"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "read"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}],
    });
    raw.post(format!("{RBAC}/rolebindings"), &binding).await.expect(201);
    let map = json!({"metadata": {"name": "seen"}});
    raw.post("/api/v1/namespaces/shop/configmaps", &map).await.expect(201);

    lab.log_in("reader-token").await;
    lab.open("r/core/v1/configmaps").await;
    lab.shows("You may not do this").await;
    lab.shows("cannot list resource \"configmaps\" in API group \"\" at the cluster scope").await;
    // The page shows one namespace, as the text says.
    lab.browser.press("N").await;
    lab.browser.press("shop").await;
    lab.browser.press("Enter").await;
    lab.rows(&["seen"]).await;
    let listed = "[...document.querySelectorAll('.sidebar details a')].map(link => link.innerText).join()";
    lab.browser.until(&format!("{listed} === 'ConfigMaps'")).await;

    // The button of a forbidden action is disabled.
    lab.open("r/core/v1/configmaps/shop/seen").await;
    lab.browser.until("document.querySelector('.yaml .code')?.innerText.includes('name: seen')").await;
    lab.browser.until("document.querySelector('.actions button.danger')?.title === 'You may not do this'").await;
    lab.browser.click("#tab-edit").await;
    lab.shows("You may not change this object.").await;
    lab.open("server").await;
    lab.shows("cannot get path \"/metrics\"").await;
    lab.ends_without_complaints(&["a status of 403"]).await;
}

#[tokio::test]
async fn console_files_are_public_and_can_be_disabled() {
    let server = TestServer::start().await;
    let anybody = server.anonymous();
    let page = anybody.get("/console/").await.expect(200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.header("content-security-policy").starts_with("default-src 'none';"));
    assert_eq!(anybody.get("/console").await.status, 308);
    assert_eq!(anybody.get("/console/r/core/v1/pods").await.expect(200).text(), page.text());
    // The server authorizes requests of the page like all others.
    anybody.get("/api/v1/pods").await.expect(403);
    // A request with wrong credentials also gets the login page.
    anybody.get("/console/").header("authorization", "Bearer wrong").await.expect(200);

    let without = TestServer::builder().configure(|config| config.console = false).start().await;
    without.anonymous().get("/console/").await.expect(403);
    without.raw().get("/console/").await.expect(404);
}
