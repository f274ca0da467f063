//! Tests of typed pages: pods with their containers, data of secrets, and related objects.
//!
//! Logs and shells are those of a kubelet of the test.

use keelson_testkit::{KubeletDouble, TestServer};
use serde_json::json;

use super::{ADMIN, Lab};

const MERGE: &str = "application/merge-patch+json";
const CORE: &str = "/api/v1/namespaces/default";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pod_page_explains_failures_and_links_its_objects() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post(format!("{CORE}/configmaps"), &json!({"metadata": {"name": "settings"}, "data": {"level": "info"}}))
        .await
        .expect(201);
    let service = json!({"metadata": {"name": "front"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    raw.post(format!("{CORE}/services"), &service).await.expect(201);
    let containers = json!([{"name": "main", "image": "nginx:1.27", "envFrom": [{"configMapRef": {"name": "settings"}}],
        "ports": [{"containerPort": 8080}]}]);
    let pod = json!({"metadata": {"name": "web-0", "labels": {"app": "web"}}, "spec": {"containers": containers, "nodeName": "n1"}});
    raw.post(format!("{CORE}/pods"), &pod).await.expect(201);
    let state = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}});
    let last = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let status = json!({"name": "main", "image": "nginx:1.27", "imageID": "", "ready": false, "restartCount": 7, "state": state, "lastState": last});
    let patch = json!({"status": {"phase": "Running", "containerStatuses": [status]}});
    raw.patch(format!("{CORE}/pods/web-0/status"), MERGE, &patch).await.expect(200);
    lab.log_in(ADMIN).await;
    lab.open("r/core/v1/pods/default/web-0").await;
    lab.shows("OOMKilled, exit code 137").await;
    lab.shows("7 restarts").await;
    lab.shows("ports 8080").await;
    lab.browser
        .until("document.querySelector('.heading .status.is-bad')?.innerText.includes('CrashLoopBackOff')")
        .await;
    lab.browser.until("[...document.querySelectorAll('.references a')].some(one => one.pathname.endsWith('/configmaps/default/settings'))").await;
    lab.browser.press("R").await;
    lab.shows("Services that send to it").await;
    lab.browser.until("[...document.querySelectorAll('.members a')].some(one => one.innerText === 'front')").await;
    // The other way: the users of a config map, and the pods of a service.
    for page in ["r/core/v1/configmaps/default/settings?tab=related", "r/core/v1/services/default/front?tab=related"] {
        lab.open(page).await;
        lab.browser.until("[...document.querySelectorAll('.members a')].some(one => one.innerText === 'web-0')").await;
    }
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_a_secret_are_hidden_until_they_are_requested() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let secret = json!({"metadata": {"name": "key"}, "stringData": {"password": "correct <b>horse</b>"}});
    lab.raw().post(format!("{CORE}/secrets"), &secret).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open("r/core/v1/secrets/default/key").await;
    lab.browser.until("document.querySelector('.yaml .code')?.innerText.includes('password: ••••')").await;
    let hidden = "[document.body.innerText.includes('horse'), document.body.innerText.includes('Y29ycmVjd')]";
    assert_eq!(lab.browser.value(hidden).await, json!([false, false]));
    lab.browser.click(".entry button[aria-expanded=false]").await;
    lab.browser.until("document.querySelector('.entry pre')?.innerText === 'correct <b>horse</b>'").await;
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_followed_and_searched_and_a_shell_answers() {
    let kubelet = KubeletDouble::start().await;
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    raw.patch("/api/v1/nodes/n/status", MERGE, &json!({"status": kubelet.node_status()})).await.expect(200);
    let spec =
        json!({"nodeName": "n", "containers": [{"name": "main", "image": "web"}, {"name": "side", "image": "web"}]});
    raw.post(format!("{CORE}/pods"), &json!({"metadata": {"name": "web"}, "spec": spec})).await.expect(201);
    let running = json!({"status": {"phase": "Running"}});
    raw.patch(format!("{CORE}/pods/web/status"), MERGE, &running).await.expect(200);
    lab.log_in(ADMIN).await;
    lab.open("r/core/v1/pods/default/web").await;
    lab.browser.until("document.querySelector('.yaml .code') !== null").await;
    lab.browser.press("l").await;
    let lines = "[...document.querySelectorAll('.log-line')].map(one => one.innerText)";
    lab.browser.until(&format!("{lines}.includes('three') && {lines}.includes('line 7')")).await;
    lab.browser.until("document.querySelector('.logs .live')?.innerText.includes('Live')").await;
    lab.browser.fill(".logs input[type=search]", "thr").await;
    lab.browser.until("document.querySelector('.log mark')?.innerText === 'thr'").await;
    // All containers, and the run before.
    let choose = "(one => { one.value = '*'; one.dispatchEvent(new Event('change', {bubbles: true})); })";
    lab.browser.value(&format!("void {choose}(document.querySelector('.logs select'))")).await;
    lab.browser.until("[...document.querySelectorAll('.log-container')].some(one => one.innerText === 'side')").await;
    lab.open("r/core/v1/pods/default/web?tab=logs&previous=1").await;
    lab.browser.until(&format!("{lines}.join() === 'one,two,three'")).await;
    assert!(kubelet.requests().iter().any(|request| request.target.contains("previous=true")));

    lab.browser.press("S").await;
    lab.browser.click(".shell-page button.main").await;
    lab.browser.until("document.querySelector('.terminal')?.dataset.state === 'open'").await;
    lab.browser.press("echo he$((1+1))lo").await;
    lab.browser.press("Enter").await;
    lab.browser.until("document.querySelector('.terminal .xterm-rows')?.innerText.includes('he2lo')").await;
    lab.browser.press("exit").await;
    lab.browser.press("Enter").await;
    lab.shows("The session has ended.").await;
    lab.ends_without_complaints(&[]).await;
}
