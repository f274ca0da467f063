//! The spans of calls to other servers.
//!
//! A span has the host and the path. The query may contain data of clients, so it is left out.

use std::fmt::Display;

use http::{Method, StatusCode};
use tracing::field::Empty;
use tracing::{Span, debug_span};

/// Creates the span of a call.
pub(crate) fn call_span(method: &Method, host: &str, path: &str) -> Span {
    debug_span!("outbound call", method = method.as_str(), host, path, code = Empty, error = Empty)
}

/// Records the outcome of a call.
pub(crate) fn note_answer<E: Display>(span: &Span, answered: Result<StatusCode, &E>) {
    match answered {
        Ok(code) => span.record("code", code.as_u16()),
        Err(error) => span.record("error", tracing::field::display(error)),
    };
}
