//! Checks a history of concurrent requests to one object against the order of its states in a watch.
//!
//! The workload of `keelson verify` and the simulation of servers both use it.
//!
//! Every write carries a mark of its own, and every deletion names the uid that it deleted, so each state of the object
//! has one cause. The watch gives the total order of the states. The history is linearizable if that order contradicts
//! neither the real time of the requests nor what any of them saw. With the order known, the check is exact, and takes
//! time in the square of the number of requests.

use std::collections::HashMap;
use std::time::Instant;

/// A state of the object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The write with this mark is its last.
    Written(String),
    /// The object of this uid is deleted.
    Deleted(String),
}

/// A state in the order of the watch.
#[derive(Clone, Debug)]
pub struct Event {
    /// The state.
    pub state: State,
    /// The resource version of the state.
    pub version: String,
}

/// The effect of a request: the state that it made or saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It made this state. `from` is the version that it was to replace, if it named one.
    Made {
        /// The state.
        state: State,
        /// The version that it was to replace.
        from: Option<String>,
    },
    /// It may have made this state, or may still make it: its answer did not say.
    MayHaveMade(State),
    /// It may have deleted the object, or may still delete it: its answer did not say.
    MayHaveDeleted,
    /// It saw this state.
    Saw(State),
    /// The response shows that the object exists, or that it does not.
    SawPresence(bool),
    /// The request was refused for a reason that does not depend on the state.
    Nothing,
}

/// A request with its answer.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The request, for messages.
    pub text: String,
    /// The time before it was sent.
    pub begun: Instant,
    /// The time after its answer.
    pub ended: Instant,
    /// Its effect.
    pub effect: Effect,
}

impl Operation {
    /// Returns true if its effect, if any, has happened by its end.
    fn is_over(&self) -> bool {
        !matches!(self.effect, Effect::MayHaveMade(_) | Effect::MayHaveDeleted)
    }
}

/// All requests to one object, and its states in order.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The requests, in any order.
    pub operations: Vec<Operation>,
    /// The states, in the order of the watch.
    pub events: Vec<Event>,
}

impl History {
    /// Checks that each acknowledged write is one event, that no event has another cause, and that versions increase.
    ///
    /// # Errors
    /// The contradiction, with the request.
    pub fn check_events(&self) -> Result<(), String> {
        let mut seen: HashMap<&State, usize> = HashMap::new();
        for event in &self.events {
            *seen.entry(&event.state).or_default() += 1;
        }
        for operation in &self.operations {
            let (state, least) = match &operation.effect {
                Effect::Made { state, .. } => (state, 1),
                Effect::MayHaveMade(state) => (state, 0),
                Effect::MayHaveDeleted | Effect::Saw(_) | Effect::SawPresence(_) | Effect::Nothing => continue,
            };
            let times = seen.remove(state).unwrap_or_default();
            if times < least || times > 1 {
                return Err(format!("{} is in the watch {times} times", operation.text));
            }
        }
        let unknown = self.operations.iter().filter(|operation| operation.effect == Effect::MayHaveDeleted).count();
        let mut causeless: Vec<&State> = seen.into_keys().collect();
        causeless.sort_unstable();
        // A deletion without an answer does not know the uid.
        let deleted = causeless.iter().filter(|state| matches!(state, State::Deleted(_))).count();
        if let Some(state) = causeless.iter().find(|state| matches!(state, State::Written(_)) || deleted > unknown) {
            return Err(format!("the watch has {state:?}, which no request made"));
        }
        for pair in self.events.windows(2) {
            let versions = [&pair[0].version, &pair[1].version].map(|version| version.parse::<u128>().ok());
            if let [Some(one), Some(other)] = versions
                && one >= other
            {
                return Err(format!("the watch has the version {other} after {one}"));
            }
        }
        Ok(())
    }

    /// Checks that the history is linearizable. [`check_events`](Self::check_events) must hold.
    ///
    /// # Errors
    /// The requests that contradict each other.
    pub fn check_order(&self) -> Result<(), String> {
        let positions: HashMap<&State, usize> =
            self.events.iter().enumerate().map(|(number, event)| (&event.state, number + 1)).collect();
        let mut by_begin: Vec<&Operation> = self.operations.iter().collect();
        by_begin.sort_by_key(|operation| operation.begun);
        // The operations with their position in the order: the state that a write made, or that a read returned.
        let mut placed: Vec<(usize, &Operation)> = Vec::new();
        for operation in by_begin {
            let earlier = placed.iter().filter(|(_, other)| other.is_over() && other.ended < operation.begun);
            let last = earlier.max_by_key(|(position, _)| *position);
            let least = last.map_or(0, |(position, _)| *position);
            let position = match &operation.effect {
                Effect::Made { state, from } => {
                    let position = positions.get(state).copied().unwrap_or_default();
                    self.check_replaced(operation, position, from.as_deref())?;
                    (position > least).then_some(position)
                }
                Effect::MayHaveMade(state) => match positions.get(state) {
                    Some(position) => Some(*position),
                    None => continue,
                },
                Effect::Saw(state) => positions.get(state).copied().filter(|position| *position >= least),
                Effect::SawPresence(is_there) => {
                    (least..=self.events.len()).find(|position| self.is_there(*position) == *is_there)
                }
                Effect::MayHaveDeleted | Effect::Nothing => continue,
            };
            let Some(position) = position else {
                let before = last.map_or("the beginning", |(_, other)| other.text.as_str());
                return Err(format!("{} began after the end of {before}, and has an earlier state", operation.text));
            };
            placed.push((position, operation));
        }
        self.check_future(&placed)
    }

    /// Checks that no request returned a state of a write that began after the request ended.
    fn check_future(&self, placed: &[(usize, &Operation)]) -> Result<(), String> {
        for (position, operation) in placed.iter().filter(|(_, operation)| operation.is_over()) {
            let later = placed.iter().find(|(other, made)| {
                matches!(made.effect, Effect::Made { .. } | Effect::MayHaveMade(_))
                    && made.begun > operation.ended
                    && other <= position
            });
            if let Some((_, made)) = later {
                return Err(format!("{} ended before {} began, and has a later state", operation.text, made.text));
            }
        }
        Ok(())
    }

    /// Checks that a conditional write replaced the version that it named.
    fn check_replaced(&self, operation: &Operation, position: usize, from: Option<&str>) -> Result<(), String> {
        let Some(from) = from else { return Ok(()) };
        let replaced = position.checked_sub(2).and_then(|before| self.events.get(before));
        match replaced {
            Some(event) if event.version == from => Ok(()),
            replaced => Err(format!("{} was to replace the version {from}, and replaced {replaced:?}", operation.text)),
        }
    }

    /// Returns true if the object is there after this many events.
    fn is_there(&self, position: usize) -> bool {
        let event = position.checked_sub(1).and_then(|number| self.events.get(number));
        event.is_some_and(|event| matches!(event.state, State::Written(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn written(mark: &str) -> State {
        State::Written(mark.to_owned())
    }

    fn made(mark: &str) -> Effect {
        Effect::Made { state: written(mark), from: None }
    }

    /// A history of requests (begin and end in milliseconds), and of events whose versions are 1, 2, and so on.
    fn history(operations: &[(u64, u64, Effect)], events: &[State]) -> History {
        let start = Instant::now();
        let at = |milliseconds: u64| start + Duration::from_millis(milliseconds);
        let operations = operations.iter().enumerate().map(|(number, (begun, ended, effect))| Operation {
            text: format!("request {number}"),
            begun: at(*begun),
            ended: at(*ended),
            effect: effect.clone(),
        });
        let event =
            |(number, state): (usize, &State)| Event { state: state.clone(), version: (number + 1).to_string() };
        History { operations: operations.collect(), events: events.iter().enumerate().map(event).collect() }
    }

    #[test]
    fn each_write_is_one_event() {
        let (a, b) = (written("a"), written("b"));
        let check = |operations: &[(u64, u64, Effect)], events: &[State]| history(operations, events).check_events();
        let both = [(0, 1, made("a")), (2, 3, made("b"))];
        assert_eq!(check(&both, &[a.clone(), b.clone()]), Ok(()));
        assert!(check(&both, std::slice::from_ref(&a)).unwrap_err().contains("0 times"), "a lost write");
        assert!(check(&both, &[a.clone(), b.clone(), a.clone()]).unwrap_err().contains("2 times"), "a double event");
        assert!(check(&both[..1], &[a.clone(), b.clone()]).unwrap_err().contains("no request"), "an invented event");
        let unknown = [(0, 1, Effect::MayHaveMade(a.clone()))];
        assert_eq!((check(&unknown, &[]), check(&unknown, std::slice::from_ref(&a))), (Ok(()), Ok(())));
        let deleted = [a.clone(), State::Deleted("uid".to_owned())];
        assert!(check(&both[..1], &deleted).unwrap_err().contains("no request"), "a deletion without a cause");
        let lost = [both[0].clone(), (2, 3, Effect::MayHaveDeleted)];
        assert_eq!(check(&lost, &deleted), Ok(()), "a deletion whose answer was lost");
        let mut falling = history(&both, &[a, b]);
        falling.events[1].version = "1".to_owned();
        assert!(falling.check_events().unwrap_err().contains("after"), "a version that does not increase");
    }

    #[test]
    fn the_order_of_states_keeps_real_time() {
        let (a, b) = (written("a"), written("b"));
        let check = |operations: &[(u64, u64, Effect)], events: &[State]| history(operations, events).check_order();
        let events = [a.clone(), b.clone()];
        let both = || vec![(0, 1, made("a")), (2, 3, made("b"))];
        assert_eq!(check(&both(), &events), Ok(()));
        assert!(check(&both(), &[b.clone(), a.clone()]).is_err(), "writes in the wrong order");
        // Writes at the same time may have any order.
        assert_eq!(check(&[(0, 3, made("a")), (1, 2, made("b"))], &[b.clone(), a.clone()]), Ok(()));
        let with = |extra: (u64, u64, Effect)| [both(), vec![extra]].concat();
        assert_eq!(check(&with((4, 5, Effect::Saw(b.clone()))), &events), Ok(()));
        assert!(check(&with((4, 5, Effect::Saw(a.clone()))), &events).is_err(), "a stale read");
        assert!(check(&with((0, 1, Effect::Saw(b.clone()))), &events).is_err(), "a read of the future");
        // A write without an answer may take effect after its end, but not before its begin.
        let late = |begun| vec![(0, 1, made("a")), (begun, begun + 1, Effect::MayHaveMade(b.clone()))];
        let seen = |state: &State| (4, 5, Effect::Saw(state.clone()));
        assert_eq!(check(&[late(2), vec![seen(&a)]].concat(), &events), Ok(()));
        assert!(check(&[late(6), vec![seen(&b)]].concat(), &events).is_err(), "a read of the future");
        let overtaken = [a.clone(), written("c"), b.clone()];
        let after = [late(2), vec![(4, 5, made("c"))]].concat();
        assert_eq!(check(&after, &overtaken), Ok(()), "a write that takes effect after its end");
        let backwards = [both(), vec![(2, 3, Effect::Saw(b)), (4, 5, Effect::Saw(a))]].concat();
        assert!(check(&backwards, &events).is_err(), "two reads that go back");
        assert!(check(&with((4, 5, Effect::SawPresence(false))), &events).is_err(), "an object that is not found");
    }

    #[test]
    fn deletions_and_conditions_have_their_place() {
        let gone = State::Deleted("uid".to_owned());
        let events = [written("a"), gone.clone(), written("b")];
        let deleted = Effect::Made { state: gone, from: None };
        let base = || vec![(0, 1, made("a")), (2, 3, deleted.clone()), (4, 5, made("b"))];
        let check = |extra: (u64, u64, Effect)| history(&[base(), vec![extra]].concat(), &events).check_order();
        assert_eq!(check((3, 4, Effect::SawPresence(false))), Ok(()));
        assert!(check((6, 7, Effect::SawPresence(false))).is_err(), "an object that is not found again");
        let conditional = |from: &str| Effect::Made { state: written("a"), from: Some(from.to_owned()) };
        let check = |from: &str| {
            history(&[(0, 1, made("0")), (2, 3, conditional(from))], &[written("0"), written("a")]).check_order()
        };
        assert_eq!(check("1"), Ok(()));
        assert!(check("7").is_err(), "an update of another version");
    }
}
