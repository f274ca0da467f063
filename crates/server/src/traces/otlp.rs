//! The messages of OTLP for traces, and spans in their form.
//!
//! Written by hand after the published definitions, so that a build needs no `protoc`.

use std::time::{SystemTime, UNIX_EPOCH};

use keelson_telemetry::{FinishedSpan, SpanKind, TraceContext, Value};
use prost::{Message, Oneof};

/// The method of a collector.
pub(super) const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The code of a span that failed.
const FAILED: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

/// The server that the spans are of.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AnyKind", tags = "1, 2, 3, 4")]
    value: Option<AnyKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum AnyKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Switch(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(double, tag = "4")]
    Float(f64),
}

impl Resource {
    /// A server of this name.
    pub(super) fn new(service: &str, version: &str, server_id: &str) -> Self {
        let text = |key: &str, value: &str| KeyValue::new(key, Value::Text(value.to_owned()));
        let attributes = vec![
            text("service.name", service),
            text("service.version", version),
            text("service.instance.id", server_id),
        ];
        Self { attributes }
    }
}

impl ExportRequest {
    /// Spans of a server.
    pub(super) fn new(resource: &Resource, spans: Vec<FinishedSpan>) -> Self {
        let scope = Scope { name: "keelson".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let spans = spans.into_iter().map(Span::from).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        Self { resource_spans: vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }] }
    }
}

impl KeyValue {
    fn new(key: &str, value: Value) -> Self {
        let value = match value {
            Value::Text(text) => AnyKind::Text(text),
            Value::Number(number) => AnyKind::Number(number),
            Value::Float(number) => AnyKind::Float(number),
            Value::Switch(switch) => AnyKind::Switch(switch),
        };
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }
}

impl From<FinishedSpan> for Span {
    fn from(span: FinishedSpan) -> Self {
        let kind = match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        };
        let link = |TraceContext { trace, span, .. }| Link { trace_id: id(trace), span_id: id_of_span(span) };
        Self {
            trace_id: id(span.context.trace),
            span_id: id_of_span(span.context.span),
            parent_span_id: span.parent.map(id_of_span).unwrap_or_default(),
            name: span.name,
            kind,
            start_time_unix_nano: nanoseconds(span.started),
            end_time_unix_nano: nanoseconds(span.ended.max(span.started)),
            attributes: span.attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect(),
            links: span.link.map(link).into_iter().collect(),
            status: span.error.map(|message| Status { message, code: FAILED }),
        }
    }
}

fn id(trace: u128) -> Vec<u8> {
    trace.to_be_bytes().to_vec()
}

fn id_of_span(span: u64) -> Vec<u8> {
    span.to_be_bytes().to_vec()
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
