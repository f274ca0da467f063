//! The functions of expressions.
//!
//! Each function receives its arguments, the target first, and checks their types itself, since `dyn` values are typed
//! only at run time. Functions with regular expressions are steps of their own, because their cost depends on the
//! expression.

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

/// The maximum size of a text that an expression creates, in bytes. Its cost is charged after it is created.
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

/// The error for values that no overload of a function accepts.
pub(crate) fn no_overload_of(function: &str, args: &[Value<'_>]) -> EvalError {
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    EvalError::new(format!("no such overload: {function}({})", types.join(", ")))
}

/// Returns the text, or an error if it is too long.
pub(crate) fn bounded(text: String) -> Result<String, EvalError> {
    if text.len() > MAX_TEXT { Err(EvalError::TooCostly) } else { Ok(text) }
}
