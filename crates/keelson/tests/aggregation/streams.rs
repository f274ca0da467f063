//! Tests of bodies that are forwarded while they arrive: large, slow, endless and aborted ones.
//!
//! The server must not collect a body, so the tests also measure memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::{HeaderMap, Method, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use keelson_testkit::{TestServer, UpstreamBody, UpstreamRequest, upstream_answer, upstream_echo};
use tokio::sync::{Notify, mpsc};

use crate::lab::{Lab, PATIENCE, THINGS};

const PIECE: usize = 64 << 10;
/// More bytes than all buffers between the two ends hold.
const MOST_HELD: usize = 16 << 20;

/// A response with these frames as its body.
fn frames(
    frames: impl futures::Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send + Sync + 'static,
) -> Response<UpstreamBody> {
    let body = StreamBody::new(frames);
    Response::builder().header("content-type", "application/json").body(BodyExt::boxed(body)).unwrap()
}

/// A response whose body the test sends piece by piece.
fn channel(mut pieces: mpsc::Receiver<&'static str>) -> Response<UpstreamBody> {
    frames(stream::poll_fn(move |context| pieces.poll_recv(context)).map(|piece| Ok(Frame::data(Bytes::from(piece)))))
}

/// Waits until a condition holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

/// Starts a lab whose aggregated server opens a watch for each request, and passes its sending half to the test.
async fn watched() -> (Lab, mpsc::Receiver<mpsc::Sender<&'static str>>) {
    let (begun, begins) = mpsc::channel(10);
    let lab = Lab::start(move |request: UpstreamRequest| {
        let begun = begun.clone();
        async move {
            if request.uri().query().is_none_or(|query| !query.contains("watch")) {
                return upstream_echo(request).await;
            }
            let (sender, pieces) = mpsc::channel(10);
            begun.send(sender).await.unwrap();
            channel(pieces)
        }
    })
    .await;
    (lab, begins)
}

#[tokio::test]
async fn events_of_a_watch_pass_one_by_one() {
    let (lab, mut begins) = watched().await;
    for raw in [lab.raw.clone(), lab.raw.http2()] {
        let mut watch = raw.get(format!("{THINGS}?watch=true&timeout=1s")).stream().await;
        assert_eq!(watch.status, 200);
        let events = begins.recv().await.unwrap();
        for event in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"MODIFIED\"}\n"] {
            // The next event is sent when this one has arrived, so no event waits for another.
            events.send(event).await.unwrap();
            assert_eq!(watch.next_json().await.unwrap().to_string(), event.trim());
        }
        drop(events);
        // In HTTP/2 the end of the stream may be a separate empty frame.
        while let Some(rest) = watch.next_chunk().await.unwrap() {
            assert!(rest.is_empty(), "the end of the stream is an end here too");
        }
    }
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_call() {
    let (lab, mut begins) = watched().await;
    let mut watch = lab.raw.get(format!("{THINGS}?watch=true")).stream().await;
    let events = begins.recv().await.unwrap();
    events.send("{}\n").await.unwrap();
    watch.next_json().await.unwrap();
    drop(watch);
    tokio::time::timeout(PATIENCE, events.closed()).await.expect("the aggregated server is still listened to");
}

#[tokio::test]
async fn a_stopping_server_ends_watches_at_a_line() {
    let (mut lab, mut begins) = watched().await;
    let mut whole = lab.raw.get(format!("{THINGS}?watch=true")).stream().await;
    let of_whole = begins.recv().await.unwrap();
    of_whole.send("{}\n").await.unwrap();
    let mut cut = lab.raw.get(format!("{THINGS}?watch=true")).stream().await;
    let of_cut = begins.recv().await.unwrap();
    of_cut.send("{\"type\":").await.unwrap();
    whole.next_json().await.unwrap();
    cut.next_chunk().await.unwrap().unwrap();
    let begun = Instant::now();
    lab.server.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(25), "streams of others do not hold up the end");
    assert!(whole.next_chunk().await.unwrap().is_none());
    assert!(cut.next_chunk().await.is_err(), "a part of an event is never taken for the end of the stream");
}

/// Such a stream delays neither the next event nor another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_watch_ends_after_a_whole_event_when_the_server_stops() {
    let mut lab = Lab::start(|request: UpstreamRequest| async move {
        if request.uri().query().is_none_or(|query| !query.contains("watch")) {
            return upstream_echo(request).await;
        }
        // Large pieces, which a client reads as fast as they arrive. No event ends at the end of a piece.
        let piece = Bytes::from("\"ADDED\"}\n{\"type\":".repeat(PIECE / 18));
        let first = stream::once(std::future::ready(Bytes::from("{\"type\":")));
        frames(first.chain(stream::repeat(piece)).map(|piece| Ok(Frame::data(piece))))
    })
    .await;
    let mut watch = lab.raw.get(format!("{THINGS}?watch=true")).stream().await;
    watch.next_chunk().await.unwrap().unwrap();
    let reading = tokio::spawn(async move {
        let mut last = Bytes::new();
        while let Some(chunk) = watch.next_chunk().await.expect("the stream is never broken off") {
            last = if chunk.is_empty() { last } else { chunk };
        }
        last
    });
    lab.server.stop().await;
    let last = reading.await.unwrap();
    assert!(last.ends_with(b"\n"), "{last:?}");
}

#[tokio::test]
async fn a_server_that_dies_breaks_off_the_answer() {
    let (lab, mut begins) = watched().await;
    let mut watch = lab.raw.get(format!("{THINGS}?watch=true")).stream().await;
    let events = begins.recv().await.unwrap();
    events.send("{}\n").await.unwrap();
    watch.next_json().await.unwrap();
    drop(lab.upstream);
    assert!(watch.next_chunk().await.is_err());
}

/// The aggregated server sends an endless response, which the client does not read.
#[tokio::test]
async fn unread_responses_are_held_only_in_connection_buffers() {
    let made = Arc::new(AtomicUsize::new(0));
    let lab = {
        let made = made.clone();
        Lab::http1(move |request: UpstreamRequest| {
            let made = made.clone();
            async move {
                if !request.uri().path().ends_with("/endless") {
                    return upstream_echo(request).await;
                }
                frames(stream::repeat_with(move || {
                    made.fetch_add(PIECE, Ordering::SeqCst);
                    Ok(Frame::data(Bytes::from(vec![b'x'; PIECE])))
                }))
            }
        })
        .await
    };
    let mut endless = lab.raw.get(format!("{THINGS}/endless")).stream().await;
    endless.next_chunk().await.unwrap().unwrap();
    at_rest(&lab, || made.load(Ordering::SeqCst)).await;
    // Once the client reads, the server sends on: far more than all buffers hold.
    let mut read = 0;
    while read < 4 * MOST_HELD {
        read += endless.next_chunk().await.unwrap().unwrap().len();
    }
}

/// Waits until the count no longer grows while other requests are answered: then only the connections' buffers are
/// full.
async fn at_rest(lab: &Lab, count: impl Fn() -> usize) {
    let (mut before, mut same) = (0, 0);
    while same < 20 {
        lab.raw.get(THINGS).await.expect(200);
        let now = count();
        same = if now == before { same + 1 } else { 0 };
        before = now;
        assert!(before < MOST_HELD, "{before}");
    }
}

/// The aggregated server reads nothing of a large request until the test allows it.
#[tokio::test]
async fn unread_requests_are_held_only_in_connection_buffers() {
    let taken = Arc::new(Notify::new());
    let lab = {
        let taken = taken.clone();
        Lab::http1(move |request: UpstreamRequest| {
            let taken = taken.clone();
            async move {
                if request.method() != Method::POST {
                    return upstream_echo(request).await;
                }
                taken.notified().await;
                let mut body = request.into_body();
                let mut bytes = 0;
                while let Some(frame) = body.frame().await {
                    bytes += frame.unwrap().data_ref().map_or(0, Bytes::len);
                }
                upstream_answer(200, "text/plain", bytes.to_string())
            }
        })
        .await
    };
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (mut answers, mut wire) = tokio::io::split(lab.raw.connect().await);
    let (sent, whole) = (Arc::new(AtomicUsize::new(0)), 4 * MOST_HELD);
    let counted = sent.clone();
    let sending = tokio::spawn(async move {
        let head = format!("POST {THINGS} HTTP/1.1\r\nhost: a\r\ncontent-length: {whole}\r\nconnection: close\r\n\r\n");
        wire.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![b'x'; PIECE];
        while counted.load(Ordering::SeqCst) < whole {
            wire.write_all(&piece).await.unwrap();
            wire.flush().await.unwrap();
            counted.fetch_add(PIECE, Ordering::SeqCst);
        }
        wire
    });
    until("nothing of the request is sent", || sent.load(Ordering::SeqCst) > 0).await;
    at_rest(&lab, || sent.load(Ordering::SeqCst)).await;
    taken.notify_one();
    let _wire = sending.await.unwrap();
    let mut answer = String::new();
    answers.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with(&whole.to_string()), "{answer}");
}

#[tokio::test]
async fn trailers_pass_as_other_fields_do() {
    let lab = Lab::http1(|request: UpstreamRequest| async move {
        if !request.uri().path().ends_with("/trailer") {
            return upstream_echo(request).await;
        }
        let fields = [("grpc-status", "0"), ("link", "</a>; rel=preload"), ("x-t", "end")];
        let fields = fields.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let trailers = HeaderMap::from_iter(fields);
        let mut answer = frames(stream::iter([Ok(Frame::data(Bytes::from("ok"))), Ok(Frame::trailers(trailers))]));
        answer.headers_mut().insert("trailer", "grpc-status, link, x-t".parse().unwrap());
        answer
    })
    .await;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut wire = lab.raw.connect().await;
    let asked = format!("GET {THINGS}/trailer HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: close, te\r\n\r\n");
    wire.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = String::new();
    wire.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.contains("trailer: grpc-status, link, x-t\r\n")
            && answer.ends_with("\r\nok\r\n0\r\ngrpc-status: 0\r\n\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_compressed_answer_passes_as_it_is() {
    let lab = Lab::start(|request: UpstreamRequest| async move {
        if request.headers().get("accept-encoding").is_none_or(|value| value != "gzip") {
            return upstream_echo(request).await;
        }
        let mut answer = upstream_answer(200, "application/json", &b"\x1f\x8bnot really"[..]);
        answer.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        answer
    })
    .await;
    let answer = lab.raw.get(THINGS).header("accept-encoding", "gzip").await.expect(200);
    assert_eq!((answer.header("content-encoding"), &answer.body[..]), ("gzip", &b"\x1f\x8bnot really"[..]));
}

/// All seats of the hanging server are taken, and requests wait for a seat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_server_delays_only_its_own_requests() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let builder = TestServer::builder().configure(|config| {
        (config.flow.requests, config.flow.mutating) = (40, 20);
    });
    let lab = Lab::http1_beside(builder, move |request: UpstreamRequest| {
        let begun = counted.clone();
        async move {
            if request.uri().path().ends_with("/hangs") {
                begun.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
            upstream_echo(request).await
        }
    })
    .await;
    let asked = 200;
    let hanging: Vec<_> = (0..asked)
        .map(|_| {
            let call = lab.raw.clone().get(format!("{THINGS}/hangs?timeout=50s"));
            tokio::spawn(call.try_send())
        })
        .collect();
    until("not all requests are passed on", || begun.load(Ordering::SeqCst) == asked).await;
    // The main server has fewer seats for its own requests than these, and all of them are free.
    for path in ["/api/v1/namespaces", "/apis", "/livez", "/readyz", THINGS] {
        lab.raw.get(path).await.expect(200);
    }
    let late = lab.raw.get(format!("{THINGS}/hangs?timeout=1s")).await.expect(504).json();
    assert_eq!(late["reason"], "Timeout");
    assert_eq!(late["message"], "Timeout: request did not complete within the allotted timeout");
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    until("connections stay though nobody waits", || lab.upstream.open_connections() < asked / 2).await;
}
