//! Tests of the layer: parents, sampling, the client's context, and limits.
//!
//! Each test has a subscriber of its own for its thread.

use http::HeaderValue;
use keelson_meta::random::SystemRandom;
use tracing::{Level, debug_span, span};
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::record::{SpanKind, Value};

const REMOTE_ID: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;

fn headers(flags: &str) -> HeaderMap {
    let value = format!("00-{REMOTE_ID:032x}-00f067aa0ba902b7-{flags}");
    HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_str(&value).unwrap())])
}

/// The spans of `act` at this rate, in the order of their ends.
fn recorded(rate: u32, act: impl FnOnce()) -> (Vec<FinishedSpan>, Arc<Counts>) {
    let (layer, mut finished, counts) = SpanLayer::new(rate, Arc::new(SystemRandom));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
    let mut spans = Vec::new();
    while let Ok(span) = finished.try_recv() {
        spans.push(span);
    }
    (spans, counts)
}

/// Sends a request that is authenticated, and then calls another server.
fn request_of(headers: &HeaderMap, is_trusted: Option<bool>) -> HeaderMap {
    let request = request(headers, || debug_span!(parent: None, "request", code = tracing::field::Empty));
    let mut sent = HeaderMap::new();
    request.in_scope(|| {
        debug_span!("authentication").in_scope(|| {});
        if let Some(is_trusted) = is_trusted {
            settle(&request, || is_trusted);
        }
        debug_span!("outbound call", "to" = "hook").in_scope(|| inject(&mut sent));
    });
    name(&request, || "GET /api/v1/pods".to_owned());
    request.record("code", 503);
    sent
}

#[test]
fn spans_have_parents_names_and_errors() {
    let (spans, _) = recorded(MILLION, || {
        request_of(&HeaderMap::new(), Some(true));
    });
    let names: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.kind)).collect();
    assert_eq!(
        names,
        [
            ("authentication", SpanKind::Internal),
            ("outbound call", SpanKind::Client),
            ("GET /api/v1/pods", SpanKind::Server)
        ]
    );
    let request = &spans[2];
    assert!(request.parent.is_none() && request.link.is_none() && request.error.is_some());
    assert_eq!(request.attributes, [("http.response.status_code", Value::Number(503))]);
    for span in &spans[..2] {
        assert_eq!((span.parent, span.context.trace), (Some(request.context.span), request.context.trace));
    }
}

#[test]
fn a_trusted_client_decides_about_its_trace() {
    for (rate, flags, is_sampled) in [(0, "01", true), (MILLION, "00", false)] {
        let mut sent = HeaderMap::new();
        let (spans, _) = recorded(rate, || sent = request_of(&headers(flags), Some(true)));
        assert_eq!(spans.len(), if is_sampled { 3 } else { 0 });
        for span in &spans {
            assert_eq!(span.context.trace, REMOTE_ID, "{}", span.name);
        }
        assert_eq!(spans.last().map(|span| span.parent), is_sampled.then_some(Some(0x00f0_67aa_0ba9_02b7)));
        let passed_on = TraceContext::from_headers(&sent).unwrap();
        assert_eq!((passed_on.trace, passed_on.is_sampled), (REMOTE_ID, is_sampled));
    }
}

#[test]
fn another_client_decides_nothing() {
    for is_trusted in [Some(false), None] {
        let mut sent = HeaderMap::new();
        let (spans, _) = recorded(0, || sent = request_of(&headers("01"), is_trusted));
        assert!(spans.is_empty());
        assert_ne!(TraceContext::from_headers(&sent).unwrap().trace, REMOTE_ID);
        let (spans, _) = recorded(MILLION, || sent = request_of(&headers("00"), is_trusted));
        assert_eq!(spans.len(), 3);
        let request = spans.last().unwrap();
        assert_ne!(request.context.trace, REMOTE_ID);
        assert_eq!((request.parent, request.link.unwrap().trace), (None, REMOTE_ID));
    }
}

#[test]
fn the_rate_is_a_share_of_traces() {
    let (spans, _) = recorded(500_000, || {
        for _ in 0..1000 {
            debug_span!(parent: None, "step").in_scope(|| debug_span!("inner").in_scope(|| {}));
        }
    });
    assert!((800..1200).contains(&spans.len()) && spans.len() % 2 == 0, "{}", spans.len());
}

#[test]
fn a_full_queue_drops_spans_and_counts_them() {
    let (spans, counts) = recorded(MILLION, || {
        for _ in 0..QUEUE + 7 {
            drop(debug_span!("step"));
        }
    });
    assert_eq!((spans.len(), counts.overflowed.load(Ordering::Relaxed)), (QUEUE, 7));
}

#[test]
fn attributes_are_bounded() {
    let long = "\u{e4}".repeat(100_000);
    let (spans, _) = recorded(MILLION, || {
        drop(span!(Level::DEBUG, "step", plain = long.as_str(), shown = %long, debugged = ?long, error = %long));
    });
    for (name, value) in &spans[0].attributes {
        assert!(matches!(value, Value::Text(text) if (1000..=1024).contains(&text.len())), "{name}");
    }
    assert!(spans[0].error.as_ref().is_some_and(|error| error.len() <= 1024));
    assert_eq!(spans[0].attributes.len(), 3);
}
