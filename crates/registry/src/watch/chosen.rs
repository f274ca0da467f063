//! The choice of a watch with a query: of the objects and events that come to it those that the query wants.
//!
//! To look into objects takes time, and a condition may take milliseconds for each. So what came is decided in turns of about a
//! millisecond: what is left waits here, which is never more than one step of the watch takes, and between turns the watch rests for
//! longer than it worked. One that can't keep up falls behind the history and is told so, as any watch.

use std::collections::VecDeque;
use std::sync::Arc;

use keelson_cache::{Entry, Event, FrameKind};
use keelson_meta::ApiError;
use keelson_supervision::turns;
use tokio::time::{Instant, sleep_until};

use super::WatchOutput;
use crate::query::Wanted;

/// After a look at so many bytes others have their turn: about a millisecond.
const TURN_BYTES: u64 = 256 << 10;
/// How long a watch rests after a turn, in turns: it takes no more than a fifth of a thread.
const RESTED_TURNS: u32 = 4;

/// What a watch with a query has still to decide.
pub(super) struct Chosen {
    wanted: Arc<Wanted>,
    undecided: VecDeque<Undecided>,
    /// Until when it rests.
    rested: Instant,
}

#[derive(Clone)]
enum Undecided {
    Initial(Arc<Entry>),
    Event(Arc<Event>),
}

impl Chosen {
    pub(super) fn new(wanted: Arc<Wanted>) -> Self {
        Self { wanted, undecided: VecDeque::new(), rested: Instant::now() }
    }

    /// Whether all that came is decided.
    pub(super) fn is_settled(&self) -> bool {
        self.undecided.is_empty()
    }

    /// Objects that existed when the watch began.
    pub(super) fn take_objects<'e>(&mut self, entries: impl Iterator<Item = &'e Arc<Entry>>) {
        self.undecided.extend(entries.cloned().map(Undecided::Initial));
    }

    /// Events.
    pub(super) fn take_events<'e>(&mut self, events: impl Iterator<Item = &'e Arc<Event>>) {
        self.undecided.extend(events.cloned().map(Undecided::Event));
    }

    /// Waits as long as it has to rest for the turn before.
    async fn rest(&self) {
        if self.rested > Instant::now() {
            sleep_until(self.rested).await;
        }
    }

    /// What is told of the next of them: one turn of work, behind the rest for the turn before.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// 400 where it can't be told whether an object is wanted.
    pub(super) async fn decide(&mut self) -> Result<Vec<WatchOutput>, ApiError> {
        self.rest().await;
        let begun = Instant::now();
        let mut outputs = Vec::new();
        match self.undecided.front() {
            Some(next) if self.is_heavy(next) => {
                let (wanted, next) = (self.wanted.clone(), next.clone());
                outputs.extend(turns::blocking(move || told(&wanted, next)).await);
                self.undecided.pop_front();
            }
            Some(_) | None => {
                let mut work = 0;
                while work < TURN_BYTES && self.undecided.front().is_some_and(|next| !self.is_heavy(next)) {
                    let Some(next) = self.undecided.pop_front() else { break };
                    work += next.looks().map(|entry| self.wanted.weight(entry)).sum::<u64>();
                    outputs.extend(told(&self.wanted, next));
                }
            }
        }
        self.wanted.check_known()?;
        let ended = Instant::now();
        self.rested = ended + (ended - begun) * RESTED_TURNS;
        Ok(outputs)
    }

    /// Whether it is decided on another thread.
    fn is_heavy(&self, undecided: &Undecided) -> bool {
        undecided.looks().any(|entry| self.wanted.is_heavy(entry))
    }
}

impl Undecided {
    /// What is looked at to decide it.
    fn looks(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let looks = match self {
            Self::Initial(entry) => [Some(entry), None],
            Self::Event(event) => [event.previous.as_ref(), event.current.as_ref()],
        };
        looks.into_iter().flatten()
    }
}

/// An object that the query comes to want is added, one that it wants no longer is deleted.
fn told(wanted: &Wanted, undecided: Undecided) -> Option<WatchOutput> {
    match undecided {
        Undecided::Initial(entry) => wanted.wants(&entry).then_some(WatchOutput::Initial(entry)),
        Undecided::Event(event) => {
            let wants = |entry: &Option<Arc<Entry>>| entry.as_ref().is_some_and(|entry| wanted.wants(entry));
            let kind = match (wants(&event.previous), wants(&event.current)) {
                (false, false) => return None,
                (false, true) => FrameKind::Added,
                (true, true) => FrameKind::Modified,
                (true, false) => FrameKind::Deleted,
            };
            Some(WatchOutput::Event(kind, event))
        }
    }
}
