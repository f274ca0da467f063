//! The cost of an expression: estimated before there is data, and counted while it runs.
//!
//! Both follow upstream's model, because the estimate decides which definitions are accepted and the count which objects
//! are: one for each step, a tenth for each character that is looked at, ten or more for what is made.

pub mod actual;
pub mod estimate;
pub mod limits;

/// What a step costs.
const STEP: u64 = 1;
/// What making a list, a map and a message costs.
const MAKE_LIST: u64 = 10;
const MAKE_MAP: u64 = 30;
const MAKE_MESSAGE: u64 = 40;
/// What looking at a character costs.
const CHARACTER: f64 = 0.1;
/// What a character of a regular expression costs for each character of the text.
const REGEX_CHARACTER: f64 = 0.25;
/// What asking the authorizer costs.
const AUTHORIZE: u64 = 350_000;
/// How many requirements a character of a selector is counted for.
const REQUIREMENTS: f64 = 0.5;

/// So much for each of a number of things, rounded up.
fn times(count: u64, factor: f64) -> u64 {
    let product = (count as f64 * factor).ceil();
    if product >= 2.0_f64.powi(64) { u64::MAX } else { product as u64 }
}

/// What a selector of so many characters costs.
fn selector(size: u64) -> u64 {
    let requirements = times(times(size, REQUIREMENTS), (MAKE_LIST + MAKE_MESSAGE) as f64);
    MAKE_LIST.saturating_add(times(size, CHARACTER)).saturating_add(requirements)
}

/// What matching costs: each part of a regular expression with each character, of which there is one more than there is.
fn regex(text: u64, pattern: u64) -> u64 {
    times(text.saturating_add(1), CHARACTER).saturating_mul(times(pattern, REGEX_CHARACTER))
}
