//! A destination of events: serializes and truncates events, frames batches and sends them.
//!
//! Events whose sending is interrupted count as lost. Objects that take long to serialize are serialized on a thread
//! that serves no requests.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::auditor::AuditCounts;
use super::event::AuditEvent;
use super::policy::Level;
use super::queue::{Batch, QueuedEvent, QueuedForm};

/// The reason of losses after the server has stopped.
pub(super) const STOPPED: &str = "the server has stopped";

/// A destination of events.
pub trait Sink: Send + Sync + 'static {
    /// The label in the metric of lost events.
    fn name(&self) -> &'static str;

    /// The bytes before, between and after the events of a batch.
    fn frame(&self) -> [&'static [u8]; 3];

    /// Appends an event in the format of the sink.
    fn write(&self, event: &AuditEvent<'_>, out: &mut Vec<u8>);

    /// Writes or sends a batch. The error is the reason why its events are lost.
    fn send(&self, batch: Vec<u8>) -> BoxFuture<'_, Result<(), String>>;
}

/// The size limits of events and batches.
#[derive(Clone, Copy, Debug)]
pub struct Truncation {
    /// The largest event in bytes. A larger event loses its objects, and is lost if that does not suffice.
    pub event: usize,
    /// The largest batch in bytes. A larger batch is split.
    pub batch: usize,
}

/// Serializes events.
#[derive(Clone)]
pub(super) struct Forms {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) truncation: Option<Truncation>,
    pub(super) counts: Arc<AuditCounts>,
}

/// A serialized batch with its waiting requests.
struct SerializedBatch {
    bytes: Vec<u8>,
    events: usize,
    waiting: Vec<oneshot::Sender<bool>>,
}

/// Events whose outcome is unknown. When dropped they count as lost, although bytes that the system already has may
/// still be written.
struct UnknownOutcomes {
    forms: Forms,
    events: usize,
}

impl UnknownOutcomes {
    /// Records the outcome of some events: written, or lost for this reason.
    fn settle(&mut self, events: usize, lost: Option<String>) {
        self.events = self.events.saturating_sub(events);
        if let Some(why) = lost {
            self.forms.lose(events, why);
        }
    }
}

impl Drop for UnknownOutcomes {
    fn drop(&mut self) {
        self.forms.lose(self.events, STOPPED);
    }
}

impl Forms {
    /// Counts events that were taken from the queue and lost.
    pub(super) fn lose(&self, events: usize, why: impl Into<Cow<'static, str>>) {
        self.counts.lose(self.sink.name(), events, why);
    }

    /// Sends a batch. If the future is dropped, unwritten events count as lost.
    pub(super) fn send(self, batch: Batch) -> impl Future<Output = ()> + Send {
        let mut unsettled = UnknownOutcomes { events: batch.events.len(), forms: self.clone() };
        async move {
            // Converting objects may take long if they are megabytes in another format, and this thread also serves
            // requests.
            let is_heavy = |queued: &QueuedEvent| matches!(&queued.form, QueuedForm::Held(held) if held.is_heavy());
            let framed = if batch.events.iter().any(is_heavy) {
                let forms = self.clone();
                keelson_supervision::spawn_blocking(move || forms.framed(batch)).await
            } else {
                Ok(self.framed(batch))
            };
            let batches = match framed {
                Ok(batches) => batches,
                Err(error) => return unsettled.settle(unsettled.events, Some(error.to_string())),
            };
            // Events too long for a batch are already counted.
            unsettled.events = batches.iter().map(|batch| batch.events).sum();
            for batch in batches {
                let sent = self.sink.send(batch.bytes).await;
                let is_sent = sent.is_ok();
                unsettled.settle(batch.events, sent.err());
                for waiting in batch.waiting {
                    // The waiting request may have been cancelled.
                    let _ = waiting.send(is_sent);
                }
            }
        }
    }

    /// Serializes events into batches.
    fn framed(&self, batch: Batch) -> Vec<SerializedBatch> {
        let [opening, between, closing] = self.sink.frame();
        let bound = self.truncation.map_or(usize::MAX, |bounds| bounds.batch);
        let is_line = |queued: &QueuedEvent| matches!(queued.form, QueuedForm::Line(_));
        if opening.is_empty() && between == closing && batch.lines.len() <= bound && batch.events.iter().all(is_line) {
            // The queued lines already are the batch.
            let (events, lines) = (batch.events.len(), batch.lines);
            let waiting = batch.events.into_iter().filter_map(|queued| queued.written).collect();
            return vec![SerializedBatch { bytes: lines, events, waiting }];
        }
        let mut batches: Vec<SerializedBatch> = Vec::new();
        let (mut written, mut begin) = (Vec::new(), 0);
        for QueuedEvent { form, written: told } in batch.events {
            let line = match form {
                QueuedForm::Line(bytes) => {
                    let line = &batch.lines[begin..begin + bytes];
                    begin += bytes + between.len();
                    line
                }
                QueuedForm::Held(held) => {
                    written.clear();
                    if !self.write(&held.event(), &mut written) {
                        // The loss is counted. Like upstream, no request is refused because its event is too large.
                        let _ = told.map(|told| told.send(true));
                        continue;
                    }
                    &written
                }
            };
            match batches.last_mut().filter(|batch| batch.bytes.len() + line.len() <= bound) {
                Some(batch) => batch.bytes.extend_from_slice(between),
                None => {
                    let room = opening.len() + batch.lines.len() - begin + line.len() + between.len() + closing.len();
                    let mut bytes = Vec::with_capacity(room.min(bound));
                    bytes.extend_from_slice(opening);
                    batches.push(SerializedBatch { bytes, events: 0, waiting: Vec::new() });
                }
            }
            if let Some(batch) = batches.last_mut() {
                batch.bytes.extend_from_slice(line);
                batch.events += 1;
                batch.waiting.extend(told);
            }
        }
        for batch in &mut batches {
            batch.bytes.extend_from_slice(closing);
        }
        batches
    }

    /// Appends an event, without its objects if it is too long. If it is still too long, returns false and appends
    /// nothing.
    pub(super) fn write(&self, event: &AuditEvent<'_>, out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        self.sink.write(event, out);
        let Some(bounds) = self.truncation else { return true };
        if out.len() - begin > bounds.event && event.level() >= Level::Request {
            out.truncate(begin);
            self.sink.write(&event.truncated(), out);
        }
        let fits = out.len() - begin <= bounds.event;
        if !fits {
            out.truncate(begin);
            self.counts.lose("truncate", 1, "event is too large even after truncating");
        }
        fits
    }
}
