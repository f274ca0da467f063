//! Tests of typed pages: pods with their containers, data of secrets, and related objects.
//!
//! Logs, shells and ports are those of a kubelet of the test.

use keelson_testkit::{KubeletDouble, TestServer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::objects::press_button;
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

/// Answers each connection to a port of this machine once: with a document, or with an echo.
async fn pod_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        // A server that keeps connections open.
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = vec![0; 4096];
            let count = stream.read(&mut buffer).await.unwrap_or_default();
            let request = String::from_utf8_lossy(&buffer[..count]).into_owned();
            let evil = "<img src=x onerror=alert(1)>\u{202e}";
            let answer = match request.split(' ').nth(1) {
                Some("/kept") => "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept".to_owned(),
                Some("/parts") => {
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n4\r\n two\r\n0\r\n\r\n".to_owned()
                }
                Some(_) => format!(
                    "HTTP/1.1 418 I'm a teapot\r\nSet-Cookie: a={evil}\r\n\r\n{{\"said\":[{request:?}],\"evil\":\"{evil}\"}}"
                ),
                None => format!("+{request}"),
            };
            let _ = stream.write_all(answer.as_bytes()).await;
            if answer.ends_with("kept") {
                kept.push(stream);
            }
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_reach_a_port_of_a_pod_and_answers_are_text() {
    let kubelet = KubeletDouble::start().await;
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    let port = pod_server().await;
    raw.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    raw.patch("/api/v1/nodes/n/status", MERGE, &json!({"status": kubelet.node_status()})).await.expect(200);
    let ports = json!([{"containerPort": port, "name": "admin"}]);
    let spec = json!({"nodeName": "n", "containers": [{"name": "main", "image": "web", "ports": ports}]});
    raw.post(format!("{CORE}/pods"), &json!({"metadata": {"name": "web"}, "spec": spec})).await.expect(201);
    raw.patch(format!("{CORE}/pods/web/status"), MERGE, &json!({"status": {"phase": "Running"}})).await.expect(200);
    lab.log_in(ADMIN).await;
    lab.open("r/core/v1/pods/default/web").await;
    lab.browser.until("document.querySelector('.yaml .code') !== null").await;
    lab.browser.press("P").await;
    let body = "(document.querySelector('.port-answer .body')?.innerText ?? '')";
    let ask = async |path: &str| {
        lab.browser.fill(".request-line input", path).await;
        lab.browser.press("Enter").await;
    };
    ask("/tea?cup=1").await;
    lab.shows("418 I'm a teapot").await;
    // The answer is shown as text with its hidden characters, and the request had the usual head.
    lab.browser.until(&format!("{body}.includes('<img src=x onerror=alert(1)>\u{27e8}U+202E\u{27e9}')")).await;
    lab.browser
        .until(&format!("{body}.includes('GET /tea?cup=1 HTTP/1.1') && {body}.includes('Host: localhost:{port}')"))
        .await;
    assert_eq!(
        lab.browser.value("[document.querySelector('.port-answer img') === null, document.cookie]").await,
        json!([true, ""])
    );
    ask("/kept").await;
    lab.browser.until(&format!("{body} === 'kept'")).await;
    ask("/parts").await;
    lab.browser.until(&format!("{body} === 'one two'")).await;
    // A path can't add a field to the request.
    lab.browser.fill(".request-line input", "/a b").await;
    lab.shows("A path begins with /").await;
    press_button(&lab, "Text").await;
    lab.browser.fill(".port-form textarea", "PING").await;
    press_button(&lab, "Send").await;
    lab.browser.until(&format!("{body}.startsWith('+PING')")).await;
    // A port that refuses is explained.
    lab.browser.fill(".port-field", "1").await;
    press_button(&lab, "Send").await;
    lab.shows("error forwarding port 1").await;
    assert!(kubelet.requests().iter().all(|request| !format!("{:?}", request.headers).contains("bearer")));
    lab.ends_without_complaints(&[]).await;
}
