//! The functions of expressions.
//!
//! Each function receives its arguments, the target first. It checks their types itself, since the types of `dyn`
//! values are known only at run time. Functions with regular expressions are separate steps of a program, because their
//! cost depends on the regular expression.

pub mod addresses;
pub mod authorizer;
pub mod convert;
pub mod format;
pub mod formats;
pub mod lists;
pub mod numbers;
pub mod operators;
pub mod optionals;
pub mod quantities;
pub mod regex;
pub mod semver;
pub mod strings;
pub mod times;
pub mod url;
mod zones;

use crate::values::{EvalError, Outcome, Value};

/// A function.
pub type Native = for<'a> fn(&[Value<'a>]) -> Outcome<'a>;

/// The maximum size in bytes of a text that an expression creates. Without it, a text could exhaust the memory, since
/// its cost is charged only after it is created.
pub const MAX_TEXT: usize = 16 << 20;

/// The function of that name.
pub fn find(name: &str) -> Option<Native> {
    operators::find(name)
        .or_else(|| convert::find(name))
        .or_else(|| strings::find(name))
        .or_else(|| lists::find(name))
        .or_else(|| optionals::find(name))
        .or_else(|| times::find(name))
        .or_else(|| url::find(name))
        .or_else(|| addresses::find(name))
        .or_else(|| quantities::find(name))
        .or_else(|| formats::find(name))
        .or_else(|| semver::find(name))
        .or_else(|| authorizer::find(name))
}

/// The error if no overload of a function accepts these values.
pub(crate) fn no_overload_of(function: &str, args: &[Value<'_>]) -> EvalError {
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    EvalError::new(format!("no such overload: {function}({})", types.join(", ")))
}

/// Returns the text, or an error if it is too long.
pub(crate) fn bounded(text: String) -> Result<String, EvalError> {
    if text.len() > MAX_TEXT { Err(EvalError::TooCostly) } else { Ok(text) }
}
