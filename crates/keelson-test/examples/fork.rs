//! Measures a fork of a prepared server, and the stop of a server with an open watch. `cargo xtask bench` runs it.
//!
//! It prints the median of several runs in nanoseconds, a line for each step.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use keelson_test::Keelson;
use kube::api::{Api, PostParams, WatchParams};
use serde_json::{Value, json};

/// The number of objects in the prepared server.
const OBJECTS: usize = 500;
/// The number of custom resources in it.
const DEFINITIONS: usize = 20;
const RUNS: usize = 41;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Keelson::start().await?;
    server.install_definitions((0..DEFINITIONS).map(definition)).await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let parameters = PostParams::default();
    let map = |number: usize| ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(format!("m{number}")), ..Default::default() },
        ..ConfigMap::default()
    };
    let prepared: Vec<ConfigMap> = (0..OBJECTS).map(map).collect();
    try_join_all(prepared.iter().map(|map| maps.create(&parameters, map))).await?;
    let (mut forks, mut answers, mut stops, mut loads) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let begun = Instant::now();
        let fork = server.fork().await?;
        forks.push(begun.elapsed());
        let maps: Api<ConfigMap> = Api::default_namespaced(fork.client());
        maps.get("m0").await?;
        answers.push(begun.elapsed());
        let mut watch = maps.watch(&WatchParams::default(), "0").await?.boxed();
        watch.next().await.ok_or("the watch has ended")??;
        let begun = Instant::now();
        fork.stop().await;
        stops.push(begun.elapsed());
        // A fork of a snapshot loads its caches and compiles the definitions.
        let snapshot = server.snapshot()?;
        let begun = Instant::now();
        let loaded = server.fork_from(&snapshot).await?;
        loads.push(begun.elapsed());
        loaded.stop().await;
    }
    for (step, times) in [("fork", forks), ("fork-answer", answers), ("fork-load", loads), ("stop", stops)] {
        println!("{step} {}", median(times).as_nanos());
    }
    Ok(())
}

/// A definition with a schema of common size.
fn definition(number: usize) -> Value {
    let fields: serde_json::Map<String, Value> = (0..40)
        .map(|field| (format!("field{field}"), json!({ "type": "string", "description": "A field.", "maxLength": 64 })))
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("kind{number}s.example.com") },
        "spec": {
            "group": "example.com",
            "names": { "plural": format!("kind{number}s"), "kind": format!("Kind{number}") },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": { "type": "object", "properties": fields } },
                } },
            }],
        },
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
