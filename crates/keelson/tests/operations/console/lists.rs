//! Tests of lists in the browser: pages, sorting, searches and filters, all by keys or clicks.
//!
//! Other tests check the results of queries; these check the rendered page.

use std::time::Duration;

use keelson_testkit::TestServer;
use serde_json::json;

use super::{ADMIN, Lab, with_pods};

const PODS: &str = "r/core/v1/pods";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_pages_sorts_and_searches_ten_thousand_objects() {
    let builder = TestServer::builder().shared_store(with_pods(10_000).await);
    let Some(lab) = Lab::start(builder).await else { return };
    lab.log_in(ADMIN).await;
    lab.open_list(PODS).await;
    lab.rows(&["pod-00000", "pod-00001"]).await;
    lab.pager("1–50 of 10,000").await;
    assert_eq!(lab.browser.value("document.querySelectorAll('tbody tr').length").await, 50, "a page is all there is");

    // A key opens the next page, and a number any page.
    lab.browser.press("n").await;
    lab.rows(&["pod-00050", "pod-00051"]).await;
    lab.browser.press("#").await;
    lab.browser.press("180").await;
    lab.browser.press("Enter").await;
    lab.rows(&["pod-08950", "pod-08951"]).await;
    lab.pager("8,951–9,000 of 10,000").await;
    assert_eq!(lab.location().await, "/console/r/core/v1/pods?page=180");
    lab.browser.value("history.back()").await;
    lab.rows(&["pod-00050"]).await;

    // Sorts by a column, ascending and descending. Each shows the first page.
    lab.browser.press("w").await;
    lab.browser.click("thead th:nth-of-type(9) button").await;
    lab.rows(&["pod-00000", "pod-00007", "pod-00014"]).await;
    lab.browser.click("thead th[aria-sort=ascending] button").await;
    lab.rows(&["pod-00006", "pod-00013"]).await;
    assert_eq!(lab.location().await, "/console/r/core/v1/pods?wide=1&sort=-.spec.nodeName");

    // The link alone restores the view.
    lab.open_list("r/core/v1/pods?sort=-.metadata.labels.number%3Anumber&limit=20&page=3").await;
    lab.rows(&["pod-09959", "pod-09958"]).await;

    lab.open_list(PODS).await;
    lab.browser.press("/").await;
    lab.browser.press("pod-04242").await;
    lab.rows(&["pod-04242"]).await;
    lab.browser.press("Escape").await;
    lab.ends_without_complaints(&[]).await;
}

/// The browser holds one page for any number of objects, and the page does not move while others write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_shows_a_page_of_a_hundred_thousand_objects_during_writes() {
    let builder = TestServer::builder().shared_store(with_pods(100_000).await);
    let Some(lab) = Lab::start(builder).await else { return };
    lab.log_in(ADMIN).await;
    lab.open_list(PODS).await;
    lab.rows(&["pod-00000", "pod-00001"]).await;
    lab.pager("1–50 of 100,000").await;
    print_paints(&lab).await;
    holds_a_page(&lab).await;

    // Writes run all the time: to one pod of the first page, and to others.
    let raw = lab.raw();
    let writing = tokio::spawn(async move {
        for number in 0_usize.. {
            let pod = if number.is_multiple_of(5) { 3 } else { number * 7_919 % 100_000 };
            let path = format!("/api/v1/namespaces/default/pods/pod-{pod:05}");
            let change = json!({"metadata": {"labels": {"write": number.to_string()}}});
            raw.patch(path, "application/merge-patch+json", &change).await.expect(200);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    lab.browser.until("document.querySelector('tr[data-name=pod-00003].changed') !== null").await;
    lab.rows(&["pod-00000", "pod-00001", "pod-00002", "pod-00003"]).await;
    lab.pager("1–50 of 100,000").await;
    holds_a_page(&lab).await;

    lab.browser.press("#").await;
    lab.browser.press("1800").await;
    lab.browser.press("Enter").await;
    lab.rows(&["pod-89950", "pod-89951"]).await;
    lab.pager("89,951–90,000 of 100,000").await;
    holds_a_page(&lab).await;

    lab.open_list("r/core/v1/pods?sort=-.metadata.labels.number%3Anumber&page=900").await;
    lab.rows(&["pod-55049", "pod-55048"]).await;
    lab.pager("44,951–45,000 of 100,000").await;
    holds_a_page(&lab).await;

    lab.open_list(PODS).await;
    lab.browser.press("/").await;
    lab.browser.press("pod-42424").await;
    lab.rows(&["pod-42424"]).await;
    holds_a_page(&lab).await;
    assert!(!writing.is_finished(), "a write was refused");
    writing.abort();
    lab.ends_without_complaints(&[]).await;
}

/// Checks that the document contains the rows of one page and little else.
async fn holds_a_page(lab: &Lab) {
    let rows = lab.browser.value("document.querySelectorAll('tbody tr').length").await;
    let nodes = lab.browser.value("document.querySelectorAll('*').length").await;
    assert!(rows.as_u64().is_some_and(|rows| (1..=50).contains(&rows)), "{rows} rows");
    assert!(nodes.as_u64().is_some_and(|nodes| nodes < 3_000), "{nodes} elements");
}

/// Prints the times of the browser's paints since the start of the page. They are meaningful only for an optimized
/// build.
#[allow(clippy::print_stdout, reason = "what is measured is printed and not asserted: a machine may be busy")]
async fn print_paints(lab: &Lab) {
    let watched = "['paint', 'largest-contentful-paint'].forEach(type => new PerformanceObserver(list => \
                   (window.paints ??= []).push(...list.getEntries().map(one => \
                   `${one.name || one.entryType} ${Math.round(one.startTime)} ms`))).observe({type, buffered: true}))";
    lab.browser.value(watched).await;
    let paints = lab.browser.until("window.paints?.length >= 2 && window.paints.join(', ')").await;
    println!("a page of 100,000 objects: {}", paints.as_str().unwrap_or_default());
}

/// The request for the rows comes before the browser's first paint, and before all other requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_are_requested_before_anything_is_painted() {
    let Some(lab) = Lab::start(TestServer::builder().shared_store(with_pods(100).await)).await else { return };
    lab.log_in(ADMIN).await;
    lab.open_list(PODS).await;
    let painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime";
    lab.browser.until(&format!("{painted} !== undefined")).await;
    let asked = "performance.getEntriesByType('resource').find(one => one.name.includes('/api/v1/pods?'))?.startTime";
    lab.browser.until(&format!("{asked} !== undefined")).await;
    let (asked, painted) = (lab.browser.value(asked).await, lab.browser.value(painted).await);
    assert!(asked.as_f64() < painted.as_f64(), "asked at {asked} ms, painted at {painted} ms");
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_are_suggested_and_counts_are_of_the_whole_selection() {
    let builder = TestServer::builder().shared_store(with_pods(300).await);
    let Some(lab) = Lab::start(builder).await else { return };
    lab.log_in(ADMIN).await;
    lab.open_list(PODS).await;
    lab.pager("1–50 of 300").await;

    // A label: the field suggests keys from the page, and values from the server's counts.
    lab.browser.press("l").await;
    lab.browser.press("ap").await;
    suggested(&lab, "Label selector", "app").await;
    suggested(&lab, "Label selector", "cache").await;
    lab.pager("1–50 of 100").await;
    lab.rows(&["pod-00001", "pod-00004"]).await;

    // A field: the field suggests paths from a sample of objects.
    lab.browser.press("Escape").await;
    lab.browser.press("F").await;
    lab.browser.press("nodeN").await;
    suggested(&lab, "Add a filter on fields", ".spec.nodeName").await;
    suggested(&lab, "Add a filter on fields", "node-3").await;
    lab.rows(&["pod-00010", "pod-00031"]).await;
    lab.browser.until("document.querySelector('.chip')?.innerText.includes(\".spec.nodeName == 'node-3'\")").await;

    // A count over all pages, and a click on it as a filter.
    let count = "[...document.querySelectorAll('[aria-label=\"Counts by status.phase\"] button')]\
                 .find(button => button.innerText.includes('Pending'))";
    lab.browser.until(&format!("{count}?.innerText.includes('2')")).await;
    lab.browser.value(&format!("{count}.click()")).await;
    lab.pager("1–2 of 2").await;
    lab.rows(&["pod-00010", "pod-00220"]).await;
    lab.browser.click(".chips li:last-child button").await;
    lab.pager("1–50 of 100").await;
    lab.ends_without_complaints(&[]).await;
}

/// Waits for a suggestion below a field, and accepts it with the keyboard.
async fn suggested(lab: &Lab, field: &str, name: &str) {
    let field = format!("document.querySelector('input[aria-label={}]')", json!(field));
    let options = format!("[...{field}.parentElement.querySelectorAll('[role=option]')]");
    let wanted = format!("{options}.findIndex(one => one.firstChild.innerText === {})", json!(name));
    let chosen = format!("{options}.findIndex(one => one.ariaSelected === 'true')");
    // The number of key presses from the selected option to the wanted one, as a text that is never empty.
    let distance = format!("{wanted} >= 0 && String({wanted} - {chosen})");
    loop {
        let distance = lab.browser.until(&distance).await;
        match distance.as_str().and_then(|text| text.parse::<i64>().ok()) {
            Some(0) => break,
            Some(far) if far > 0 => lab.browser.press("ArrowDown").await,
            _ => lab.browser.press("ArrowUp").await,
        }
    }
    lab.browser.press("Enter").await;
}
