//! Measures the cost of forwarding requests to an aggregated server. A small get is sent in turn to the server itself
//! and through keelson, and so is a stream of some gigabytes, with the memory of the process. Prints a table.
//!
//! Run it with `cargo run --release -p keelson --example proxying`. Client, server and aggregated server share one
//! process.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints, and stops where it can't go on")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use keelson_testkit::{Raw, TestServer, UpstreamRequest, UpstreamServer, upstream_answer};
use serde_json::json;

const THING: &str = "/apis/px.example.org/v1/namespaces/x/things/a";
const GETS: usize = 5_000;
const STREAM_BYTES: usize = 4 << 30;
const PIECE: usize = 256 << 10;

async fn answer(request: UpstreamRequest) -> Response<keelson_testkit::UpstreamBody> {
    if !request.uri().path().ends_with("/stream") {
        return upstream_answer(200, "application/json", vec![b'x'; 1000]);
    }
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let frames = stream::iter((0..STREAM_BYTES / PIECE).map(move |_| Ok(Frame::data(piece.clone()))));
    Response::new(BodyExt::boxed(StreamBody::new(frames)))
}

/// The median and the 99th percentile of consecutive gets.
async fn gets(raw: &Raw, path: &str) -> (Duration, Duration) {
    let mut times = Vec::with_capacity(GETS);
    for _ in 0..GETS {
        let begun = Instant::now();
        raw.get(path).await.expect(200);
        times.push(begun.elapsed());
    }
    times.sort();
    (times[GETS / 2], times[GETS * 99 / 100])
}

fn resident_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::main]
async fn main() {
    let server = TestServer::start().await;
    let proxies = server.running().pki().front_proxy.ca_pem.clone();
    let raw = server.raw();
    println!("| | median | 99th |\n|---|---|---|");
    let (own, own_late) = gets(&raw, "/api/v1/namespaces/default").await;
    println!("| a get of keelson's own | {own:?} | {own_late:?} |");
    for http2 in [false, true] {
        let upstream = if http2 {
            UpstreamServer::start(&["echo.agg.svc", "localhost"], &proxies, answer).await
        } else {
            UpstreamServer::http1(&["echo.agg.svc", "localhost"], &proxies, answer).await
        };
        let protocol = if http2 { "HTTP/2" } else { "HTTP/1.1" };
        register(&raw, &upstream).await;
        let pair = &server.running().pki().front_proxy.client;
        let direct = upstream.client(&pair.certificate_pem, &pair.key_pem);
        let (alone, alone_late) = gets(&direct, THING).await;
        println!("| the aggregated server itself | {alone:?} | {alone_late:?} |");
        let (passed, passed_late) = gets(&raw, THING).await;
        println!("| the same passed on over {protocol} | {passed:?} | {passed_late:?} |");
        let (mut most, before) = (0, resident_memory());
        let begun = Instant::now();
        let mut body = raw.get(format!("{THING}/stream")).stream().await;
        let (mut bytes, mut looked) = (0, 0);
        while let Some(chunk) = body.next_chunk().await.unwrap() {
            bytes += chunk.len();
            if bytes - looked > 64 << 20 {
                looked = bytes;
                most = most.max(resident_memory());
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let rate = bytes as f64 / seconds / 1e6;
        println!(
            "| a stream of {bytes} bytes over {protocol} | {rate:.0} MB/s | {} KiB more held |",
            most.saturating_sub(before)
        );
    }
}

async fn register(raw: &Raw, upstream: &UpstreamServer) {
    let namespace = json!({"metadata": {"name": "agg"}});
    let service = json!({"metadata": {"name": "echo"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let _ = raw.post("/api/v1/namespaces", &namespace).await;
    let _ = raw.post("/api/v1/namespaces/agg/services", &service).await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let name = "v1.px.example.org";
    // An APIService of an earlier server may exist; deleting it makes the server compute a new condition.
    raw.delete(format!("{services}/{name}")).await;
    let spec = json!({
        "group": "px.example.org", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "service": {"namespace": "agg", "name": "echo", "port": upstream.addr().port()}, "caBundle": upstream.ca_bundle(),
    });
    raw.post(services, &json!({"metadata": {"name": name}, "spec": spec})).await.expect(201);
    while raw.get(THING).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
