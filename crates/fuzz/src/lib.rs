//! Throws generated inputs at every parser that reads what a client sends, on stable Rust.
//!
//! A target reads any bytes, checks what must hold of them (no panic, round trips, agreement with a second implementation),
//! and says by a number what kind of input it was. Inputs of a kind that was not seen before are kept and changed further, so
//! that a run finds its way into a grammar without being told it. What an input may cost is counted, not timed: bytes held at
//! once and bytes asked for altogether, both in proportion to the input.
//!
//! The same seed gives the same run. `corpus/TARGET/` holds the inputs to begin with; what was found is added there and stays.

pub mod memory;
mod mutate;
mod run;
mod targets;

pub use run::{Budget, Finding, Summary, run};
pub use targets::{Target, all};
