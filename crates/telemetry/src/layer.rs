//! The layer that records spans, and access to the record of the current span.
//!
//! All spans of a trace in this process share its [`Trace`]. While a request's client is not authenticated, the trace
//! holds the ended spans back, since the client may be allowed to decide about the trace.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use http::HeaderMap;
use keelson_meta::Random;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tracing::Span;
use tracing::span::{Attributes, Id, Record as Values};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::context::{TRACEPARENT, TraceContext};
use crate::record::{FinishedSpan, Record, cut};

/// The most ended spans that wait for the exporter, as upstream.
const QUEUE: usize = 2048;
/// The most ended spans that wait for the authentication of a request.
const HELD_BACK: usize = 16;
/// The rate at which every trace is recorded.
const MILLION: u32 = 1_000_000;

/// True while a layer is in use.
static IS_RECORDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The context in the headers of the request whose span is being created.
    static REMOTE: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// The receiver of ended spans.
pub type FinishedSpans = Receiver<FinishedSpan>;

/// The numbers of ended spans.
#[derive(Debug, Default)]
pub struct Counts {
    /// Spans that the collector has.
    pub exported: AtomicU64,
    /// Spans dropped since the queue was full.
    pub overflowed: AtomicU64,
    /// Spans dropped since the collector did not take them.
    pub failed: AtomicU64,
}

/// Records spans.
pub struct SpanLayer {
    /// The number of traces in a million that are recorded if the client does not decide.
    rate: u32,
    random: Arc<dyn Random>,
    queue: Sender<FinishedSpan>,
    counts: Arc<Counts>,
}

impl std::fmt::Debug for SpanLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpanLayer").field("rate", &self.rate).finish_non_exhaustive()
    }
}

/// A trace in this process.
#[derive(Debug)]
struct Trace(Mutex<TraceState>);

#[derive(Debug)]
struct TraceState {
    id: u128,
    is_sampled: bool,
    /// The client's context.
    remote: Option<TraceContext>,
    remote_parent: RemoteParent,
    held_back: Vec<FinishedSpan>,
}

/// The decision to continue the trace of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemoteParent {
    /// Undecided until the client is authenticated.
    Undecided,
    /// The trace continues the one of the client.
    Accepted,
    /// The trace is a new one of this server.
    Ignored,
}

/// The record of a span, in its extensions.
struct Recorded {
    trace: Arc<Trace>,
    id: u64,
    /// `None` for the first span of the trace in this process.
    parent: Option<u64>,
    /// `None` if the trace is not recorded.
    record: Option<Record>,
}

impl Recorded {
    fn context(&self) -> TraceContext {
        let state = self.trace.0.lock();
        TraceContext { trace: state.id, span: self.id, is_sampled: state.is_sampled }
    }
}

impl SpanLayer {
    /// Creates a layer that records this number of traces in a million. Also returns the ended spans, and their counts.
    pub fn new(rate_per_million: u32, random: Arc<dyn Random>) -> (Self, FinishedSpans, Arc<Counts>) {
        let (queue, finished) = mpsc::channel(QUEUE);
        let counts = Arc::<Counts>::default();
        IS_RECORDING.store(true, Ordering::Relaxed);
        (Self { rate: rate_per_million.min(MILLION), random, queue, counts: counts.clone() }, finished, counts)
    }

    /// A new trace, of the client with this context if there is one.
    fn trace(&self, remote: Option<TraceContext>) -> Trace {
        let id = loop {
            let id = u128::from(self.random.u64()) << 64 | u128::from(self.random.u64());
            if id != 0 {
                break id;
            }
        };
        // The lower half of the id is random in all programs, so it decides as in OpenTelemetry's samplers.
        let bound = (u128::from(self.rate) << 63) / u128::from(MILLION);
        let is_sampled = u128::from(id as u64 >> 1) < bound;
        let remote_parent = if remote.is_some() { RemoteParent::Undecided } else { RemoteParent::Ignored };
        Trace(Mutex::new(TraceState { id, is_sampled, remote, remote_parent, held_back: Vec::new() }))
    }

    fn span_id(&self) -> u64 {
        self.random.u64().max(1)
    }

    fn send(&self, span: FinishedSpan) {
        if self.queue.try_send(span).is_err() {
            self.counts.overflowed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Trace {
    /// True if the trace is recorded, or may be after the client is known.
    fn may_be_sampled(&self) -> bool {
        let state = self.0.lock();
        state.is_sampled
            || state.remote_parent == RemoteParent::Undecided && state.remote.is_some_and(|remote| remote.is_sampled)
    }

    /// Decides once if the trace continues the one of the client.
    fn settle(&self, is_trusted: bool) {
        let mut state = self.0.lock();
        if state.remote_parent != RemoteParent::Undecided {
            return;
        }
        state.remote_parent = RemoteParent::Ignored;
        if let Some(remote) = state.remote.filter(|_| is_trusted) {
            (state.remote_parent, state.id, state.is_sampled) =
                (RemoteParent::Accepted, remote.trace, remote.is_sampled);
        }
    }

    /// The spans that can be exported after this one has ended. Empty while they are held back, and if the trace is not
    /// recorded.
    fn ended(&self, mut span: FinishedSpan, is_first: bool) -> Vec<FinishedSpan> {
        if is_first {
            self.settle(false);
        }
        let mut state = self.0.lock();
        if is_first {
            match state.remote_parent {
                RemoteParent::Accepted => span.parent = state.remote.map(|remote| remote.span),
                RemoteParent::Ignored | RemoteParent::Undecided => span.link = state.remote,
            }
        }
        if state.remote_parent == RemoteParent::Undecided {
            if state.held_back.len() < HELD_BACK {
                state.held_back.push(span);
            }
            return Vec::new();
        }
        let mut ready = std::mem::take(&mut state.held_back);
        ready.push(span);
        if !state.is_sampled {
            return Vec::new();
        }
        for span in &mut ready {
            (span.context.trace, span.context.is_sampled) = (state.id, true);
        }
        ready
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let around = span.scope().skip(1).find_map(|around| {
            let extensions = around.extensions();
            let recorded = extensions.get::<Recorded>()?;
            Some((recorded.trace.clone(), recorded.id))
        });
        let remote = REMOTE.take();
        let (trace, parent) = match around {
            Some((trace, parent)) => (trace, Some(parent)),
            None => (Arc::new(self.trace(remote)), None),
        };
        let record = trace.may_be_sampled().then(|| {
            let mut record = Record::begin(attributes.metadata().name());
            attributes.record(&mut record);
            record
        });
        span.extensions_mut().insert(Recorded { trace, id: self.span_id(), parent, record });
    }

    fn on_record(&self, id: &Id, values: &Values<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if let Some(record) = extensions.get_mut::<Recorded>().and_then(|recorded| recorded.record.as_mut()) {
            values.record(record);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(recorded) = span.extensions_mut().remove::<Recorded>() else { return };
        let (is_first, context) = (recorded.parent.is_none(), recorded.context());
        let Some(Record { name, kind, started, attributes, error }) = recorded.record else { return };
        let finished = FinishedSpan {
            context,
            parent: recorded.parent,
            link: None,
            name,
            kind,
            started,
            ended: SystemTime::now(),
            attributes,
            error,
        };
        for ready in recorded.trace.ended(finished, is_first) {
            self.send(ready);
        }
    }
}

/// Returns true if spans are recorded in this process.
pub fn is_recording() -> bool {
    IS_RECORDING.load(Ordering::Relaxed)
}

/// Creates the span of a request with `make`. The client's context in its headers counts after [`settle`].
pub fn request(headers: &HeaderMap, make: impl FnOnce() -> Span) -> Span {
    if !is_recording() {
        return make();
    }
    REMOTE.set(TraceContext::from_headers(headers));
    let span = make();
    REMOTE.set(None);
    span
}

/// Decides about the context that a request's client has sent. A trusted client's trace is extended, and the client
/// decides whether it is recorded. Another client's span is only named by the request's.
pub fn settle(span: &Span, is_trusted: impl FnOnce() -> bool) {
    if is_recording() {
        with_record(span, |recorded| {
            let is_open = recorded.trace.0.lock().remote_parent == RemoteParent::Undecided;
            if is_open {
                recorded.trace.settle(is_trusted());
            }
        });
    }
}

/// Names a span for the exporter. `tracing` knows only names that are constants.
pub fn name(span: &Span, name: impl FnOnce() -> String) {
    if is_recording() {
        with_record(span, |recorded| {
            if let Some(record) = &mut recorded.record {
                record.name = cut(&name()).to_owned();
            }
        });
    }
}

/// Runs `act` with the record of a span.
fn with_record<T>(span: &Span, act: impl FnOnce(&mut Recorded) -> T) -> Option<T> {
    let acted = span.with_subscriber(|(id, subscriber)| {
        let span = subscriber.downcast_ref::<Registry>()?.span(id)?;
        let mut extensions = span.extensions_mut();
        extensions.get_mut::<Recorded>().map(act)
    });
    acted.flatten()
}

/// The position of the current span, if it is recorded.
pub fn current() -> Option<TraceContext> {
    if !is_recording() {
        return None;
    }
    tracing::dispatcher::get_default(|subscriber| {
        let registry = subscriber.downcast_ref::<Registry>()?;
        let current = subscriber.current_span();
        let span = registry.span(current.id()?)?;
        span.scope().find_map(|span| span.extensions().get::<Recorded>().map(Recorded::context))
    })
}

/// Sets the header of an outgoing request to the position of the current span, if it is recorded.
pub fn inject(headers: &mut HeaderMap) {
    if let Some(context) = current() {
        headers.insert(TRACEPARENT, context.header());
    }
}

#[cfg(test)]
mod tests;
