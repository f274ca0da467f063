//! Measures the cost of an expression while it runs, and ends it at a limit.
//!
//! Two more limits cover work that upstream's model does not count, but that takes time here. One limits the copies in
//! an evaluation. The other limits the time that all evaluations for one object spend on copies, comparisons and
//! regular expressions.

use super::limits::WORK;
use super::{AUTHORIZE, CHARACTER, MAKE_LIST, STEP, regex, selector, times};
use crate::library::formats::MAX_REGEX;
use crate::overloads::CostRule;
use crate::values::{EvalError, Value};

/// The number of list elements that may be copied for each step that the cost limit allows. Upstream concatenates lists
/// without copying, so its model does not count copies.
const COPIED_PER_STEP: u64 = 2;
/// The maximum number of copies, whatever the cost limit.
const MAX_COPIED: u64 = 2_000_000;
/// The number of keys that are searched for the cost of one copy.
const SEARCHED: u64 = 16;
/// The time to count and compare a value, in nanoseconds.
const COMPARE: u64 = 15;
/// The number of bytes of a text that are compared in that time.
const COMPARED_AT_ONCE: u64 = 64;
/// The number of bytes of a text that are read or copied for the cost of copying one element.
const CARRIED: u64 = 1024;
/// The time to copy an element, in nanoseconds.
const COPY: u64 = 100;
/// The time to compile a regular expression, and the time for each of its states, in nanoseconds.
const COMPILE: u64 = 30_000;
const COMPILE_STATE: u64 = 500;
/// The time to parse a byte of a regular expression that is not a literal, in nanoseconds.
const READ_PATTERN: u64 = 50;
/// The number of states that repeated searches simulate together for each byte.
const STATES_AT_ONCE: u64 = 4;

/// Measures costs, and fails above the limit.
#[derive(Debug)]
pub struct Meter {
    used: u64,
    limit: u64,
    copied: u64,
    work: u64,
    most_work: u64,
}

impl Meter {
    /// Creates a meter with this cost limit.
    pub fn new(limit: u64) -> Self {
        Self { used: 0, limit, copied: 0, work: 0, most_work: WORK }
    }

    /// Sets the limit of work that upstream's model does not count, in nanoseconds.
    pub fn with_work(self, most_work: u64) -> Self {
        Self { most_work, ..self }
    }

    /// The cost so far.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The work so far that upstream's model does not count, in nanoseconds.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Charges a cost.
    #[inline]
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.used = self.used.saturating_add(cost);
        if self.used > self.limit { Err(EvalError::TooCostly) } else { Ok(()) }
    }

    fn copy(&mut self, count: u64) -> Result<(), EvalError> {
        self.toil(count.saturating_mul(COPY))?;
        self.copied = self.copied.saturating_add(count);
        if self.copied > self.limit.saturating_mul(COPIED_PER_STEP).min(MAX_COPIED) {
            Err(EvalError::TooCostly)
        } else {
            Ok(())
        }
    }

    fn toil(&mut self, work: u64) -> Result<(), EvalError> {
        self.work = self.work.saturating_add(work);
        if self.work > self.most_work { Err(EvalError::TooCostly) } else { Ok(()) }
    }

    /// Charges for parsing a regular expression that is not a literal.
    pub(crate) fn read_pattern(&mut self, pattern: &str) -> Result<(), EvalError> {
        self.toil(READ_PATTERN.saturating_mul(pattern.len() as u64))
    }

    /// Charges for matching a text: in the worst case, each state is visited for each byte. Also charges for compiling
    /// the expression if it is new.
    pub(crate) fn match_text(&mut self, states: u64, is_new: bool, text: &str) -> Result<(), EvalError> {
        let compiling = if is_new { COMPILE + COMPILE_STATE * states } else { 0 };
        self.toil(compiling.saturating_add(states.saturating_mul(text.len() as u64 + 1)))
    }

    /// Charges for searching the rest of a text after a match.
    pub(crate) fn search_on(&mut self, states: u64, rest: usize) -> Result<(), EvalError> {
        self.toil((states / STATES_AT_ONCE + 1).saturating_mul(rest as u64))
    }

    /// Charges for a call before it runs. `after` charges the few costs that depend on its result.
    pub(crate) fn before(&mut self, rule: CostRule, args: &[Value<'_>]) -> Result<(), EvalError> {
        let work = match (rule, args) {
            (CostRule::AddList | CostRule::One, [Value::List(a), Value::List(b)]) => (a.len() + b.len()) as u64,
            // The model counts the compared elements, but not their contents.
            (
                CostRule::Equal
                | CostRule::NotEqual
                | CostRule::InList
                | CostRule::Sets
                | CostRule::SetsTwice
                | CostRule::Distinct
                | CostRule::Scan,
                _,
            ) => {
                // Counting stops at the limit, since counting is work too.
                let most = self.most_work.saturating_sub(self.work) / COMPARE + 1;
                let values = args.iter().fold(0, |sum: u64, value| sum.saturating_add(values(value, most)));
                self.toil(values.saturating_mul(COMPARE))?;
                0
            }
            (_, [Value::String(text), ..]) => text.len() as u64 / CARRIED,
            _ => 0,
        };
        self.copy(work)?;
        let cost = cost(rule, args);
        self.charge(cost)
    }

    /// Charges for a call with a compiled regular expression.
    pub(crate) fn charge_known(&mut self, rule: CostRule, args: &[Value<'_>]) -> Result<(), EvalError> {
        self.charge(cost(rule, args))
    }

    /// Charges for searching a key among `keys` keys. Upstream uses a hash map, so its model has no such cost.
    pub(crate) fn charge_search(&mut self, keys: usize) -> Result<(), EvalError> {
        self.copy(keys as u64 / SEARCHED)
    }

    /// Charges the part of a call's cost that depends on its result.
    pub(crate) fn after(&mut self, rule: CostRule, result: &Value<'_>) -> Result<(), EvalError> {
        if rule == CostRule::Join { self.charge(times(result.size(), 2.0 * CHARACTER)) } else { Ok(()) }
    }
}

fn cost(rule: CostRule, args: &[Value<'_>]) -> u64 {
    let size = |at: usize| args.get(at).map_or(1, Value::size);
    let characters = |at: usize, factor: f64| times(size(at), factor * CHARACTER);
    match rule {
        CostRule::One | CostRule::Dyn | CostRule::IndexList | CostRule::IndexMap | CostRule::AddList => STEP,
        CostRule::Logic | CostRule::Conditional | CostRule::Join => 0,
        CostRule::InList => size(1),
        CostRule::Equal if args.first().is_some_and(is_one_step) => STEP,
        CostRule::Equal | CostRule::NotEqual | CostRule::Order => times(size(0).min(size(1)), CHARACTER),
        CostRule::AddText => times(size(0).saturating_add(size(1)), CHARACTER),
        CostRule::Affix
        | CostRule::ToBytes
        | CostRule::ToText
        | CostRule::Quote
        | CostRule::Format
        | CostRule::Text
        | CostRule::Read
        | CostRule::ReadSized => characters(0, 1.0),
        CostRule::Contains => characters(0, 1.0).saturating_mul(characters(1, 1.0)),
        CostRule::Matches | CostRule::Find => regex(size(0), size(1)),
        CostRule::Scan => args.first().map_or(0, traversal),
        CostRule::ReadTwice | CostRule::Replace | CostRule::Split => characters(0, 2.0),
        CostRule::ContainsIp | CostRule::ContainsIpText => {
            let text = if rule == CostRule::ContainsIpText { characters(1, 1.0) } else { 0 };
            characters(0, 2.0).saturating_add(text)
        }
        CostRule::ContainsCidr | CostRule::ContainsCidrText => {
            let text = if rule == CostRule::ContainsCidrText { characters(1, 1.0) } else { 0 };
            characters(0, 2.0) + characters(0, 1.0) + STEP + text
        }
        CostRule::Validate => {
            let pattern = match args.first() {
                Some(Value::Format(format)) => format.regex_size(),
                _ => MAX_REGEX,
            };
            regex(size(1), pattern)
        }
        CostRule::Authorize => AUTHORIZE,
        CostRule::Selector => selector(size(1)),
        CostRule::Sets => STEP.saturating_add(size(0).saturating_mul(size(1))),
        CostRule::SetsTwice => STEP.saturating_add(size(0).saturating_mul(size(1)).saturating_mul(2)),
        CostRule::Slice => match args {
            [_, Value::Int(from), Value::Int(to)] => list_cost(to.saturating_sub(*from).max(0).unsigned_abs(), 1.0),
            _ => STEP,
        },
        CostRule::Range => match args {
            [Value::Int(count)] => list_cost((*count).max(0).unsigned_abs(), 1.0),
            _ => STEP,
        },
        CostRule::Reverse => list_cost(size(0), 1.0),
        CostRule::Flatten => match args {
            [_, Value::Int(depth)] => list_cost(size(0), (*depth).max(0) as f64),
            _ => list_cost(size(0), 1.0),
        },
        CostRule::Distinct | CostRule::Sort => compared(args.first()),
        CostRule::SortBy => compared(args.get(1)),
    }
}

/// The cost of creating a list of `count` elements.
fn list_cost(count: u64, factor: f64) -> u64 {
    ((count as f64 * factor) as u64).saturating_add(STEP + MAKE_LIST)
}

/// The cost of comparing all pairs of elements of a list.
fn compared(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else { return STEP + MAKE_LIST };
    let is_text = matches!(list.get(0), Some(Value::String(_) | Value::Bytes(_)));
    let count = list.len() as u64;
    list_cost(count.saturating_mul(count), if is_text { 2.0 + CHARACTER } else { 2.0 })
}

/// Returns true for values that are compared in a single step.
fn is_one_step(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Quantity(_)
            | Value::Ip(_)
            | Value::Cidr(..)
            | Value::Format(_)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::Authorization(_)
    )
}

/// The number of values that must be compared within a value, including the value itself. Counting stops at `most`.
fn values(value: &Value<'_>, most: u64) -> u64 {
    let mut sum: u64 = 1;
    let mut add = |value: &Value<'_>| {
        sum = sum.saturating_add(values(value, most.saturating_sub(sum)));
        sum < most
    };
    match value {
        Value::String(text) => add_bytes(&mut sum, text.len()),
        Value::Bytes(bytes) => add_bytes(&mut sum, bytes.len()),
        Value::List(list) => {
            list.iter().all(|element| add(&element));
        }
        Value::Map(map) => {
            map.entries().iter().all(|(_, value)| add(value));
        }
        _ => {}
    }
    sum
}

fn add_bytes(sum: &mut u64, bytes: usize) {
    *sum = sum.saturating_add(bytes as u64 / COMPARED_AT_ONCE);
}

/// The cost of visiting all parts of a value once.
fn traversal(value: &Value<'_>) -> u64 {
    let part = |size: usize| (size as f64 * CHARACTER) as u64;
    match value {
        Value::String(text) => part(text.len()),
        Value::Bytes(bytes) => part(bytes.len()),
        Value::List(list) => list.iter().map(|element| traversal(&element)).fold(0, u64::saturating_add),
        Value::Map(map) => {
            map.entries().iter().map(|(key, value)| traversal(key).saturating_add(traversal(value))).sum()
        }
        _ => STEP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::from_tree;
    use keelson_meta::json::json;

    #[test]
    fn nested_values_are_counted_up_to_a_limit() {
        let tree = json!([[0, 0, 0], {"a": [1], "b": "x".repeat(640)}]);
        let value = from_tree(&tree, None);
        assert_eq!(values(&value, u64::MAX), 1 + (1 + 3) + (1 + 2 + 1 + 10));
        let wide = json!([[0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]);
        let counted = values(&from_tree(&wide, None), 5);
        assert!((5..9).contains(&counted), "{counted}");
    }
}
