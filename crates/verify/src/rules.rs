//! The rules, by area. Each has a name, a sentence, and the source of the promise.
//!
//! A rule is checked by a function of its own, which sends its requests one after another.

mod apply;
mod discovery;
mod lists;
mod objects;
mod selectors;
mod storage_versions;
mod watches;
mod workload;

use futures::future::BoxFuture;

pub(crate) use self::workload::Histories;
use crate::lab::{Checked, Lab};

/// The access that a rule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Reading alone.
    Reads,
    /// Config maps in the namespace of the run.
    Writes,
}

/// A promise of the API.
pub(crate) struct Rule {
    /// The name of the rule, which begins with its area.
    pub(crate) id: &'static str,
    /// The promise in a sentence.
    pub(crate) text: &'static str,
    /// The document with the promise.
    pub(crate) source: &'static str,
    pub(crate) needs: Need,
    pub(crate) check: for<'l> fn(&'l Lab) -> BoxFuture<'l, Checked>,
}

const CONCEPTS: &str = "Kubernetes API Concepts";
const CONVENTIONS: &str = "API Conventions";

/// All rules.
pub(crate) fn all() -> impl Iterator<Item = &'static Rule> {
    let areas = [
        discovery::RULES,
        lists::RULES,
        watches::RULES,
        selectors::RULES,
        objects::RULES,
        apply::RULES,
        storage_versions::RULES,
        workload::RULES,
    ];
    areas.into_iter().flatten()
}
