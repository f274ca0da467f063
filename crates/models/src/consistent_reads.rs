//! The watch cache's progress and consistent reads (invariants 15 and 16).
//!
//! A store commits revisions in order: visible to reads, then sent to the feed, then acknowledged. The feed of a server
//! has events and progress notifications. The server applies an event to its trees, then moves its watermark. A
//! consistent read asks the store for its newest revision, waits until the watermark has reached it, and then reads the
//! watermark before the trees. Readers share a question only if it was sent after they came.
//!
//! Code: `crates/cache/src/tail.rs`, `crates/cache/src/watermark.rs`, `crates/registry/src/newest.rs`.

use std::collections::VecDeque;

use stateright::{Model, Property};

/// The number of writes in the model.
const WRITES: u8 = 3;
/// The number of readers.
const READERS: usize = 2;
/// The most progress notifications in the feed at a time.
const NOTIFICATIONS: usize = 1;

/// The rules of the model, or one broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// All rules hold.
    Correct,
    /// The watermark moves before the trees have the event.
    WatermarkBeforeTrees,
    /// The store sends a progress notification before the events up to its revision, as etcd did before 3.5.8.
    ProgressBeforeEvents,
    /// A reader joins a question that is already answered by the store.
    SharedAnswer,
    /// A reader takes the trees before it reads the watermark.
    TreesBeforeWatermark,
    /// A reader does not wait for the watermark.
    NoWait,
    /// The store acknowledges a write before reads see it.
    EarlyAcknowledgement,
}

/// The model of one store and one server.
pub struct ConsistentReads(pub Variant);

/// A message in the feed of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// The event of a revision.
    Event(u8),
    /// No event up to this revision follows.
    Progress(u8),
}

/// The state of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// It has not begun.
    Idle,
    /// It waits for the next question to the store.
    Waiting {
        /// The newest acknowledged revision when it began, also below.
        acknowledged: u8,
    },
    /// Its question was sent.
    Asked {
        /// As above.
        acknowledged: u8,
    },
    /// It waits for the watermark.
    Behind {
        /// As above.
        acknowledged: u8,
        /// The watermark that it waits for.
        needed: u8,
    },
    /// It has read the watermark.
    Reading {
        /// As above.
        acknowledged: u8,
        /// The watermark.
        watermark: u8,
        /// The newest write in the trees, if they were read first.
        trees: Option<u8>,
    },
    /// It has a result.
    Done {
        /// As above.
        acknowledged: u8,
        /// The revision that the result states.
        stated: u8,
        /// The newest write in the result.
        contained: u8,
    },
}

/// A question for the newest revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// No question is under way.
    None,
    /// The store has not processed the question.
    Sent,
    /// The store's answer is under way.
    Answered(u8),
}

/// A state of the model. Revisions are 1 to `WRITES`; 0 is the empty store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The newest revision that reads of the store see.
    visible: u8,
    /// The newest revision sent to the feed.
    sent: u8,
    /// The newest acknowledged revision.
    acknowledged: u8,
    feed: VecDeque<Message>,
    /// The newest revision in the trees.
    trees: u8,
    watermark: u8,
    question: Question,
    readers: [Reader; READERS],
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The store makes the next revision visible.
    Commit,
    /// The store sends the next event.
    Send,
    /// The store acknowledges the next write.
    Acknowledge,
    /// The store sends a progress notification.
    Notify,
    /// The server applies the first message of the feed to its trees.
    Apply,
    /// The server moves its watermark.
    Publish,
    /// A reader begins.
    Begin(usize),
    /// The server sends a question for all waiting readers.
    Ask,
    /// The store processes the question.
    Process,
    /// The answer arrives.
    Answer,
    /// A reader takes the watermark, or the trees.
    Look(usize),
    /// A reader takes the other of both, and has its result.
    Finish(usize),
}

impl ConsistentReads {
    /// The revision that a progress notification states.
    fn progress(&self, state: &State) -> u8 {
        match self.0 {
            Variant::ProgressBeforeEvents => state.visible,
            _ => state.sent,
        }
    }

    /// The newest write that the store may acknowledge.
    fn acknowledgeable(&self, state: &State) -> u8 {
        match self.0 {
            Variant::EarlyAcknowledgement => WRITES.min(state.visible + 1),
            _ => state.sent,
        }
    }

    /// The watermark that the trees allow.
    fn publishable(&self, state: &State) -> u8 {
        match (self.0, state.feed.front()) {
            (Variant::WatermarkBeforeTrees, Some(Message::Event(revision))) => *revision,
            _ => state.trees,
        }
    }

    fn begin(&self, state: &mut State, reader: usize) {
        let acknowledged = state.acknowledged;
        let joins = self.0 == Variant::SharedAnswer && state.question != Question::None;
        state.readers[reader] = if joins { Reader::Asked { acknowledged } } else { Reader::Waiting { acknowledged } };
    }

    fn look(&self, state: &mut State, reader: usize) -> Option<()> {
        let Reader::Behind { acknowledged, .. } = state.readers[reader] else { return None };
        let trees = (self.0 == Variant::TreesBeforeWatermark).then_some(state.trees);
        state.readers[reader] = Reader::Reading { acknowledged, watermark: state.watermark, trees };
        Some(())
    }

    fn finish(state: &mut State, reader: usize) -> Option<()> {
        let Reader::Reading { acknowledged, watermark, trees } = state.readers[reader] else { return None };
        // With the trees taken first, the watermark of this later moment is stated.
        let (stated, contained) = match trees {
            Some(trees) => (state.watermark, trees),
            None => (watermark, state.trees),
        };
        state.readers[reader] = Reader::Done { acknowledged, stated, contained };
        Some(())
    }

    fn receive(state: &mut State) -> Option<()> {
        match state.feed.pop_front()? {
            Message::Event(revision) => state.trees = revision,
            Message::Progress(revision) => state.watermark = state.watermark.max(revision),
        }
        Some(())
    }
}

impl Model for ConsistentReads {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            visible: 0,
            sent: 0,
            acknowledged: 0,
            feed: VecDeque::new(),
            trees: 0,
            watermark: 0,
            question: Question::None,
            readers: [Reader::Idle; READERS],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut add = |is_possible: bool, action| {
            if is_possible {
                actions.push(action);
            }
        };
        let notifications = state.feed.iter().filter(|message| matches!(message, Message::Progress(_))).count();
        add(state.visible < WRITES, Action::Commit);
        add(state.sent < state.visible, Action::Send);
        add(state.acknowledged < self.acknowledgeable(state), Action::Acknowledge);
        add(notifications < NOTIFICATIONS, Action::Notify);
        add(!state.feed.is_empty(), Action::Apply);
        add(state.watermark < self.publishable(state), Action::Publish);
        let is_waiting = state.readers.iter().any(|reader| matches!(reader, Reader::Waiting { .. }));
        add(is_waiting && state.question == Question::None, Action::Ask);
        add(state.question == Question::Sent, Action::Process);
        add(matches!(state.question, Question::Answered(_)), Action::Answer);
        for (place, reader) in state.readers.iter().enumerate() {
            match *reader {
                Reader::Idle => add(true, Action::Begin(place)),
                Reader::Behind { needed, .. } => {
                    add(state.watermark >= needed || self.0 == Variant::NoWait, Action::Look(place));
                }
                Reader::Reading { .. } => add(true, Action::Finish(place)),
                Reader::Waiting { .. } | Reader::Asked { .. } | Reader::Done { .. } => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Commit => state.visible += 1,
            Action::Send => {
                state.sent += 1;
                state.feed.push_back(Message::Event(state.sent));
            }
            Action::Acknowledge => state.acknowledged += 1,
            Action::Notify => state.feed.push_back(Message::Progress(self.progress(last))),
            Action::Apply => Self::receive(&mut state)?,
            Action::Publish => state.watermark = self.publishable(last),
            Action::Begin(reader) => self.begin(&mut state, reader),
            Action::Ask => {
                state.question = Question::Sent;
                for reader in &mut state.readers {
                    if let Reader::Waiting { acknowledged } = *reader {
                        *reader = Reader::Asked { acknowledged };
                    }
                }
            }
            Action::Process => state.question = Question::Answered(state.visible),
            Action::Answer => {
                let Question::Answered(needed) = state.question else { return None };
                state.question = Question::None;
                for reader in &mut state.readers {
                    if let Reader::Asked { acknowledged } = *reader {
                        *reader = Reader::Behind { acknowledged, needed };
                    }
                }
            }
            Action::Look(reader) => self.look(&mut state, reader)?,
            Action::Finish(reader) => Self::finish(&mut state, reader)?,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("15: a read sees every write acknowledged before it", |_, state: &State| {
                state.readers.iter().all(|reader| match reader {
                    Reader::Done { acknowledged, stated, contained } => {
                        stated >= acknowledged && contained >= acknowledged
                    }
                    _ => true,
                })
            }),
            Property::always("a result contains all revisions up to the one that it states", |_, state: &State| {
                state.readers.iter().all(|reader| match reader {
                    Reader::Done { stated, contained, .. } => contained >= stated,
                    _ => true,
                })
            }),
            Property::always("16: the watermark is never ahead of the trees", |_, state: &State| {
                state.watermark <= state.trees
            }),
            Property::sometimes("readers get the newest revision", |_, state: &State| {
                state.readers.iter().all(|reader| matches!(reader, Reader::Done { stated: WRITES, .. }))
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{assert_broken, assert_holds};

    #[test]
    fn consistent_reads_hold_in_all_states() {
        assert_holds(ConsistentReads(Variant::Correct), 137_020);
    }

    #[test]
    fn each_broken_rule_of_reads_is_found() {
        for broken in [
            Variant::WatermarkBeforeTrees,
            Variant::ProgressBeforeEvents,
            Variant::SharedAnswer,
            Variant::TreesBeforeWatermark,
            Variant::NoWait,
            Variant::EarlyAcknowledgement,
        ] {
            assert_broken(ConsistentReads(broken), &format!("{broken:?}"));
        }
    }
}
