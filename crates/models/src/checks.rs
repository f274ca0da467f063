//! Runs the checker on a model: once for the model with all its rules, and once for each variant that breaks a rule. The
//! checker visits states breadth first, so a violation comes with one of its shortest paths.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, Model};

/// Checks that every property holds in every reachable state, and that the model has this number of states. The number
/// is in `docs/explanation/models.md`. A change without intent is often a lost step.
pub(crate) fn assert_holds<M>(model: M, states: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().spawn_bfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), states, "states of the model");
}

/// Checks that the checker finds a state that violates a property.
pub(crate) fn assert_broken<M>(model: M, name: &str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let always: Vec<&str> = model
        .properties()
        .iter()
        .filter(|property| matches!(property.expectation, Expectation::Always))
        .map(|property| property.name)
        .collect();
    let checker = model.checker().spawn_bfs().join();
    let found = checker.discoveries();
    assert!(always.iter().any(|property| found.contains_key(property)), "{name}: no property is violated");
}
