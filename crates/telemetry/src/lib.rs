//! Traces of requests: the spans of `tracing` as spans with ids, and the trace context of other programs.
//!
//! [`SpanLayer`] gives each span of the server an id, a trace and a sampling decision, and puts finished spans of sampled
//! traces into a bounded queue. The exporter that empties the queue is elsewhere, so this crate knows no protocol. Code
//! creates spans with the macros of `tracing`. Without the layer such a span costs one comparison of levels.
//!
//! Invariants:
//! - A span never waits: a full queue drops it and counts it.
//! - The trace context of a client is used only after [`settle`] has decided that the client is trusted.

mod context;
mod layer;
mod record;

pub use context::{TRACEPARENT, TraceContext};
pub use layer::{Counts, FinishedSpans, SpanLayer, current, inject, is_recording, name, request, settle};
pub use record::{FinishedSpan, SpanKind, Value};
