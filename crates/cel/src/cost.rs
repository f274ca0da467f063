//! The cost of an expression: an estimate before there is data, and the actual cost while it runs.
//!
//! Estimates and actual costs follow upstream's model, since estimates decide which definitions are accepted, and
//! actual costs which objects. A step costs 1, reading a character 0.1, and creating a value 10 or more.

pub mod actual;
pub mod estimate;
pub mod limits;

/// The cost of a step.
const STEP: u64 = 1;
/// The costs of creating a list, a map and a message.
const MAKE_LIST: u64 = 10;
const MAKE_MAP: u64 = 30;
const MAKE_MESSAGE: u64 = 40;
/// The cost of reading a character.
const CHARACTER: f64 = 0.1;
/// The cost for each pair of a character of a regular expression and a character of the text.
const REGEX_CHARACTER: f64 = 0.25;
/// The cost of an authorizer check.
const AUTHORIZE: u64 = 350_000;
/// The number of requirements that is assumed for each character of a selector.
const REQUIREMENTS: f64 = 0.5;

/// `count * factor`, rounded up.
fn times(count: u64, factor: f64) -> u64 {
    let product = (count as f64 * factor).ceil();
    if product >= 2.0_f64.powi(64) { u64::MAX } else { product as u64 }
}

/// The cost of a selector of `size` characters.
fn selector(size: u64) -> u64 {
    let requirements = times(times(size, REQUIREMENTS), (MAKE_LIST + MAKE_MESSAGE) as f64);
    MAKE_LIST.saturating_add(times(size, CHARACTER)).saturating_add(requirements)
}

/// The cost of matching: each character of the pattern with each character of the text, whose number counts one more.
fn regex(text: u64, pattern: u64) -> u64 {
    times(text.saturating_add(1), CHARACTER).saturating_mul(times(pattern, REGEX_CHARACTER))
}
