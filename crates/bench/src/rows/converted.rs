//! A list in a version other than the stored one, on a separate server.
//!
//! The list shows the cost of decoding, converting and encoding objects that can't be sent as stored.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::bench::{Bench, Meter, create_namespace};
use crate::figure::{Observed, Quantity, duration, median_of};
use crate::load::{Until, load};
use crate::wire::Request;

const AUTOSCALERS: usize = 20_000;
const CREATING: usize = 48;
const NAMESPACE: &str = "bench-versions";
/// The directory of this row.
const DIRECTORY: usize = 2_000;
/// The minimum size of an object in a complete list, in bytes.
const SMALLEST: u64 = 400;

/// Horizontal pod autoscalers are stored in `v2`. The figure is the time of a list in `v1`. The note has the time of a
/// list in `v2`.
pub(super) async fn list(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let server = bench.fresh(DIRECTORY).await?;
    create_namespace(&server.client, NAMESPACE).await?;
    let collection = |version| format!("/apis/autoscaling/{version}/namespaces/{NAMESPACE}/horizontalpodautoscalers");
    let path = collection("v2");
    let create = move |number| Request::post(path.clone(), autoscaler(number));
    load(&server.client, CREATING, Until::Count(AUTOSCALERS), create).await?;
    let mut connection = server.client.connect().await?;
    let mut runs = Vec::new();
    for _ in 0..bench.runs {
        let stored = connection.send(Request::get(collection("v2"))).await?;
        let meter = Meter::start(&server.process)?;
        let reply = connection.send(Request::get(collection("v1"))).await?;
        ensure!(reply.bytes >= AUTOSCALERS as u64 * SMALLEST, "the list has {} bytes only", reply.bytes);
        let note = format!("{:.1} MB; in the stored version {}", reply.bytes as f64 / 1e6, duration(stored.whole));
        let seen = Observed { note: Some(note), first_byte: Some(reply.first_byte), ..Observed::default() };
        runs.push((Quantity::Time(reply.whole), meter.stop(seen)?));
    }
    server.stop().await?;
    Ok(median_of(runs))
}

/// An autoscaler that scales by memory, which `v1` represents by an annotation.
pub(super) fn autoscaler(number: usize) -> Vec<u8> {
    let metric = |name: &str, percent: u32| {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        json!({"type": "Resource", "resource": {"name": name, "target": target}})
    };
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": format!("scaler-{number:05}"), "labels": {"app": format!("service-{:03}", number % 100)}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("service-{number:05}")},
            "minReplicas": 2,
            "maxReplicas": 10,
            "metrics": [metric("cpu", 70), metric("memory", 80)],
        },
    })
    .to_string()
    .into_bytes()
}
