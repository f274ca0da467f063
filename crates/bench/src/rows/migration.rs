//! A migration of stored objects, and its effect on a client, on a separate server.
//!
//! SIGHUP makes the server store autoscalers in another version and rewrite all of them. Before and during the
//! migration, a client alternates between a get and a create.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tempfile::TempDir;

use super::converted::autoscaler;
use crate::bench::{Bench, Meter, create_namespace};
use crate::figure::{Observed, Quantity, duration, median_of, percentile};
use crate::load::{Until, load};
use crate::wire::{Connection, Request};

const CREATING: usize = 48;
const NAMESPACE: &str = "bench-migration";
/// The directory of this row.
const DIRECTORY: usize = 9_000;
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
/// The duration of the client's measurement before the migration.
const BEFORE: Duration = Duration::from_secs(5);
/// The polling interval of the migration, and its maximum duration.
const INTERVAL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_mins(5);

/// The time until everything is stored in the other version, with the latencies of the client in the note.
pub(super) async fn figure(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let directory = TempDir::new()?;
    let file = directory.path().join("versions");
    let say = |version: &str| std::fs::write(&file, format!("horizontalpodautoscalers.autoscaling={version}\n"));
    say("v1")?;
    let shown = file.to_string_lossy();
    let server = bench.fresh_with(DIRECTORY, &["--storage-version-file", &shown]).await?;
    create_namespace(&server.client, NAMESPACE).await?;
    let path = format!("/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers");
    let create = move |number| Request::post(path.clone(), autoscaler(number));
    load(&server.client, CREATING, Until::Count(bench.pods.count), create).await?;
    let (mut client, mut asking) = (server.client.connect().await?, server.client.connect().await?);
    let mut runs = Vec::new();
    for run in 0..bench.runs {
        let began = Instant::now();
        let before = ConcurrentClient::run(&mut client, &format!("before-{run}"), || began.elapsed() < BEFORE).await?;
        let meter = Meter::start(&server.process)?;
        let (began, ended) = (Instant::now(), Cell::new(None));
        say(if run % 2 == 0 { "v2" } else { "v1" })?;
        server.signal("-HUP").await?;
        let name = format!("during-{run}");
        let (during, over) = tokio::join!(ConcurrentClient::run(&mut client, &name, || ended.get().is_none()), async {
            let over = until_over(&mut asking, began).await;
            ended.set(Some(began.elapsed()));
            over
        });
        over?;
        let note = format!("99th percentiles before, during: {}", before.compared(&during?));
        let seen = meter.stop(Observed { note: Some(note), ..Observed::default() })?;
        runs.push((Quantity::Time(ended.get().unwrap_or_default()), seen));
        asking.send(Request::delete(MIGRATIONS)).await?;
    }
    server.stop().await?;
    Ok(median_of(runs))
}

/// Waits until the only migration has succeeded.
async fn until_over(connection: &mut Connection, began: Instant) -> Result<()> {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    loop {
        let request = Request::get(format!("{MIGRATIONS}?includeObject=None")).header("accept", table);
        let answer = connection.send(request).await?;
        if String::from_utf8_lossy(&answer.beginning).contains("\"Succeeded\"") {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "the migration is not over after {PATIENCE:?}");
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The latencies of a client that alternates between a get and a create, sorted.
struct ConcurrentClient {
    gets: Vec<Duration>,
    creates: Vec<Duration>,
}

impl ConcurrentClient {
    async fn run(connection: &mut Connection, name: &str, goes_on: impl Fn() -> bool) -> Result<Self> {
        let (mut gets, mut creates) = (Vec::new(), Vec::new());
        while goes_on() {
            let get = Request::get(format!("/api/v1/namespaces/{NAMESPACE}"));
            gets.push(connection.send(get).await?.whole);
            let map = json!({"metadata": {"name": format!("{name}-{}", creates.len())}}).to_string();
            let create = Request::post(format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), map);
            creates.push(connection.send(create).await?.whole);
        }
        gets.sort_unstable();
        creates.sort_unstable();
        Ok(Self { gets, creates })
    }

    fn compared(&self, during: &Self) -> String {
        let p99 = |latencies: &[Duration]| duration(percentile(latencies, 0.99));
        let pair = |before: &[Duration], during: &[Duration]| format!("{}, {}", p99(before), p99(during));
        format!("gets {}; creates {}", pair(&self.gets, &during.gets), pair(&self.creates, &during.creates))
    }
}
