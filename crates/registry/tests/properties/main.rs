//! Properties of the verbs: random writes, compactions, restarts, chunk sizes and selectors, over all engines and
//! several servers on one store, checked against a plain model with every revision.
//!
//! Tests name their invariants of ARCHITECTURE.md.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod admission;
mod admission_shown;
mod behind;
mod bookmarks;
mod cluster;
mod concurrent;
mod contributed;
mod engines;
mod lists;
mod live_pages;
mod model;
mod names;
mod namespaces;
mod pace;
mod partial_rights;
mod queries;
mod searches;
mod stores;
mod tokens;
mod watches;
mod writes;
