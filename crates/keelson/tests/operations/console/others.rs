//! Tests of the console with hostile input: responses of aggregated servers, odd objects, odd addresses.
//!
//! The aggregated server belongs to the test, and counts the runs of its scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keelson_testkit::{Raw, TestServer, UpstreamRequest, UpstreamServer, upstream_answer};
use serde_json::json;

use super::{ADMIN, Lab};

const GROUP: &str = "evil.example.org";
const PATH: &str = "/apis/evil.example.org/v1";
/// The request that a script of this server sends if it runs.
const TRACE: &str = "fetch('/apis/evil.example.org/v1/ran')";

/// A malicious aggregated server, and the number of times that one of its scripts has run.
struct Evil {
    ran: Arc<AtomicUsize>,
    _upstream: UpstreamServer,
}

impl Evil {
    async fn start(lab: &Lab) -> Self {
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = ran.clone();
        let authority = lab.server.running().pki().front_proxy.ca_pem.clone();
        let upstream = UpstreamServer::http1(&["evil.agg.svc"], &authority, move |request: UpstreamRequest| {
            let counted = counted.clone();
            async move { answer(request.uri().path(), &counted) }
        })
        .await;
        let raw = lab.raw();
        raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "agg"}})).await.expect(201);
        let spec = json!({"type": "ExternalName", "externalName": "localhost"});
        raw.post("/api/v1/namespaces/agg/services", &json!({"metadata": {"name": "evil"}, "spec": spec}))
            .await
            .expect(201);
        let service = json!({"namespace": "agg", "name": "evil", "port": upstream.addr().port()});
        let spec = json!({"group": GROUP, "version": "v1", "service": service, "caBundle": upstream.ca_bundle(),
            "groupPriorityMinimum": 1000, "versionPriority": 15});
        let registered = json!({"metadata": {"name": format!("v1.{GROUP}")}, "spec": spec});
        raw.post("/apis/apiregistration.k8s.io/v1/apiservices", &registered).await.expect(201);
        until_served(&raw).await;
        Self { ran, _upstream: upstream }
    }
}

async fn until_served(raw: &Raw) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while raw.get(PATH).await.status != 200 {
        assert!(Instant::now() < deadline, "the aggregated server is not reached");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn answer(path: &str, ran: &AtomicUsize) -> http::Response<keelson_testkit::UpstreamBody> {
    let script = format!("<script>{TRACE}</script><img src=x onerror=\"{TRACE}\">");
    let svg = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" onload=\"{TRACE}\"><script>{TRACE}</script></svg>");
    let xml = format!(
        "<html xmlns=\"http://www.w3.org/1999/xhtml\"><body onload=\"{TRACE}\"><script>{TRACE}</script></body></html>"
    );
    let list = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}], "rows": [{"cells": ["a"]}]});
    let mut answer = match path.rsplit('/').next().unwrap_or_default() {
        "html" => upstream_answer(200, "text/html", script),
        "svg" => upstream_answer(200, "image/svg+xml", svg),
        "xhtml" => upstream_answer(200, "application/xhtml+xml", xml),
        "refused" => upstream_answer(
            401,
            "application/json",
            json!({"kind": "Status", "message": "no", "code": 401}).to_string(),
        ),
        "odd" => upstream_answer(200, "application/json", list.to_string()),
        "all" => upstream_answer(200, "application/json", rows(&json!("a"), 30_000).to_string()),
        "huge" => upstream_answer(200, "application/json", rows(&json!("x".repeat(3 << 20)), 1).to_string()),
        "types" => upstream_answer(200, "application/json", wrong_types().to_string()),
        // Objects: another one, none, and one that is nested too deeply.
        "other" => upstream_answer(200, "application/json", object("kube-system", "someone", "{}")),
        "none" => upstream_answer(200, "application/json", json!({"kind": "Thing", "metadata": null}).to_string()),
        "deep" => {
            let nested = format!("{}1{}", "{\"a\":".repeat(9000), "}".repeat(9000));
            upstream_answer(200, "application/json", object("default", "deep", &nested))
        }
        "ran" => {
            ran.fetch_add(1, Ordering::Relaxed);
            upstream_answer(200, "application/json", "{}")
        }
        _ => upstream_answer(200, "application/json", json!({"kind": "APIResourceList", "resources": []}).to_string()),
    };
    for (name, value) in [
        ("set-cookie", "evil=1; Path=/"),
        ("service-worker-allowed", "/"),
        ("refresh", "0; url=/apis/evil.example.org/v1/ran"),
        ("link", "</apis/evil.example.org/v1/ran>; rel=preload; as=fetch"),
        ("content-security-policy", "default-src * 'unsafe-inline'"),
    ] {
        answer.headers_mut().insert(name, value.parse().unwrap());
    }
    answer
}

/// A table of this many rows whatever the limit, with one cell each.
fn rows(cell: &serde_json::Value, count: usize) -> serde_json::Value {
    let row = |number: usize| json!({"cells": [cell], "object": {"metadata": {"name": format!("row-{number:05}"), "namespace": "default", "uid": format!("u{number}")}}});
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"}, "columnDefinitions": [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}], "rows": (0..count).map(row).collect::<Vec<_>>()})
}

/// A table whose members have other types than in the API.
fn wrong_types() -> serde_json::Value {
    let metadata = json!({"name": "typed", "namespace": 5, "uid": {}, "creationTimestamp": [1], "labels": "text", "ownerReferences": 7});
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": 5, "continue": {}, "remainingItemCount": "abc"},
        "columnDefinitions": [null, 5, {"name": null}, {"name": "Name", "priority": "0"}],
        "rows": [{"cells": [{"toString": "x"}, null], "object": {"metadata": metadata}}]})
}

fn object(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "{{\"apiVersion\":\"{GROUP}/v1\",\"kind\":\"Thing\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"{namespace}\",\"uid\":\"u\"}},\"spec\":{spec}}}"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_without_measure_and_of_other_types_are_bounded_and_explained() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let _evil = Evil::start(&lab).await;
    lab.log_in(ADMIN).await;
    // A server that knows no limit: its rows are divided into pages here.
    lab.open_list(&format!("r/{GROUP}/v1/all?page=3")).await;
    lab.pager("101–150 of 30,000").await;
    assert_eq!(lab.browser.value("document.querySelectorAll('tbody tr[data-name]').length").await, 50);
    lab.rows(&["row-00100"]).await;
    // The beginning of a long cell is shown.
    lab.open_list(&format!("r/{GROUP}/v1/huge")).await;
    assert_eq!(lab.browser.value("document.querySelector('tbody th').innerText.length < 400").await, true);
    lab.open_list(&format!("r/{GROUP}/v1/types")).await;
    lab.browser.until("document.querySelector('tr[data-name=typed]') !== null").await;
    // An object that is another one is named so, and can't be acted on.
    lab.open(&format!("r/{GROUP}/v1/things/default/other")).await;
    lab.shows("answered with another one: kube-system/someone").await;
    assert_eq!(
        lab.browser.value("[...document.querySelectorAll('.actions button.danger')].every(one => one.disabled)").await,
        true
    );
    lab.open(&format!("r/{GROUP}/v1/things/default/none")).await;
    lab.shows("answers with something that is no object").await;
    lab.open(&format!("r/{GROUP}/v1/things/default/deep")).await;
    lab.shows("This can't be written as YAML").await;
    let _ = lab.browser.complaints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_aggregated_servers_run_nothing_and_leave_nothing() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let evil = Evil::start(&lab).await;
    let raw = lab.raw();
    // The navigation is authorized, as it would be with a browser's certificate.
    let rules = json!([{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    raw.post(format!("{rbac}/clusterroles"), &json!({"metadata": {"name": "evil"}, "rules": rules})).await.expect(201);
    let binding = json!({
        "metadata": {"name": "evil"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "evil"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}],
    });
    raw.post(format!("{rbac}/clusterrolebindings"), &binding).await.expect(201);
    lab.log_in(ADMIN).await;
    for kind in ["html", "svg", "xhtml"] {
        lab.browser.open(&format!("{}{PATH}/{kind}", lab.server.url())).await;
        // A script would have run before the next page is loaded.
        lab.open("").await;
        lab.browser.until("document.querySelector('.shell') !== null").await;
        assert_eq!(evil.ran.load(Ordering::Relaxed), 0, "{kind}");
        assert_eq!(lab.browser.value("document.cookie").await, "", "{kind}");
    }
    let worker = raw.get(format!("{PATH}/html")).header("service-worker", "script").await.expect(403);
    assert_eq!(worker.json()["reason"], "Forbidden");
    // The console's own request gets data.
    let shown = "fetch('/apis/evil.example.org/v1/odd').then(answer => answer.headers.get('content-security-policy'))";
    assert_eq!(lab.browser.value(shown).await, "default-src 'none'; sandbox; frame-ancestors 'none'");
    let _ = lab.browser.complaints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_answers_and_addresses_break_neither_the_session_nor_the_next_page() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let _evil = Evil::start(&lab).await;
    let raw = lab.raw();
    let map = json!({"metadata": {"name": "map", "annotations": {"note": "user\u{202e}txt.exe\u{2066} \u{200b}zero"}}});
    raw.post("/api/v1/namespaces/default/configmaps", &map).await.expect(201);
    lab.log_in(ADMIN).await;
    let go = async |path: &str| {
        lab.browser
            .value(&format!(
                "(history.pushState(null, '', '/console/{path}'), dispatchEvent(new PopStateEvent('popstate')))"
            ))
            .await;
    };
    // A 401 of an aggregated server does not end the session.
    go(&format!("r/{GROUP}/v1/refused")).await;
    lab.shows("You are logged in, and the server knows you.").await;
    assert_eq!(lab.browser.value("sessionStorage.getItem('keelson.credentials') !== null").await, true);
    // A table whose rows contain no objects.
    go(&format!("r/{GROUP}/v1/odd")).await;
    lab.shows("rows name no object").await;
    go("r/core/v1/configmaps?ns=default").await;
    lab.browser.until("document.querySelector('tr[data-name=map]') !== null && document.querySelector('h1').innerText.startsWith('ConfigMap')").await;

    // Path characters in an address are part of a name.
    for path in ["r/core/v1/..%2F..%2Fapis%2Fevil.example.org%2Fv1%2Fhtml", "r/core/v1/configmaps%3Flimit=1"] {
        lab.open(path).await;
        lab.shows("This is not there").await;
    }
    lab.open("r/core/v1/configmaps?at=x").await;
    lab.shows("The address names a time that is none").await;
    lab.open("r/core/v1/pods?ns=..").await;
    lab.shows("This address names nothing.").await;
    for path in ["%", "r/core/v1/pods/default/%E0"] {
        lab.open(path).await;
        lab.shows("This address can't be read").await;
    }
    go("r/core/v1/configmaps/default/map?tab=toString").await;
    // Characters that reorder text are shown as escapes.
    lab.browser.click(".yaml button.fold[aria-label='Unfold annotations']").await;
    lab.shows("user⟨U+202E⟩txt.exe⟨U+2066⟩ ⟨U+200B⟩zero").await;
    lab.ends_without_complaints(&["a status of 401", "a status of 404", "a status of 403"]).await;
}
