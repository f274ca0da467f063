//! Tests of outgoing calls in general: their duration, their number, and their connections. `webhooks.rs` tests the
//! content of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use keelson_meta::random::SystemRandom;
use keelson_outbound::{Call, CallError, ClientConfig, Destination, Effect, Outbound, RestClient, Services};
use keelson_testkit::{BreakPoint, BreakingServer, HookReply, HookRequest, HookServer};
use serde_json::json;
use tokio::sync::Semaphore;

#[derive(Debug)]
struct NoServices;

impl Services for NoServices {
    fn addresses(&self, _: &str, _: &str, _: u16) -> Result<Vec<(String, u16)>, String> {
        Err("there are none".to_owned())
    }
}

fn outbound() -> Arc<Outbound> {
    Outbound::new(Arc::new(NoServices), Arc::new(SystemRandom), None)
}

fn peer(outbound: &Outbound, hook: &HookServer) -> RestClient {
    let destination = Destination::Url(hook.url("/a"));
    outbound.client(&ClientConfig::new(destination, hook.ca().as_bytes().to_vec())).unwrap()
}

fn call(time: Duration) -> Call {
    Call { method: Method::POST, body: "{}".into(), effect: Effect::Idempotent, time, response_bytes: 1 << 20 }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_end_within_their_timeout() {
    let hook = HookServer::start(&["127.0.0.1"], |request: HookRequest| {
        let stalls = request.path.contains("stalls");
        std::future::ready(if stalls { HookReply::Stalls } else { HookReply::Hangs })
    })
    .await;
    let outbound = outbound();
    let error = peer(&outbound, &hook).call(&call(Duration::from_secs(1))).await.unwrap_err();
    let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    let url = hook.url("/a?timeout=1s");
    assert_eq!(error, CallError::Late(format!("Post {url:?}: {late}")));
    let config = ClientConfig::new(Destination::Url(hook.url("/stalls")), hook.ca().as_bytes().to_vec());
    let error = outbound.client(&config).unwrap().call(&call(Duration::from_secs(1))).await.unwrap_err();
    let late = "unexpected error when reading response body. Please retry. Original error: context deadline exceeded \
                (Client.Timeout or context cancellation while reading body)";
    assert_eq!(error, CallError::Late(late.to_owned()));
}

/// All callers of a host share its slots, which are fewer than the requests that may wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_one_host_are_bounded_and_those_to_others_continue() {
    let (permits, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let hook = HookServer::start(&["127.0.0.1"], {
        let (permits, begun) = (permits.clone(), begun.clone());
        move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            let permits = permits.clone();
            async move {
                permits.acquire().await.unwrap().forget();
                HookReply::Json(json!({}))
            }
        }
    })
    .await;
    let other = HookServer::start(&["127.0.0.1"], |_| std::future::ready(HookReply::Json(json!({})))).await;
    let outbound = outbound();
    let calls: Vec<_> = (0..64 + 128)
        .map(|_| {
            let peer = peer(&outbound, &hook);
            tokio::spawn(async move { peer.call(&call(LONG)).await.map(|answer| answer.status) })
        })
        .collect();
    while begun.load(Ordering::SeqCst) < 64 {
        tokio::task::yield_now().await;
    }
    let refused = loop {
        // A probe that times out arrived before the queue was full.
        match tokio::time::timeout(Duration::from_millis(20), peer(&outbound, &hook).call(&call(LONG))).await {
            Ok(refused) => break refused.unwrap_err(),
            Err(_) => continue,
        }
    };
    assert_eq!(refused, CallError::Busy { host: hook.addr().to_string() });
    assert_eq!(begun.load(Ordering::SeqCst), 64);
    assert_eq!(peer(&outbound, &other).call(&call(LONG)).await.unwrap().status, 200);
    permits.add_permits(64 + 128);
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(200));
    }
    assert!(hook.connections() <= 64, "{} connections", hook.connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_over_a_connection_that_has_ended_is_made_again() {
    let (asked, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let hook = HookServer::start(&["127.0.0.1"], {
        let (asked, closed) = (asked.clone(), closed.clone());
        move |request| {
            asked.fetch_add(1, Ordering::SeqCst);
            let closes = request.earlier > 0 && !closed.swap(true, Ordering::SeqCst);
            std::future::ready(if closes { HookReply::Closes } else { HookReply::Json(json!({})) })
        }
    })
    .await;
    let outbound = outbound();
    // A host without callers is removed with its connections.
    let peer = peer(&outbound, &hook);
    let mut calls = 0;
    // A call right after another one may find no free connection.
    while calls < 100 && !closed.load(Ordering::SeqCst) {
        assert_eq!(peer.call(&call(LONG)).await.unwrap().status, 200);
        calls += 1;
    }
    assert!(closed.load(Ordering::SeqCst), "no connection was used again");
    assert_eq!(asked.load(Ordering::SeqCst), calls + 1);
}

/// A call that its peer may have processed is repeated only if it is idempotent. A call that the peer did not process
/// is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_made_again_where_nothing_is_processed_twice_by_it() {
    for point in BreakPoint::ALL {
        for effect in [Effect::Idempotent, Effect::Once] {
            let server = BreakingServer::start(point).await;
            let outbound = outbound();
            let config = ClientConfig::new(Destination::Url(server.url("/a")), server.ca().as_bytes().to_vec());
            let peer = outbound.client(&config).unwrap();
            let call = Call { effect, ..call(LONG) };
            let mut calls = 0;
            // A call right after another one may find no free connection.
            let last = loop {
                let answered = peer.call(&call).await;
                calls += 1;
                if server.has_broken() || calls == 100 {
                    break answered;
                }
                assert_eq!(answered.unwrap().status, 200);
            };
            let repeats = server.requests() - calls;
            let is_unprocessed = matches!(point, BreakPoint::GoAwayBefore | BreakPoint::Refused);
            // After a response header, or an error that the peer reports, the failure no longer belongs to the
            // connection.
            let ends = matches!(
                point,
                BreakPoint::Request | BreakPoint::ResponseHead | BreakPoint::Stream | BreakPoint::GoAwayBehind
            );
            let is_repeated = is_unprocessed || (ends && effect == Effect::Idempotent);
            let message = format!("{point:?} {effect:?}: {last:?}");
            assert_eq!(repeats, usize::from(is_repeated), "{message}");
            match last {
                Ok(answer) => assert!(is_repeated && answer.status == 200, "{message}"),
                Err(CallError::Failed(_)) => assert!(!is_repeated && effect == Effect::Idempotent, "{message}"),
                Err(error) => {
                    assert!(!is_repeated && effect == Effect::Once && error.is_outcome_unknown(), "{message}");
                }
            }
        }
    }
}
