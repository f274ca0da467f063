//! The filter of a watch with a query: evaluates the objects of its events. A watch with field selectors on objects
//! that a webhook converts is filtered here too, after the conversion.
//!
//! Evaluation takes time: a condition may take milliseconds for each object. It therefore runs in turns of about a
//! millisecond. The remaining events wait here, at most one step of the watch. The watch pauses between turns for
//! longer than a turn took. A watch that cannot keep up falls behind the history and ends with that error, as any
//! watch.

use std::collections::VecDeque;
use std::sync::Arc;

use keelson_cache::{Entry, Event, FrameKind};
use keelson_meta::ApiError;
use keelson_supervision::turns;
use tokio::time::{Instant, sleep_until};

use super::WatchOutput;
use crate::query::QueryEvaluator;
use crate::selection::Selection;

/// A turn ends after evaluating this many bytes: about a millisecond.
const TURN_BYTES: u64 = 256 << 10;
/// The pause after a turn, as a multiple of its duration: at most a fifth of a thread.
const RESTED_TURNS: u32 = 4;

/// The largest number of objects and events that are converted and evaluated at once: a step of the watch.
const CONVERTED_AT_ONCE: usize = 128;

/// The events that are not evaluated yet.
pub(super) struct QueriedEvents {
    by: By,
    undecided: VecDeque<PendingEvents>,
    /// The end of the pause after the last turn.
    rested: Instant,
}

/// The criterion of the filter.
enum By {
    Query(Arc<QueryEvaluator>),
    /// A selection by fields of converted objects.
    Converted(Selection),
}

#[derive(Clone)]
enum PendingEvents {
    Initial(Arc<Entry>),
    Event(Arc<Event>),
}

impl QueriedEvents {
    pub(super) fn new(wanted: Arc<QueryEvaluator>) -> Self {
        Self { by: By::Query(wanted), undecided: VecDeque::new(), rested: Instant::now() }
    }

    /// A filter by fields of converted objects.
    pub(super) fn of_converted(selection: Selection) -> Self {
        Self { by: By::Converted(selection), undecided: VecDeque::new(), rested: Instant::now() }
    }

    /// Returns true if all events are evaluated.
    pub(super) fn is_settled(&self) -> bool {
        self.undecided.is_empty()
    }

    /// Adds objects that existed when the watch began.
    pub(super) fn take_objects<'e>(&mut self, entries: impl Iterator<Item = &'e Arc<Entry>>) {
        self.undecided.extend(entries.cloned().map(PendingEvents::Initial));
    }

    /// Adds events.
    pub(super) fn take_events<'e>(&mut self, events: impl Iterator<Item = &'e Arc<Event>>) {
        self.undecided.extend(events.cloned().map(PendingEvents::Event));
    }

    /// Waits for the end of the pause after the last turn.
    async fn rest(&self) {
        if self.rested > Instant::now() {
            sleep_until(self.rested).await;
        }
    }

    /// Evaluates the next events: one turn, after the pause of the turn before.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// 400 for an object that cannot be evaluated, 500 for one that cannot be converted.
    pub(super) async fn decide(&mut self) -> Result<Vec<WatchOutput>, ApiError> {
        self.rest().await;
        let begun = Instant::now();
        let wanted = match &self.by {
            By::Query(wanted) => wanted.clone(),
            By::Converted(selection) => {
                let next: Vec<PendingEvents> = self.undecided.iter().take(CONVERTED_AT_ONCE).cloned().collect();
                let decided = next.len();
                let outputs = selected(selection, next).await?;
                self.undecided.drain(..decided);
                return Ok(outputs);
            }
        };
        let mut outputs = Vec::new();
        let is_heavy = |undecided: &PendingEvents| undecided.looks().any(|entry| wanted.is_heavy(entry));
        match self.undecided.front() {
            Some(next) if is_heavy(next) => {
                let (wanted, next) = (wanted.clone(), next.clone());
                outputs.extend(turns::blocking(move || output_of(&wanted, next)).await);
                self.undecided.pop_front();
            }
            Some(_) | None => {
                let mut work = 0;
                while work < TURN_BYTES && self.undecided.front().is_some_and(|next| !is_heavy(next)) {
                    let Some(next) = self.undecided.pop_front() else { break };
                    work += next.looks().map(|entry| wanted.weight(entry)).sum::<u64>();
                    outputs.extend(output_of(&wanted, next));
                }
            }
        }
        wanted.check_known()?;
        let ended = Instant::now();
        self.rested = ended + (ended - begun) * RESTED_TURNS;
        Ok(outputs)
    }
}

impl PendingEvents {
    /// The objects that are evaluated.
    fn looks(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let looks = match self {
            Self::Initial(entry) => [Some(entry), None],
            Self::Event(event) => [event.previous.as_ref(), event.current.as_ref()],
        };
        looks.into_iter().flatten()
    }
}

/// An object that begins to match the query is added, and one that no longer matches is deleted.
fn output_of(wanted: &QueryEvaluator, undecided: PendingEvents) -> Option<WatchOutput> {
    match undecided {
        PendingEvents::Initial(entry) => wanted.wants(&entry).then_some(WatchOutput::Initial(entry)),
        PendingEvents::Event(event) => {
            let wants = |entry: &Option<Arc<Entry>>| entry.as_ref().is_some_and(|entry| wanted.wants(entry));
            let kind = frame_kind(wants(&event.previous), wants(&event.current))?;
            Some(WatchOutput::Event(kind, event))
        }
    }
}

/// The outputs for objects and events that the selection selects after their conversion.
async fn selected(selection: &Selection, undecided: Vec<PendingEvents>) -> Result<Vec<WatchOutput>, ApiError> {
    let looks: Vec<Arc<Entry>> = undecided.iter().flat_map(PendingEvents::looks).cloned().collect();
    let mut shown = selection.shown(looks).await?.into_iter();
    let outputs = undecided.into_iter().filter_map(|undecided| match undecided {
        PendingEvents::Initial(_) => shown.next().flatten().map(WatchOutput::Initial),
        PendingEvents::Event(event) => {
            let mut is_selected = |entry: &Option<Arc<Entry>>| entry.is_some() && shown.next().flatten().is_some();
            let (before, after) = (is_selected(&event.previous), is_selected(&event.current));
            Some(WatchOutput::Event(frame_kind(before, after)?, event))
        }
    });
    Ok(outputs.collect())
}

/// The kind of an event, for an object that was selected `before` it and is selected `after` it.
pub(super) fn frame_kind(before: bool, after: bool) -> Option<FrameKind> {
    match (before, after) {
        (false, false) => None,
        (false, true) => Some(FrameKind::Added),
        (true, true) => Some(FrameKind::Modified),
        (true, false) => Some(FrameKind::Deleted),
    }
}
