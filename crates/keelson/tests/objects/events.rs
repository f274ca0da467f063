//! Tests of the expiry of events, one hour after their last write, in either of their two groups.
//!
//! The test controls the clock, and sets the time of stores with their own clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_meta::clock::ManualClock;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const CORE: &str = "/api/v1/namespaces/default/events";
const NEWER: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A history so short that the server often checks for expired events.
const HISTORY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(30);

fn core(name: &str) -> Value {
    let about = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web"});
    json!({"metadata": {"name": name}, "involvedObject": about, "reason": "Tested"})
}

fn newer(name: &str) -> Value {
    let about = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web"});
    json!({
        "metadata": {"name": name},
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": "example.com/tester",
        "reportingInstance": "tester-1",
        "action": "Testing",
        "reason": "Tested",
        "type": "Normal",
        "regarding": about,
    })
}

async fn gone(raw: &Raw, path: &str) {
    let wait = async {
        while raw.get(path).await.status != 404 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{path} is still there"));
}

#[tokio::test]
async fn events_end_an_hour_after_they_were_last_written() {
    let clock = Arc::new(ManualClock::new(SystemTime::now()));
    let passing = clock.clone();
    let server =
        TestServer::builder().sqlite().history(HISTORY).configure(|config| config.clock = passing).start().await;
    let raw = server.raw();
    for name in ["once", "again"] {
        raw.post(CORE, &core(name)).await.expect(201);
        raw.post(NEWER, &newer(&format!("newer-{name}"))).await.expect(201);
    }
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "stays"}})).await.expect(201);

    clock.advance(Duration::from_mins(40));
    raw.patch(format!("{CORE}/again"), MERGE, &json!({"count": 2})).await.expect(200);
    let again = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}});
    raw.patch(format!("{NEWER}/newer-again"), MERGE, &again).await.expect(200);
    clock.advance(Duration::from_mins(21));
    gone(&raw, &format!("{CORE}/once")).await;
    gone(&raw, &format!("{CORE}/newer-once")).await;
    raw.get(format!("{CORE}/again")).await.expect(200);
    raw.get(format!("{NEWER}/newer-again")).await.expect(200);

    clock.advance(Duration::from_mins(40));
    gone(&raw, &format!("{NEWER}/again")).await;
    gone(&raw, &format!("{NEWER}/newer-again")).await;
    raw.get(format!("{CONFIG_MAPS}/stays")).await.expect(200);
}
