//! The record of a run: all requests with their answers, all watches, and the trace.
//!
//! `check.rs` checks the record. The trace is for readers, and for the comparison of runs.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Instant;

use keelson_verify::history::{Operation, State};
use parking_lot::Mutex;
use serde_json::Value;

use crate::plan::Kind;

/// The annotation that names a write.
pub(crate) const MARK: &str = "sim.example.com/mark";

/// The requests of a run, and what clients saw.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) requests: Vec<Request>,
    pub(crate) lists: Vec<Listing>,
    pub(crate) watches: Vec<Watched>,
    /// The positions of all watchers, by their number.
    pub(crate) positions: BTreeMap<usize, (Kind, u64)>,
    /// Clients that have sent all requests.
    pub(crate) ended: usize,
    pub(crate) probed: usize,
    pub(crate) unanswered: u64,
    pub(crate) expired: u64,
}

/// A request to one object.
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) operation: Operation,
    /// The resource version of the answer.
    pub(crate) version: Option<u64>,
    /// True if it was to create the object.
    pub(crate) is_create: bool,
}

/// A server, by its number and that of its process.
pub(crate) type Process = (usize, u64);

/// A list, or all chunks of a walk.
pub(crate) struct Listing {
    pub(crate) text: String,
    pub(crate) kind: Kind,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) revision: u64,
    /// The resource versions and marks of the objects, by their names.
    pub(crate) items: BTreeMap<String, (u64, String)>,
    /// True if it asked for any state.
    pub(crate) is_any: bool,
    /// The process that answered it alone.
    pub(crate) process: Option<Process>,
}

/// The stream of one watch request.
pub(crate) struct Watched {
    pub(crate) text: String,
    pub(crate) kind: Kind,
    pub(crate) start: u64,
    pub(crate) steps: Vec<WatchStep>,
}

/// A step of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchStep {
    Event { kind: String, name: String, revision: u64, state: State },
    Bookmark(u64),
}

impl WatchStep {
    pub(crate) fn revision(&self) -> u64 {
        match self {
            Self::Event { revision, .. } | Self::Bookmark(revision) => *revision,
        }
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn version_of(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

pub(crate) fn mark_of(object: &Value) -> String {
    text(&object["metadata"]["annotations"][MARK])
}

/// The trace: one line for each step, with the simulated time. Clones are the same trace.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<TraceState>>);

#[derive(Default)]
struct TraceState {
    now_ms: u64,
    text: String,
}

impl Trace {
    pub(crate) fn set(&self, now_ms: u64) {
        self.0.lock().now_ms = now_ms;
    }

    pub(crate) fn line(&self, line: fmt::Arguments<'_>) {
        let mut state = self.0.lock();
        let now = state.now_ms;
        // Writing to a string does not fail.
        let _ = writeln!(state.text, "{now:>7} {line}");
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().text.clone()
    }
}
