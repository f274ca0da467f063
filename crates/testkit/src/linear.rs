//! Checks the linearizability of a recorded history of one object. There must be an order of all calls in which each
//! takes effect at one moment between its start and its end.
//!
//! The search is Wing and Gong's (1993), with Lowe's memory of visited states (2017). Histories of different keys are
//! independent and checked separately, which keeps them small. Every write must have different content.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The unique identity of written content.
pub type Content = u64;

/// A call with its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An object was created.
    Created(Content),
    /// A creation was refused because the object existed.
    Exists,
    /// The `expected` object was replaced.
    Updated {
        /// The content that the writer had read.
        expected: Content,
        /// The content that it wrote.
        content: Content,
    },
    /// An update was refused because the object had changed.
    Conflict {
        /// The content that the writer had read.
        expected: Content,
    },
    /// The object was deleted.
    Deleted,
    /// A read, update or deletion found no object.
    Missing,
    /// A read found the object.
    Found(Content),
    /// A creation with an unknown outcome.
    MaybeCreated(Content),
    /// An update with an unknown outcome.
    MaybeUpdated {
        /// The content that the writer had read.
        expected: Content,
        /// The content that it wrote.
        content: Content,
    },
    /// A deletion with an unknown outcome.
    MaybeDeleted,
}

impl Step {
    /// The state after this step, if it is possible in `state`.
    fn take(self, state: Option<Content>) -> Option<Option<Content>> {
        match self {
            Self::Created(content) | Self::MaybeCreated(content) => state.is_none().then_some(Some(content)),
            Self::Exists => state.is_some().then_some(state),
            Self::Updated { expected, content } | Self::MaybeUpdated { expected, content } => {
                (state == Some(expected)).then_some(Some(content))
            }
            Self::Conflict { expected } => (state.is_some() && state != Some(expected)).then_some(state),
            Self::Deleted | Self::MaybeDeleted => state.is_some().then_some(None),
            Self::Missing => state.is_none().then_some(None),
            Self::Found(content) => (state == Some(content)).then_some(state),
        }
    }

    /// Returns true if the step may never take effect, or take effect long after its caller gave up.
    const fn is_unknown(self) -> bool {
        matches!(self, Self::MaybeCreated(_) | Self::MaybeUpdated { .. } | Self::MaybeDeleted)
    }
}

/// A call with its outcome and its start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The start.
    pub begun: u64,
    /// The time of the response.
    pub ended: u64,
    /// The outcome.
    pub step: Step,
}

/// A history without a valid order of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLinearizable {
    /// The key of the history.
    pub key: String,
    /// The calls, sorted by start.
    pub operations: Vec<Operation>,
    /// The size of the largest part with a valid order.
    pub explained: usize,
}

/// Records the calls of many clients.
#[derive(Debug, Default)]
pub struct Recorder {
    moments: AtomicU64,
    operations: Mutex<BTreeMap<String, Vec<Operation>>>,
}

impl Recorder {
    /// The current moment. Each one is unique.
    pub fn now(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    /// Records a call that started at `begun` and has just ended.
    pub fn record(&self, key: &str, begun: u64, step: Step) {
        self.record_at(key, begun, self.now(), step);
    }

    /// Records a call with both moments, for responses about many keys.
    pub fn record_at(&self, key: &str, begun: u64, ended: u64, step: Step) {
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.entry(key.to_owned()).or_default().push(Operation { begun, ended, step });
    }

    /// The number of recorded calls.
    pub fn len(&self) -> usize {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).values().map(Vec::len).sum()
    }

    /// Returns true if there are no recorded calls.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the histories of all keys. No key has an object at the start.
    ///
    /// # Errors
    /// The first key whose history has no valid order.
    pub fn check(&self) -> Result<(), NotLinearizable> {
        let operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.iter().try_for_each(|(key, operations)| check(key, operations))
    }
}

/// Checks the history of one key without an object at the start.
///
/// # Errors
/// It has no valid order.
pub fn check(key: &str, operations: &[Operation]) -> Result<(), NotLinearizable> {
    let mut operations = operations.to_vec();
    operations.sort_by_key(|operation| operation.begun);
    for operation in operations.iter_mut().filter(|operation| operation.step.is_unknown()) {
        operation.ended = u64::MAX;
    }
    let explained = Search { operations: &operations, tried: HashSet::new() }.run();
    if explained == operations.iter().filter(|operation| !operation.step.is_unknown()).count() {
        return Ok(());
    }
    Err(NotLinearizable { key: key.to_owned(), operations, explained })
}

/// The operations in the order so far, and the resulting state.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SearchState {
    /// All operations before this one are in the order, or are in `left_out`.
    first: usize,
    /// The operations from `first` on that are in the order, and the ones before it that are not.
    taken: Vec<usize>,
    left_out: Vec<usize>,
    state: Option<Content>,
}

struct Search<'a> {
    /// Sorted by start.
    operations: &'a [Operation],
    tried: HashSet<SearchState>,
}

impl Search<'_> {
    /// The largest number of operations with known outcomes that an order explains.
    fn run(mut self) -> usize {
        let mut best = 0;
        let mut open = vec![SearchState { first: 0, taken: Vec::new(), left_out: Vec::new(), state: None }];
        while let Some(reached) = open.pop() {
            let known = |at: &usize| !self.operations[*at].step.is_unknown();
            let taken = (0..reached.first).chain(reached.taken.iter().copied());
            best = best.max(taken.filter(known).count());
            if reached.first == self.operations.len() {
                return best;
            }
            for next in self.candidates(&reached) {
                if let Some(state) = self.operations[next].step.take(reached.state) {
                    let after = self.after(&reached, next, state);
                    if self.tried.insert(after.clone()) {
                        open.push(after);
                    }
                }
            }
        }
        best
    }

    /// The operations that may come next: those that started before the first remaining one ended.
    fn candidates(&self, reached: &SearchState) -> Vec<usize> {
        let behind = (reached.first..self.operations.len()).filter(|at| !reached.taken.contains(at));
        let mut until = u64::MAX;
        let mut found = reached.left_out.clone();
        for at in behind {
            if self.operations[at].begun > until {
                break;
            }
            until = until.min(self.operations[at].ended);
            found.push(at);
        }
        found.retain(|at| self.operations[*at].begun < until);
        found
    }

    fn after(&self, reached: &SearchState, next: usize, state: Option<Content>) -> SearchState {
        let SearchState { mut first, mut taken, mut left_out, .. } = reached.clone();
        if next < first {
            left_out.retain(|at| *at != next);
        } else {
            let place = taken.partition_point(|at| *at < next);
            taken.insert(place, next);
        }
        while first < self.operations.len() {
            if taken.first() == Some(&first) {
                taken.remove(0);
            } else if self.operations[first].step.is_unknown() {
                left_out.push(first);
            } else {
                break;
            }
            first += 1;
        }
        SearchState { first, taken, left_out, state }
    }
}

#[cfg(test)]
mod tests {
    use super::Step::*;
    use super::*;

    fn accepted(history: &[(u64, u64, Step)]) -> bool {
        let operations: Vec<_> = history
            .iter()
            .map(|(begun, ended, step)| Operation { begun: *begun, ended: *ended, step: *step })
            .collect();
        check("key", &operations).is_ok()
    }

    /// Checks a sequence without overlaps.
    fn in_order(steps: &[Step]) -> bool {
        let timed: Vec<_> = steps.iter().zip(0..).map(|(step, at)| (2 * at, 2 * at + 1, *step)).collect();
        accepted(&timed)
    }

    #[test]
    fn sequential_histories_are_accepted() {
        assert!(in_order(&[
            Missing,
            Created(1),
            Exists,
            Found(1),
            Updated { expected: 1, content: 2 },
            Conflict { expected: 1 },
            Found(2),
            Deleted,
            Missing,
            Created(3),
            Found(3),
        ]));
    }

    #[test]
    fn inexplicable_histories_are_rejected() {
        let histories: &[&[Step]] = &[
            // A stale read, and a read of content without a write.
            &[Created(1), Updated { expected: 1, content: 2 }, Found(1)],
            &[Created(1), Missing],
            &[Found(7)],
            &[Created(1), Deleted, Found(1)],
            // A lost update, and a creation that should have been rejected.
            &[Created(1), Updated { expected: 1, content: 2 }, Updated { expected: 1, content: 3 }],
            &[Created(1), Created(2)],
            &[Created(1), Conflict { expected: 1 }],
            &[Exists],
            &[Deleted],
            // An object that appears and disappears by itself.
            &[Created(1), Found(1), Missing, Found(1)],
            &[MaybeCreated(1), Found(1), Missing],
        ];
        for history in histories {
            assert!(!in_order(history), "{history:?}");
        }
    }

    #[test]
    fn calls_at_the_same_time_may_take_effect_in_any_order() {
        let create = (0, 9, Created(1));
        assert!(accepted(&[create, (1, 2, Missing), (3, 4, Found(1))]));
        assert!(!accepted(&[create, (1, 2, Found(1)), (3, 4, Missing)]), "time does not go back between two reads");
        let racing = |winner: u64| {
            let (one, other) = (Updated { expected: 1, content: 2 }, Conflict { expected: 1 });
            [(0, 1, Created(1)), (2, 6, one), (3, 7, other), (8, 9, Found(winner))]
        };
        assert!(accepted(&racing(2)));
        assert!(!accepted(&racing(1)));
    }

    #[test]
    fn unknown_outcomes_may_take_effect_late_or_never() {
        let maybe = (0, 1, MaybeCreated(1));
        assert!(accepted(&[maybe, (2, 3, Missing), (4, 5, Missing)]));
        assert!(accepted(&[maybe, (2, 3, Missing), (4, 5, Found(1)), (6, 7, Found(1))]));
        assert!(!accepted(&[(2, 3, MaybeCreated(1)), (0, 1, Found(1))]), "nothing happens before it is asked for");
        assert!(accepted(&[maybe, (2, 3, Found(1)), (4, 5, MaybeDeleted), (6, 7, Found(1)), (8, 9, Missing)]));
        assert!(!accepted(&[maybe, (2, 3, Found(1)), (4, 5, Deleted), (6, 7, Found(1))]), "and only once");
    }

    /// Checks a history by trying every order.
    fn explained_by_some_order(left: &[Operation], state: Option<Content>) -> bool {
        if left.iter().all(|operation| operation.step.is_unknown()) {
            return true;
        }
        (0..left.len()).any(|at| {
            let next = left[at];
            let earlier = |other: &Operation| !other.step.is_unknown() && other.ended < next.begun;
            let rest: Vec<_> =
                left.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, left)| *left).collect();
            !rest.iter().any(earlier)
                && next.step.take(state).is_some_and(|state| explained_by_some_order(&rest, state))
        })
    }

    /// For small random histories the search agrees with an exhaustive one.
    #[test]
    fn the_search_agrees_with_trying_every_order() {
        let mut seed = 7_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut verdicts = [0, 0];
        for _ in 0..20_000 {
            let operations: Vec<Operation> = (0..2 + draw(5))
                .map(|number| {
                    let (content, expected) = (number + 1, 1 + draw(4));
                    let step = match draw(10) {
                        0..2 => Created(content),
                        2 => Updated { expected, content },
                        3 => Conflict { expected },
                        4 => Deleted,
                        5 => Missing,
                        6 => Found(expected),
                        7 => MaybeCreated(content),
                        8 => MaybeUpdated { expected, content },
                        _ => Exists,
                    };
                    let begun = draw(12);
                    Operation { begun: 100 * begun + number, ended: 100 * (begun + draw(6)) + 50 + number, step }
                })
                .collect();
            let expected = explained_by_some_order(&operations, None);
            verdicts[usize::from(expected)] += 1;
            assert_eq!(check("key", &operations).is_ok(), expected, "{operations:?}");
        }
        assert!(verdicts.into_iter().all(|count| count > 1000), "both verdicts occur: {verdicts:?}");
    }
}
