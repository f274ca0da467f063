//! Tests of the console as a place to work: namespaces, the search over all objects, and the first page.
//!
//! Also actions on one and on many objects, objects from YAML, columns and kept views.

use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::objects::press_button;
use super::{ADMIN, Lab};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop";
const MERGE: &str = "application/merge-patch+json";

fn deployment(name: &str) -> Value {
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "nginx:1.27"}]}});
    json!({"metadata": {"name": name}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}})
}

async fn choose(lab: &Lab, menu: &str, item: &str) {
    lab.browser.click(&format!("{menu} [aria-haspopup=menu]")).await;
    let item = format!(
        "[...document.querySelectorAll('[role^=menuitem]')].find(one => one.innerText.trim() === {})",
        json!(item)
    );
    lab.browser.until(&format!("{item} !== undefined")).await;
    lab.browser.value(&format!("{item}.click()")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_namespace_stays_completes_and_takes_several() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    for namespace in ["team-a", "team-b", "other"] {
        raw.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.expect(201);
        let map = json!({"metadata": {"name": format!("of-{namespace}")}});
        raw.post(format!("/api/v1/namespaces/{namespace}/configmaps"), &map).await.expect(201);
    }
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/configmaps").await;
    // A part of a name completes to the first that begins with it.
    lab.browser.press("N").await;
    lab.browser.until("document.querySelector('.chooser li') !== null").await;
    lab.browser.press("team").await;
    lab.browser.press("Enter").await;
    lab.rows(&["of-team-a"]).await;
    // The namespace stays selected over an object and another resource.
    lab.open("r/core/v1/configmaps/team-a/of-team-a").await;
    lab.browser.until("document.querySelector('.yaml .code') !== null").await;
    lab.browser
        .value("[...document.querySelectorAll('.sidebar a')].find(one => one.innerText === 'Secrets').click()")
        .await;
    lab.browser.until("location.search === '?ns=team-a'").await;
    assert_eq!(lab.browser.value("document.querySelector('.switcher .chosen').innerText").await, "team-a");
    // Several are one list.
    lab.open_list("r/core/v1/configmaps?ns=team-a").await;
    lab.browser.press("N").await;
    let other = "[...document.querySelectorAll('.chooser li')].find(one => one.innerText.includes('other'))";
    lab.browser.until(&format!("{other} !== undefined")).await;
    lab.browser.value(&format!("{other}.querySelector('.mark').click()")).await;
    lab.browser.until("location.search === '?ns=team-a%2Cother'").await;
    lab.browser.press("Escape").await;
    let names = "[...document.querySelectorAll('tbody tr')].map(row => row.dataset.name).filter(name => name.startsWith('of-')).join()";
    lab.browser.until(&format!("{names} === 'of-other,of-team-a'")).await;
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespaced_account_opens_its_namespace_in_every_tab() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.expect(201);
    raw.post("/api/v1/namespaces/shop/serviceaccounts", &json!({"metadata": {"name": "ann"}})).await.expect(201);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    raw.post(format!("{RBAC}/roles"), &json!({"metadata": {"name": "read"}, "rules": rules})).await.expect(201);
    let binding = json!({
        "metadata": {"name": "read"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "read"},
        "subjects": [{"kind": "ServiceAccount", "name": "ann", "namespace": "shop"}],
    });
    raw.post(format!("{RBAC}/rolebindings"), &binding).await.expect(201);
    raw.post("/api/v1/namespaces/shop/configmaps", &json!({"metadata": {"name": "mine"}})).await.expect(201);
    let made = raw.post("/api/v1/namespaces/shop/serviceaccounts/ann/token", &json!({"spec": {}})).await.expect(201);
    let token = made.json()["status"]["token"].as_str().unwrap().to_owned();
    lab.log_in(&token).await;
    lab.browser.until("document.querySelector('.switcher .chosen')?.innerText === 'shop'").await;
    let link = "[...document.querySelectorAll('.sidebar details a')].find(one => one.innerText === 'ConfigMaps')";
    lab.browser.until(&format!("{link} !== undefined")).await;
    lab.browser.value(&format!("{link}.click()")).await;
    lab.browser.until("document.querySelector('tr[data-name=mine]') !== null").await;

    // Another tab of the same browser takes over the session, and the end of it.
    let address = lab.browser.value("location.href").await.as_str().unwrap().to_owned();
    let first = lab.browser.open_tab().await;
    lab.browser.open(&address).await;
    lab.browser.until("document.querySelector('tr[data-name=mine]') !== null").await;
    lab.press_log_out().await;
    lab.browser.until("document.querySelector('#token') !== null").await;
    lab.browser.to_tab(&first).await;
    lab.shows("you have logged out in another tab").await;
    let _ = lab.browser.complaints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_search_finds_objects_of_any_kind_and_the_first_page_counts() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post(DEPLOYMENTS, &deployment("lighthouse")).await.expect(201);
    raw.post(MAPS, &json!({"metadata": {"name": "lighthouse-settings"}})).await.expect(201);
    raw.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await.expect(201);
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    raw.patch("/api/v1/nodes/n1/status", MERGE, &ready).await.expect(200);
    lab.log_in(ADMIN).await;
    lab.shows("Nodes not ready").await;
    lab.browser.until("document.querySelector('.readiness')?.innerText.startsWith('Ready,')").await;
    lab.browser.click("#attention .tile").await;
    lab.rows(&["n1"]).await;

    lab.browser.press(":").await;
    lab.browser.press("lighth").await;
    let options = "[...document.querySelectorAll('#palette li')].map(one => one.innerText.replaceAll('\\n', ' '))";
    lab.browser.until(&format!("{options}.some(one => one.includes('lighthouse-settings')) && {options}[0].includes('Deployment in default')")).await;
    lab.browser.press("Enter").await;
    lab.browser.until("location.pathname === '/console/r/apps/v1/deployments/default/lighthouse'").await;
    // One request of the server's own search finds them. More objects than are shown lead to their list.
    let searches = "performance.getEntriesByType('resource').filter(one => one.name.includes('/apis/keelson.io/search?q=lighth')).length";
    assert_eq!(lab.browser.value(&format!("{searches} > 0")).await, true);
    let others = "performance.getEntriesByType('resource').some(one => one.name.includes('keelson.io/search=') || one.name.includes('keelson.io%2Fsearch='))";
    assert_eq!(lab.browser.value(others).await, false);
    for number in 0..30 {
        raw.post(MAPS, &json!({"metadata": {"name": format!("harbour-{number}")}})).await.expect(201);
    }
    lab.browser.press(":").await;
    lab.browser.press("harbour").await;
    let lists = "[...document.querySelectorAll('#palette li')].find(one => one.innerText.includes('30 ConfigMaps'))";
    lab.browser.until(&format!("{lists} !== undefined")).await;
    lab.browser.value(&format!("{lists}.click()")).await;
    lab.browser.until("location.search.includes('q=harbour')").await;
    lab.pager("1–30 of 30").await;
    // A short name means its resource.
    lab.browser.press(":").await;
    lab.browser.press("cm").await;
    lab.browser.until(&format!("{options}[0]?.startsWith('ConfigMaps')")).await;
    lab.browser.press("Enter").await;
    lab.browser.until("location.pathname === '/console/r/core/v1/configmaps'").await;
    lab.browser.press("g").await;
    lab.browser.press("k").await;
    lab.browser.until("document.querySelector('h1').innerText === 'Keys'").await;
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selected_rows_are_labelled_scaled_and_deleted_together() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    for name in ["one", "three", "two"] {
        raw.post(DEPLOYMENTS, &deployment(name)).await.expect(201);
    }
    lab.log_in(ADMIN).await;
    lab.open_list("r/apps/v1/deployments?ns=default").await;
    lab.rows(&["one", "three", "two"]).await;
    lab.browser.press("j").await;
    lab.browser.press("x").await;
    lab.browser.press("j").await;
    lab.browser.press("x").await;
    lab.shows("2 selected").await;
    press_button(&lab, "Label").await;
    lab.browser.fill("dialog input[type=text]", "tier=front").await;
    lab.browser.press("Enter").await;
    lab.browser.until("document.querySelector('dialog') === null").await;
    for (name, tier) in [("one", json!("front")), ("three", json!("front")), ("two", json!(null))] {
        let stored = raw.get(format!("{DEPLOYMENTS}/{name}")).await.expect(200).json();
        assert_eq!(stored["metadata"]["labels"]["tier"], tier, "{name}");
    }
    lab.browser.press("X").await;
    lab.shows("3 selected").await;
    press_button(&lab, "Scale").await;
    lab.browser.fill("dialog input[type=text]", "0").await;
    lab.shows("With 0 replicas nothing of them runs.").await;
    assert_eq!(lab.browser.value("document.querySelector('dialog button[type=submit]').disabled").await, true);
    lab.browser.fill("dialog input[type=text]", "5").await;
    lab.browser.press("Enter").await;
    lab.browser.until("document.querySelector('dialog') === null").await;
    for name in ["one", "three", "two"] {
        assert_eq!(raw.get(format!("{DEPLOYMENTS}/{name}")).await.expect(200).json()["spec"]["replicas"], 5);
    }
    lab.browser.press("X").await;
    lab.shows("3 selected").await;
    lab.browser.click(".bulk button.danger").await;
    lab.shows("This can't be undone.").await;
    press_button(&lab, "Delete 3").await;
    lab.shows("Nothing here.").await;
    raw.get(format!("{DEPLOYMENTS}/one")).await.expect(404);
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn console_actions_have_the_effects_of_kubectl() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}});
    let cron = json!({"metadata": {"name": "nightly"}, "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}}});
    raw.post("/apis/batch/v1/namespaces/default/cronjobs", &cron).await.expect(201);
    raw.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await.expect(201);
    lab.log_in(ADMIN).await;
    let act = async |page: &str, action: &str, done: &str| {
        lab.open(page).await;
        lab.browser.until("document.querySelector('.actions button.danger:not(:disabled)') !== null").await;
        choose(&lab, ".object .actions", action).await;
        press_button(&lab, action).await;
        lab.shows(done).await;
    };
    act("r/apps/v1/deployments/default/web", "Restart", "web is restarted").await;
    let web = raw.get(format!("{DEPLOYMENTS}/web")).await.expect(200).json();
    assert!(web["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].is_string());
    act("r/apps/v1/deployments/default/web", "Pause", "web is paused").await;
    assert_eq!(raw.get(format!("{DEPLOYMENTS}/web")).await.expect(200).json()["spec"]["paused"], true);
    lab.shows("Paused").await;
    act("r/apps/v1/deployments/default/web", "Resume", "web goes on").await;
    act("r/core/v1/nodes/-/n1", "Cordon", "n1 is cordoned").await;
    assert_eq!(raw.get("/api/v1/nodes/n1").await.expect(200).json()["spec"]["unschedulable"], true);
    act("r/batch/v1/cronjobs/default/nightly", "Suspend", "nightly is suspended").await;
    lab.open("r/batch/v1/cronjobs/default/nightly").await;
    lab.browser.until("document.querySelector('.actions button.danger:not(:disabled)') !== null").await;
    choose(&lab, ".object .actions", "Trigger now").await;
    lab.browser.until("location.pathname.startsWith('/console/r/batch/v1/jobs/default/nightly-')").await;
    let jobs = raw.get("/apis/batch/v1/namespaces/default/jobs").await.expect(200).json();
    assert_eq!(jobs["items"][0]["metadata"]["ownerReferences"][0]["name"], "nightly");

    // An earlier state of the history comes back.
    raw.patch(format!("{DEPLOYMENTS}/web"), MERGE, &json!({"spec": {"replicas": 9}})).await.expect(200);
    lab.open("r/apps/v1/deployments/default/web?tab=history").await;
    lab.shows("Make it as it was at revision").await;
    lab.browser
        .value("[...document.querySelectorAll('main button')].find(one => one.innerText.startsWith('Make it')).click()")
        .await;
    press_button(&lab, "Undo").await;
    lab.shows("web is as it was at revision").await;
    assert_eq!(raw.get(format!("{DEPLOYMENTS}/web")).await.expect(200).json()["spec"]["replicas"], 2);
    lab.ends_without_complaints(&["a status of 410"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_tried_then_applied_and_the_schema_helps() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post(MAPS, &json!({"metadata": {"name": "old"}, "data": {"a": "1"}})).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open("apply").await;
    let field = "document.querySelector('.code-editor')";
    lab.browser.until(&format!("{field}?.dataset.loaded === 'true'")).await;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: new\ndata:\n  size: \"64\"\n---\napiVersion: v1\nkind: \
                ConfigMap\nmetadata:\n  name: old\ndata:\n  b: \"2\"\n";
    lab.browser.value(&format!("void ({field}.value = {})", json!(text))).await;
    press_button(&lab, "Show what would change").await;
    lab.shows("would be created").await;
    lab.shows("would be changed").await;
    lab.browser
        .until("[...document.querySelectorAll('.diff .new')].some(line => line.innerText.includes('b: \"2\"'))")
        .await;
    raw.get(format!("{MAPS}/new")).await.expect(404);
    press_button(&lab, "Apply").await;
    lab.shows("2 objects are applied").await;
    assert_eq!(raw.get(format!("{MAPS}/old")).await.expect(200).json()["data"], json!({"a": "1", "b": "2"}));
    assert_eq!(raw.get(format!("{MAPS}/new")).await.expect(200).json()["data"]["size"], "64");
    // A text that can't be applied is explained, and nothing is lost.
    lab.browser.until(&format!("{field}.dataset.readOnly === 'false'")).await;
    lab.browser
        .value(&format!("void ({field}.value = 'apiVersion: v1\\nkind: Confg\\nmetadata: {{name: a}}\\n')"))
        .await;
    press_button(&lab, "Apply").await;
    lab.shows("The server has no Confg of v1.").await;
    // The schema completes names of fields.
    lab.browser
        .value(&format!(
            "void ({field}.value = 'apiVersion: apps/v1\\nkind: Deployment\\nmetadata:\\n  name: a\\nspec:\\n  repl')"
        ))
        .await;
    lab.browser.value(&format!("{field}.shadowRoot.querySelector('.cm-content').focus()")).await;
    // To the end of the text.
    lab.browser.press("\u{e00f}\u{e00f}\u{e010}").await;
    lab.browser
        .until("performance.getEntriesByType('resource').some(one => one.name.includes('/openapi/v3/apis/apps/v1'))")
        .await;
    lab.browser.press("i").await;
    lab.browser
        .until(&format!("{field}.shadowRoot.querySelector('.cm-tooltip-autocomplete')?.innerText.includes('replicas')"))
        .await;
    lab.ends_without_complaints(&["a status of 404"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_groups_views_and_files_are_those_of_the_user() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    for (name, tier) in [("a", "front"), ("b", "back"), ("c", "front")] {
        raw.post(MAPS, &json!({"metadata": {"name": name, "labels": {"tier": tier}}, "data": {"formula": "=1+1"}}))
            .await
            .expect(201);
    }
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/configmaps?ns=default&labels=tier").await;
    choose(&lab, ".list .actions", "Columns…").await;
    lab.browser.fill("dialog input[type=text]", "data.formula").await;
    lab.browser.press("Enter").await;
    lab.browser.until("document.querySelector('tr[data-name=a] td:last-of-type')?.innerText === '=1+1'").await;
    lab.browser.value("document.querySelector('dialog input[type=checkbox]:not([disabled])') !== null").await;
    lab.browser.press("Escape").await;
    choose(&lab, ".list .actions", "Group by…").await;
    lab.browser.fill("dialog input[type=text]", ".metadata.labels.tier").await;
    lab.browser.press("Enter").await;
    let groups = "[...document.querySelectorAll('tr.group')].map(one => one.innerText).join()";
    lab.browser.until(&format!("{groups} === 'back,front'")).await;
    lab.rows(&["b", "a", "c"]).await;
    choose(&lab, ".list .actions", "Keep this view…").await;
    lab.browser.fill("dialog input[type=text]", "Tiers").await;
    lab.browser.press("Enter").await;
    lab.open("").await;
    lab.browser.until("[...document.querySelectorAll('.links a')].some(one => one.innerText.includes('Tiers'))").await;
    lab.browser
        .value("[...document.querySelectorAll('.links a')].find(one => one.innerText.includes('Tiers')).click()")
        .await;
    lab.rows(&["b", "a", "c"]).await;
    lab.browser.until(&format!("{groups} === 'back,front'")).await;
    share_a_view(&lab, groups).await;
    // The file has what is seen, and nothing that a table program would compute.
    lab.browser
        .value(
            "void (URL.createObjectURL = blob => { blob.text().then(text => window.file = text); return 'data:,'; })",
        )
        .await;
    choose(&lab, ".list .actions", "Export CSV").await;
    let file = lab.browser.until("window.file").await;
    assert!(file.as_str().unwrap().contains("b,1,") && file.as_str().unwrap().contains(",'=1+1\r\n"), "{file}");
    let _ = lab.browser.complaints().await;
}

/// Keeps the shown view in a config map, and opens it by its link as another user would.
async fn share_a_view(lab: &Lab, groups: &str) {
    let raw = lab.raw();
    choose(lab, ".list .actions", "Keep this view…").await;
    lab.browser.fill("dialog input[type=text]", "Tiers <b>of all").await;
    lab.browser.click("dialog input[type=radio]:not(:checked)").await;
    press_button(lab, "Keep and copy the link").await;
    lab.browser.until("document.querySelector('dialog') === null").await;
    let found = raw.get(format!("{MAPS}?labelSelector=console.keelson.io/views")).await.expect(200).json();
    let map = &found["items"][0];
    assert!(map["metadata"]["name"].as_str().unwrap().starts_with("console-views-admin-"), "{map}");
    let (key, view) = map["data"].as_object().unwrap().iter().next().unwrap();
    assert!(view.as_str().unwrap().contains("/console/r/core/v1/configmaps?ns=default"), "{view}");
    lab.open(&format!("views/default/{}/{key}", map["metadata"]["name"].as_str().unwrap())).await;
    lab.browser.until(&format!("{groups} === 'back,front'")).await;

    // Views of others lead nowhere but to lists.
    let evil = json!({
        "script": json!({"name": "script", "to": "javascript:alert(1)"}).to_string(),
        "host": json!({"name": "host", "to": "//evil.example.org/console/r/core/v1/pods"}).to_string(),
        "object": json!({"name": "object", "to": "/console/r/core/v1/secrets/default/a"}).to_string(),
        "torn": "{", "null": "null",
        "hidden": json!({"name": "hid\u{202e}den", "to": "/console/r/core/v1/pods?ns=default"}).to_string(),
    });
    let metadata = json!({"name": "evil", "labels": {"console.keelson.io/views": "true"}});
    raw.post(MAPS, &json!({"metadata": metadata, "data": evil})).await.expect(201);
    lab.open("views").await;
    lab.shows("hid\u{27e8}U+202E\u{27e9}den").await;
    let links = "[...document.querySelectorAll('.views a')].map(one => one.getAttribute('href'))";
    assert_eq!(
        lab.browser
            .value(&format!("{links}.every(one => /^.console.r.core.v1.(pods|configmaps).ns=default/.test(one))"))
            .await,
        true
    );
    assert_eq!(lab.browser.value(&format!("{links}.length")).await, 3);
    lab.open("views/default/evil/script").await;
    lab.shows("This config map has no such view.").await;
    lab.open("views").await;
    lab.browser.click("button[aria-label='Remove Tiers <b>of all']").await;
    lab.browser.until(&format!("{links}.length === 2")).await;
    lab.open_list("r/core/v1/configmaps?ns=default&labels=tier&group=.metadata.labels.tier").await;
}
