//! Tests of what the console claims: orders and counts, events, the state of its connection, definitions that come
//! later, and views that are whole in their addresses.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::{ADMIN, Lab, with_pods};

const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Creates a pod with these containers: ready or not, the number of restarts, and what it waits for.
async fn make_pod(raw: &Raw, name: &str, containers: &[(bool, u32, &str)]) {
    let spec: Vec<Value> =
        (0..containers.len()).map(|at| json!({"name": format!("c{at}"), "image": "image"})).collect();
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": spec}});
    raw.post(PODS, &pod).await.expect(201);
    let states = containers.iter().enumerate().map(|(at, (ready, restarts, waits))| {
        let state = if waits.is_empty() { json!({"running": {}}) } else { json!({"waiting": {"reason": waits}}) };
        json!({"name": format!("c{at}"), "image": "image", "imageID": "", "ready": ready, "restartCount": restarts, "state": state})
    });
    let status = json!({"status": {"phase": "Running", "containerStatuses": states.collect::<Vec<_>>()}});
    raw.patch(format!("{PODS}/{name}/status"), MERGE, &status).await.expect(200);
}

async fn sort_by(lab: &Lab, column: &str) {
    let head = format!(
        "[...document.querySelectorAll('thead th button')].find(one => one.innerText.startsWith({}))",
        json!(column)
    );
    lab.browser.until(&format!("{head} !== undefined")).await;
    lab.browser.value(&format!("{head}.click()")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_sorted_by_their_displayed_values() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    make_pod(&raw, "a", &[(false, 0, ""), (false, 50, "")]).await;
    make_pod(&raw, "b", &[(true, 1, ""), (true, 0, "")]).await;
    make_pod(&raw, "c", &[(false, 2, "CrashLoopBackOff"), (false, 0, "")]).await;
    make_pod(&raw, "d", &[(true, 0, ""), (true, 0, "")]).await;
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/pods?ns=default").await;
    sort_by(&lab, "Restarts").await;
    lab.rows(&["d", "b", "c", "a"]).await;
    sort_by(&lab, "Restarts").await;
    lab.rows(&["a", "c", "b", "d"]).await;
    lab.open_list("r/core/v1/pods?ns=default").await;
    sort_by(&lab, "Ready").await;
    lab.rows(&["a", "c", "b", "d"]).await;
    lab.open_list("r/core/v1/pods?ns=default").await;
    sort_by(&lab, "Status").await;
    lab.rows(&["c", "a", "b", "d"]).await;
    // The youngest has the smallest age.
    lab.open_list("r/core/v1/pods?ns=default").await;
    sort_by(&lab, "Age").await;
    lab.browser.until("document.querySelector('th[aria-sort=ascending]')?.innerText.startsWith('Age')").await;
    assert!(lab.location().await.contains("sort=-.metadata.creationTimestamp"));
    // The reason is beside the status, which has a colour and a shape.
    let row = "document.querySelector('tr[data-name=c]')";
    lab.browser.until(&format!("{row}?.querySelector('.why')?.innerText.includes('CrashLoopBackOff')")).await;
    assert_eq!(lab.browser.value(&format!("{row}.querySelector('.status.is-bad') !== null")).await, true);
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_one_count_are_alternatives_and_their_numbers_are_seen() {
    let Some(lab) = Lab::start(TestServer::builder().shared_store(with_pods(100).await)).await else { return };
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/pods").await;
    let facet = "document.querySelector('[aria-label=\"Counts by spec.nodeName\"]')";
    let value = |name: &str| {
        format!("[...({facet}?.querySelectorAll('button') ?? [])].find(one => one.innerText.includes('{name}'))")
    };
    for name in ["node-1", "node-3"] {
        lab.browser.until(&format!("{} !== undefined", value(name))).await;
        lab.browser.value(&format!("{}.click()", value(name))).await;
        lab.browser.until(&format!("{}?.ariaPressed === 'true'", value(name))).await;
    }
    lab.rows(&["pod-00001", "pod-00003", "pod-00008", "pod-00010"]).await;
    lab.pager("1–29 of 29").await;
    assert!(lab.location().await.contains("spec.nodeName+in+%28%27node-1%27%2C+%27node-3%27%29"));
    // Each number ends within its pane, however long its value is.
    let widths = "[...document.querySelectorAll('.facet .count')].every(one => \
        one.getBoundingClientRect().right <= document.querySelector('.facets').getBoundingClientRect().right)";
    lab.browser.until(widths).await;
    lab.browser.value(&format!("{}.click()", value("node-1"))).await;
    lab.rows(&["pod-00003", "pod-00010"]).await;
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_nodes_and_those_without_a_uid_are_shown() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    raw.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await.expect(201);
    let event = |name: &str, uid: Value, message: &str| {
        json!({"metadata": {"name": name}, "involvedObject": {"kind": "Node", "name": "n1", "uid": uid}, "reason": "Tested",
            "type": "Warning", "message": message})
    };
    let events = "/api/v1/namespaces/default/events";
    // A kubelet writes the name of the node in place of its uid.
    raw.post(events, &event("one", json!("n1"), "the kubelet tells")).await.expect(201);
    raw.post(events, &event("two", json!(""), "without a uid")).await.expect(201);
    raw.post(events, &event("three", json!("of-another"), "of a node before")).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open("r/core/v1/nodes/-/n1?tab=events").await;
    lab.shows("the kubelet tells").await;
    lab.shows("without a uid").await;
    assert_eq!(lab.browser.value("document.body.innerText.includes('of a node before')").await, false);
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_reports_an_unreachable_server_and_recovers() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    lab.raw().post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "map"}})).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/configmaps?ns=default").await;
    // The browser loses the server.
    lab.browser
        .value("void (window.there = window.fetch, window.fetch = () => Promise.reject(new TypeError('away')))")
        .await;
    lab.browser.press("r").await;
    lab.browser.until("document.querySelector('.banner')?.innerText.includes('The server does not answer.')").await;
    lab.browser.until("/Since \\d/.test(document.querySelector('.banner').innerText)").await;
    lab.browser
        .until("[...document.querySelectorAll('.problem button')].some(one => one.innerText === 'Try again')")
        .await;
    lab.browser.value("void (window.fetch = window.there)").await;
    lab.browser
        .until("document.querySelector('.banner') === null && document.querySelector('.problem') === null")
        .await;
    lab.rows(&["map"]).await;
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_retries_after_429_and_marks_a_broken_watch() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    lab.raw().post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "map"}})).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open("keys").await;
    // Lists are refused once, and watches always.
    let busy = "void (window.asked = 0, window.there = window.fetch, window.fetch = (path, init) => { \
        if (path.includes('watch=1')) return Promise.resolve(new Response('', {status: 503})); \
        if (path.includes('/configmaps?') && window.asked++ === 0) \
            return Promise.resolve(new Response('later', {status: 429, headers: {'Retry-After': '1'}})); \
        return window.there(path, init); })";
    lab.browser.value(busy).await;
    lab.browser.value("void (history.pushState(null, '', '/console/r/core/v1/configmaps?ns=default'), dispatchEvent(new PopStateEvent('popstate')))").await;
    lab.rows(&["map"]).await;
    assert!(lab.browser.value("window.asked").await.as_u64().unwrap() >= 2);
    lab.browser.until("document.querySelector('.snapshot .not-live')?.innerText.includes('Not live since')").await;
    lab.browser.value("void (window.fetch = window.there)").await;
    lab.browser
        .until("document.querySelector('.snapshot') !== null && document.querySelector('.not-live') === null")
        .await;
    let _ = lab.browser.complaints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_that_are_made_later_appear_in_the_menu() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    lab.log_in(ADMIN).await;
    lab.browser.until("document.querySelectorAll('.sidebar details a').length > 10").await;
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"metadata": {"name": "gadgets.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
        "names": {"plural": "gadgets", "kind": "Gadget"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    lab.raw().post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    let link = "[...document.querySelectorAll('.sidebar a')].some(one => one.textContent.includes('Gadgets'))";
    lab.browser.until(link).await;
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_holds_the_whole_view_and_odd_ones_are_explained() {
    let Some(lab) = Lab::start(TestServer::builder().shared_store(with_pods(60).await)).await else { return };
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/pods?ns=default").await;
    lab.browser.press("w").await;
    lab.browser.press("f").await;
    lab.browser.press("L").await;
    let location = lab.location().await;
    assert_eq!(location, "/console/r/core/v1/pods?ns=default&wide=1&counts=0&follow=1");
    lab.open_list(location.trim_start_matches("/console/")).await;
    lab.browser.until("[...document.querySelectorAll('thead th')].some(one => one.innerText.startsWith('Node'))").await;
    assert_eq!(
        lab.browser.value("[document.querySelector('.facets'), document.querySelector('.switch input').checked]").await,
        json!([null, true])
    );

    lab.open("r/core/v1/pods?ns=default&page=999999999").await;
    lab.shows("There is no page 999,999,999.").await;
    lab.browser.click(".empty-hint a").await;
    lab.rows(&["pod-00050"]).await;
    lab.open("r/core/v1/pods?ns=default&rv=abc").await;
    lab.shows("The address names a revision that is none").await;
    lab.rows(&["pod-00000"]).await;
    lab.open("r/core/v1/configmaps?ns=nowhere").await;
    lab.shows("There is no namespace nowhere.").await;
    lab.ends_without_complaints(&["a status of 404"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_found_again_as_it_was_left_and_ages_continue() {
    let Some(lab) = Lab::start(TestServer::builder().shared_store(with_pods(300).await)).await else { return };
    lab.raw().post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "new"}})).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/pods?ns=default&limit=200&page=2").await;
    lab.rows(&["pod-00200"]).await;
    lab.browser.value("document.querySelector('.table').scrollTo(0, 1200)").await;
    lab.browser.value("document.querySelector('tr[data-name=pod-00240] .name-column a').focus()").await;
    lab.browser.press("Enter").await;
    lab.browser.until("document.querySelector('h1')?.innerText.includes('pod-00240')").await;
    // The way up keeps page and order.
    lab.browser.press("u").await;
    lab.rows(&["pod-00200"]).await;
    lab.browser.value("history.go(-2)").await;
    lab.rows(&["pod-00200"]).await;
    lab.browser
        .until("document.querySelector('.table').scrollTop > 500 && document.activeElement.innerText === 'pod-00240'")
        .await;

    lab.open_list("r/core/v1/configmaps?ns=default").await;
    let age = "document.querySelector('tr[data-name=new] time')";
    lab.browser.until(&format!("{age} !== null")).await;
    let before = lab.browser.value(&format!("{age}.innerText")).await;
    lab.browser.until(&format!("{age}.innerText !== {before}")).await;
    assert!(lab.browser.value(&format!("{age}.title")).await.as_str().unwrap().contains("20"));
    lab.ends_without_complaints(&[]).await;
}
