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

/// The number of objects in the prepared server.
const OBJECTS: usize = 500;
const RUNS: usize = 21;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Keelson::start().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let parameters = PostParams::default();
    let map = |number: usize| ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(format!("m{number}")), ..Default::default() },
        ..ConfigMap::default()
    };
    let prepared: Vec<ConfigMap> = (0..OBJECTS).map(map).collect();
    try_join_all(prepared.iter().map(|map| maps.create(&parameters, map))).await?;
    let (mut forks, mut stops) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let begun = Instant::now();
        let fork = server.fork().await?;
        forks.push(begun.elapsed());
        let maps: Api<ConfigMap> = Api::default_namespaced(fork.client());
        let mut watch = maps.watch(&WatchParams::default(), "0").await?.boxed();
        watch.next().await.ok_or("the watch has ended")??;
        let begun = Instant::now();
        fork.stop().await;
        stops.push(begun.elapsed());
    }
    println!("fork {}\nstop {}", median(forks).as_nanos(), median(stops).as_nanos());
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
