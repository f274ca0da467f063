//! Refusals of queries: which parameter, and what is wrong where.
//!
//! What was sent is repeated in part, so that a long parameter makes no long answer.

use thiserror::Error;

use crate::parameters::PARAMETERS;

/// The most of a parameter that is repeated to who sent it, in characters.
const SHOWN: usize = 80;

/// A parameter that can't be read. Displays what the client is told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QueryError {
    /// There is no such parameter.
    #[error("unknown query parameter {}: there are {}", quoted(.name), PARAMETERS.iter().map(|known| known.name).collect::<Vec<_>>().join(", "))]
    Unknown {
        /// Its name.
        name: String,
    },
    /// A parameter is there twice.
    #[error("{name} is given more than once")]
    Repeated {
        /// Its name.
        name: &'static str,
    },
    /// A parameter has no such value.
    #[error("{name}: {why}, not {}", quoted(.value))]
    Value {
        /// Its name.
        name: &'static str,
        /// What is expected.
        why: &'static str,
        /// What was given.
        value: String,
    },
    /// A part of a parameter can't be read.
    #[error("{name}: {why} at character {} of {}", .at + 1, quoted(.text))]
    Syntax {
        /// The name of the parameter.
        name: &'static str,
        /// What is wrong.
        why: String,
        /// How many characters stand before it.
        at: usize,
        /// The parameter.
        text: String,
    },
    /// An expression that is not one.
    #[error("{name}: {why}")]
    Expression {
        /// The name of the parameter.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Parameters that can't be given together.
    #[error("{0}")]
    Together(&'static str),
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{:?}…", &text[..cut]),
        None => format!("{text:?}"),
    }
}
