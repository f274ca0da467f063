//! Errors of query parameters: the parameter and the fault.
//!
//! A message quotes only the beginning of a value, so a long parameter causes no long response.

use thiserror::Error;

use crate::parameters::PARAMETERS;

/// The maximum quoted length of a parameter, in characters.
const SHOWN: usize = 80;

/// An invalid parameter. Its `Display` is the message for the client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QueryError {
    /// An unknown parameter.
    #[error("unknown query parameter {}; known parameters are {}", quoted(.name), PARAMETERS.iter().map(|known| known.name).collect::<Vec<_>>().join(", "))]
    Unknown {
        /// Its name.
        name: String,
    },
    /// A repeated parameter.
    #[error("{name} is given more than once")]
    Repeated {
        /// Its name.
        name: &'static str,
    },
    /// An invalid value.
    #[error("{name}: {why}, not {}", quoted(.value))]
    Value {
        /// Its name.
        name: &'static str,
        /// The expected form.
        why: &'static str,
        /// The value.
        value: String,
    },
    /// A syntax error in a parameter.
    #[error("{name}: {why} at character {} of {}", .at + 1, quoted(.text))]
    Syntax {
        /// The name of the parameter.
        name: &'static str,
        /// The fault.
        why: String,
        /// The position in characters.
        at: usize,
        /// The parameter.
        text: String,
    },
    /// An invalid expression.
    #[error("{name}: {why}")]
    Expression {
        /// The name of the parameter.
        name: &'static str,
        /// The fault.
        why: String,
    },
    /// Parameters that exclude each other.
    #[error("{0}")]
    Together(&'static str),
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{:?}…", &text[..cut]),
        None => format!("{text:?}"),
    }
}
