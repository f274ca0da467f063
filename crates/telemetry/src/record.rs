//! A span while it lasts, and as the exporter gets it.
//!
//! The number and the size of attributes are limited, since names and errors come from clients and other servers.

use std::fmt;
use std::time::SystemTime;

use tracing::field::{Field, Visit};

use crate::context::TraceContext;

/// The most attributes of a span. Further ones are dropped.
const MOST_ATTRIBUTES: usize = 24;
/// The largest text of an attribute, in bytes. The rest of the text is dropped.
const MOST_BYTES: usize = 1024;
/// The field with the error of a span.
const ERROR: &str = "error";
/// The field with the HTTP status code of a span.
pub(crate) const CODE: &str = "code";
/// Fields that kube-apiserver's spans have under other names.
const RENAMED: [(&str, &str); 4] = [
    ("audit_id", "audit-id"),
    ("method", "http.request.method"),
    ("target", "http.target"),
    (CODE, "http.response.status_code"),
];

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Switch(bool),
}

/// The kind of a span, as in OpenTelemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside of this server.
    #[default]
    Internal,
    /// A request of a client.
    Server,
    /// A call to another server.
    Client,
}

impl SpanKind {
    /// The kind of spans with this name.
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "request" => Self::Server,
            "outbound call" | "etcd call" | "kms call" => Self::Client,
            _ => Self::Internal,
        }
    }
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    /// The position of the span.
    pub context: TraceContext,
    /// The id of the span around it. `None` for the first span of a trace.
    pub parent: Option<u64>,
    /// The position of the client's span, if the client has no right to extend its trace.
    pub link: Option<TraceContext>,
    /// The name.
    pub name: String,
    /// Internal, server or client.
    pub kind: SpanKind,
    /// The start.
    pub started: SystemTime,
    /// The end.
    pub ended: SystemTime,
    /// The attributes.
    pub attributes: Vec<(&'static str, Value)>,
    /// The error. An empty text for a request that failed with a code of 500 or more.
    pub error: Option<String>,
}

/// The content of a span while it lasts.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) started: SystemTime,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) error: Option<String>,
}

impl Record {
    pub(crate) fn begin(name: &str) -> Self {
        let (kind, started) = (SpanKind::from_name(name), SystemTime::now());
        Self { name: name.to_owned(), kind, started, attributes: Vec::new(), error: None }
    }

    fn set(&mut self, field: &Field, value: Value) {
        if field.name() == ERROR {
            self.error = Some(match value {
                Value::Text(text) => text,
                other => format!("{other:?}"),
            });
            return;
        }
        if let (CODE, SpanKind::Server, Value::Number(500..)) = (field.name(), self.kind, &value) {
            self.error.get_or_insert_default();
        }
        let renamed = RENAMED.iter().find(|(name, _)| *name == field.name());
        let name = renamed.map_or(field.name(), |(_, name)| name);
        if let Some((_, known)) = self.attributes.iter_mut().find(|(known, _)| *known == name) {
            *known = value;
        } else if self.attributes.len() < MOST_ATTRIBUTES {
            self.attributes.push((name, value));
        }
    }
}

impl Visit for Record {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, Value::Float(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Value::Number(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Value::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Value::Switch(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, Value::Text(cut(value).to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = Bounded(String::new());
        // An error only says that the text is full.
        let _ = fmt::write(&mut text, format_args!("{value:?}"));
        self.set(field, Value::Text(text.0));
    }
}

/// The start of a text that an attribute can have.
pub(crate) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_BYTES)]
}

/// A text of limited size.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = MOST_BYTES - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(free)]);
        if text.len() > free { Err(fmt::Error) } else { Ok(()) }
    }
}
