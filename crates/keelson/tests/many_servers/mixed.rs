//! Tests of servers of two builds on one store, as during a rolling upgrade. `KEELSON_OTHER_BINARY` is the path of the
//! other build. Without it the same build stores autoscalers in another version, so that the servers encode the same
//! objects differently.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use keelson_storage::{RangeRequest, Store, StoreKey};
use keelson_testkit::{ProcessServer, ProcessServerBuilder, Raw};
use serde_json::{Value, json};

use crate::cluster::SERVERS;
use crate::{Progress, items, name};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const OTHER: &str = "KEELSON_OTHER_BINARY";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const STORED: &str = "/registry/horizontalpodautoscalers/";

/// A server for its start number `time`, from 0. Builds alternate from server to server and from start to start.
pub(crate) fn server(store: &str, data: &Path, number: usize, time: usize) -> ProcessServerBuilder {
    let is_other = (number + time) % 2 == 1;
    let other = std::env::var_os(OTHER).filter(|_| is_other);
    let is_told = is_other && other.is_none();
    let server = ProcessServer::builder(other.unwrap_or_else(|| KEELSON.into())).data_dir(data);
    let server = server.arg("--store").arg(store).arg("--server-id").arg(format!("server-{number}"));
    if is_told { server.arg("--storage-version=horizontalpodautoscalers.autoscaling=v1") } else { server }
}

fn autoscaler(number: usize) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    // The first version has no such metric, and keeps it in an annotation.
    let memory = json!({"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}});
    let spec =
        json!({"maxReplicas": 1, "scaleTargetRef": target, "metrics": [{"type": "Resource", "resource": memory}]});
    json!({"metadata": {"name": format!("scaler-{number}")}, "spec": spec})
}

/// Creates an autoscaler on each server. Each is stored in the encoding of its server's build.
pub(crate) async fn begin(clients: &[Raw], store: &dyn Store) {
    for (number, raw) in clients.iter().enumerate() {
        raw.post(AUTOSCALERS, &autoscaler(number)).await.expect(201);
    }
    let (from, to) = (StoreKey::new(STORED), StoreKey::prefix_end(STORED));
    let stored = store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap();
    let is_first = |value: &[u8]| value.windows(14).any(|part| part == b"autoscaling/v1");
    let first = stored.entries.iter().filter(|stored| is_first(&stored.value)).count();
    if std::env::var_os(OTHER).is_none() {
        assert_eq!((stored.entries.len(), first), (SERVERS, 1), "servers encode the same kind differently");
    }
}

/// Changes the autoscalers on one server and reads each on the next, until it is stopped. Returns the last value of
/// each.
pub(crate) async fn scale(clients: &[Raw], progress: &Progress) -> Vec<u64> {
    let mut acknowledged = vec![1; SERVERS];
    let mut round = 1;
    while !progress.done.load(Ordering::SeqCst) {
        round += 1;
        let (number, path) = (round % SERVERS, format!("{AUTOSCALERS}/scaler-{}", round % SERVERS));
        let writer = &clients[round / SERVERS % SERVERS];
        let change = json!({"spec": {"maxReplicas": round}});
        let sent = writer.patch(path.as_str(), "application/merge-patch+json", &change).try_send().await;
        if sent.is_ok_and(|answer| answer.status == 200) {
            acknowledged[number] = round as u64;
        }
        let reader = &clients[(round / SERVERS + 1) % SERVERS];
        match reader.get(path).try_send().await {
            Ok(answer) if answer.status == 200 => check(&answer.json(), number, acknowledged[number]),
            Ok(answer) => assert!([503, 504].contains(&answer.status), "{}", answer.text()),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    acknowledged
}

/// Checks that all servers show the same objects, whichever server wrote them.
pub(crate) async fn end(clients: &[Raw], acknowledged: &[u64]) {
    for raw in clients {
        let list = raw.get(AUTOSCALERS).await.expect(200).json();
        assert_eq!(items(&list).len(), SERVERS);
        for (number, found) in items(&list).iter().enumerate() {
            check(found, number, acknowledged[number]);
        }
    }
}

/// The number may be higher than the acknowledged one, since a write whose response was lost may have happened.
fn check(found: &Value, number: usize, least: u64) {
    assert_eq!(name(found), format!("scaler-{number}"));
    assert!(found["spec"]["maxReplicas"].as_u64().unwrap() >= least, "{found}");
    assert_eq!(found["spec"]["metrics"], autoscaler(number)["spec"]["metrics"], "{found}");
}
