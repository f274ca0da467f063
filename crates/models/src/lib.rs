//! Models of three protocols, small enough that a checker visits every reachable state.
//!
//! Each model states the rules that the code follows, named by its `ORDER:` comments and the invariants of
//! ARCHITECTURE.md. It also has variants that break one rule each. The tests check that the rules hold in all states,
//! and that the checker finds a violation for each broken rule. `docs/explanation/models.md` describes what the models
//! contain and what they leave out.

#[cfg(test)]
mod checks;
pub mod consistent_reads;
pub mod leader_election;
pub mod storage_versions;
