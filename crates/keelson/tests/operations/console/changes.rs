//! Tests of writes while a page is open: rows that change in place, counts of new objects, and an expired snapshot.
//!
//! The writes come from another client.

use std::time::Duration;

use keelson_testkit::TestServer;
use serde_json::json;

use super::{ADMIN, Lab, with_pods};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_shown_and_counted_without_losing_the_page() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    for number in 0..30 {
        let map = json!({"metadata": {"name": format!("map-{number:02}")}, "data": {"a": "1"}});
        raw.post(CONFIG_MAPS, &map).await.expect(201);
    }
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/configmaps?ns=default&limit=20").await;
    lab.browser.press("n").await;
    lab.rows(&["map-20", "map-21"]).await;
    lab.pager("21–30 of 30").await;

    // A changed row is updated in place, a deleted one is removed, and new objects are counted.
    raw.patch(format!("{CONFIG_MAPS}/map-21"), MERGE, &json!({"data": {"b": "2"}})).await.expect(200);
    raw.delete(format!("{CONFIG_MAPS}/map-22")).await.expect(200);
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "aaa"}})).await.expect(201);
    lab.browser
        .until("document.querySelector('tr[data-name=map-21].changed td:nth-of-type(2)')?.innerText === '2'")
        .await;
    lab.browser.until("document.querySelector('tr[data-name=map-22].gone') !== null").await;
    lab.shows("1 new, 1 changed, 1 deleted since").await;
    lab.rows(&["map-20", "map-21", "map-22"]).await;
    lab.pager("21–30 of 30").await;
    // Another page shows the same snapshot.
    lab.browser.press("p").await;
    lab.rows(&["map-00", "map-01"]).await;
    // A key shows the newest state. There is also a mode that always shows it.
    lab.browser.press("r").await;
    lab.rows(&["aaa", "map-00"]).await;
    lab.browser.press("L").await;
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "aab"}})).await.expect(201);
    lab.rows(&["aaa", "aab", "map-00"]).await;
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_gone_is_reported_and_left_with_one_click() {
    let store = with_pods(60).await;
    let builder = TestServer::builder().shared_store(store).history(Duration::from_secs(1));
    let Some(lab) = Lab::start(builder).await else { return };
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/pods?limit=20").await;
    lab.rows(&["pod-00000"]).await;
    let revision = lab.browser.value("document.querySelector('.snapshot code').innerText").await;
    let revision = revision.as_str().unwrap().to_owned();
    // Waits until the server has compacted the snapshot, which needs time and a write.
    let raw = lab.raw();
    let old = format!("/api/v1/pods?limit=1&resourceVersion={revision}&resourceVersionMatch=Exact&keelson.io/page=1");
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    for number in 0.. {
        let map = json!({"metadata": {"name": format!("later-{number}")}});
        raw.post(CONFIG_MAPS, &map).await.expect(201);
        if raw.get(&*old).await.status == 410 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{old} is still kept");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    lab.browser.press("n").await;
    lab.shows("This moment is no longer kept").await;
    // The old rows remain, and the button that continues the list has the focus.
    lab.rows(&["pod-00000"]).await;
    lab.browser.click(".problem button.main").await;
    lab.rows(&["pod-00020"]).await;
    lab.pager("21–40 of 60").await;
    lab.ends_without_complaints(&["a status of 410"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_and_an_object_are_shown_as_they_were() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    let made = raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "map"}, "data": {"sky": "blue"}})).await.expect(201);
    let before = made.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    raw.patch(format!("{CONFIG_MAPS}/map"), MERGE, &json!({"data": {"sky": "grey"}})).await.expect(200);
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "other"}})).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open_list("r/core/v1/configmaps?ns=default").await;
    lab.rows(&["map", "other"]).await;
    lab.browser.press("t").await;
    lab.browser.until("document.querySelector('.travel input[type=range]') !== null").await;
    lab.browser.press("t").await;
    lab.browser.until("document.querySelector('.travel') === null").await;
    lab.open_list(&format!("r/core/v1/configmaps?ns=default&rv={before}")).await;
    lab.rows(&["map"]).await;
    lab.pager("1–1 of 1").await;

    lab.open("r/core/v1/configmaps/default/map?tab=history").await;
    lab.shows("2 states since revision").await;
    lab.browser.until("document.querySelector('.diff .gone')?.innerText.includes('resourceVersion')").await;
    lab.browser
        .until("[...document.querySelectorAll('.diff .new')].some(line => line.innerText.includes('sky: grey'))")
        .await;
    lab.ends_without_complaints(&["a status of 410"]).await;
}
