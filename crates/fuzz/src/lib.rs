//! A fuzzer for every parser of client input, on stable Rust.
//!
//! A target reads arbitrary bytes, checks their properties (no panic, round trips, agreement with a second
//! implementation), and returns a number for the kind of input. Inputs of a new kind are kept and mutated further, so
//! that a run explores a grammar without knowing it. The cost of an input is counted, not timed: bytes held at once and
//! bytes allocated in total, both proportional to the input.
//!
//! Equal seeds give equal runs. `corpus/TARGET/` has the initial inputs. Findings are added there permanently.

pub mod memory;
mod mutate;
mod run;
mod targets;

pub use run::{Budget, Finding, Summary, run};
pub use targets::{Target, all};
