//! Evaluates the rules of a schema for a value, with upstream's order, messages and budget.
//!
//! A rule runs for each value that is present and not null. The old value is the one at the same place: the same field,
//! the same map key, or the item with the same keys. A fault of an unchanged value is a warning, unless the rule reads
//! the old value.

use std::collections::HashMap;

use keelson_cel::cost::limits;
use keelson_cel::{EvalError, Meter, Program, Value as Cel, values};
use keelson_meta::field_error::{FAULTS_BYTES_MAX, FAULTS_MAX, FieldError};
use keelson_meta::go_format;
use keelson_meta::json::{Map, Value};

use super::{Checks, Expression, Expressions, OLD_SELF, Reason};
use crate::structural::MAX_DEPTH;
use crate::structural::at::{At, NOWHERE, PathSegment};
use crate::structural::check::is_type_field;
use crate::structural::equality::{SameKeys, is_unchanged};
use crate::structural::fault_list::Budget;
use crate::structural::rules::Node;

/// The maximum length of a `messageExpression`'s result in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The result of validating a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Faults that refuse the object.
    pub faults: Vec<FieldError>,
    /// Faults of unchanged values.
    pub warnings: Vec<String>,
}

/// Runs all rules on an object with the old value `old`.
pub(in crate::structural) fn run(
    (checks, root): (&Checks, &Node),
    object: &Value,
    old: Option<&Value>,
    budget: &mut Budget,
    found: &mut Findings,
) {
    let mut run = Run { budget, found, bytes: 0 };
    let nearest = CorrelatedValue::new(Some(root), object, old);
    // If a fault ended the run, it is among the findings.
    let _ = run.value(checks, Some(root), object, (old, nearest), &At::ROOT);
}

/// Runs all rules on a default, within the rest of a budget. The default also serves as the old value, but its faults
/// do not become warnings.
pub(in crate::structural) fn run_for_default(
    checks: &Checks,
    default: &Value,
    old: Option<&Value>,
    budget: &mut Budget,
) -> Vec<FieldError> {
    let mut found = Findings::default();
    let mut run = Run { budget, found: &mut found, bytes: 0 };
    // If a fault ended the run, it is among the findings.
    let _ = run.value(checks, None, default, (old, None), &At::ROOT);
    found.faults
}

struct Run<'f> {
    /// The remaining budget.
    budget: &'f mut Budget,
    found: &'f mut Findings,
    /// The estimated size of the findings in bytes.
    bytes: usize,
}

/// The run has ended.
struct Ended;

/// A value, its schema and its old value. If its own old value is unknown, it has the old value of the nearest
/// enclosing value that has one. If a known old value is equal, faults become warnings.
#[derive(Clone, Copy)]
struct CorrelatedValue<'v> {
    node: &'v Node,
    value: &'v Value,
    old: &'v Value,
}

type Nearest<'v> = Option<CorrelatedValue<'v>>;

impl<'v> CorrelatedValue<'v> {
    fn new(node: Option<&'v Node>, value: &'v Value, old: Option<&'v Value>) -> Nearest<'v> {
        Some(Self { node: node?, value, old: old? })
    }

    fn is_unchanged(self) -> bool {
        is_unchanged(self.node, self.old, self.value)
    }
}

impl Run<'_> {
    fn value<'v>(
        &mut self,
        checks: &Checks,
        node: Option<&'v Node>,
        value: &'v Value,
        (old, nearest): (Option<&'v Value>, Nearest<'v>),
        at: &At<'_>,
    ) -> Result<(), Ended> {
        if value.is_null() || at.depth > MAX_DEPTH {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        if let Some(own) = &checks.own {
            self.own(own, checks, value, old, nearest, at)?;
        }
        match value {
            Value::Array(items) => self.items(checks, node, items, (old, nearest), at),
            Value::Object(map) => self.members(checks, node, map, (old, nearest), at),
            _ => Ok(()),
        }
    }

    fn items<'v>(
        &mut self,
        checks: &Checks,
        node: Option<&'v Node>,
        items: &'v [Value],
        (old, nearest): (Option<&'v Value>, Nearest<'v>),
        at: &At<'_>,
    ) -> Result<(), Ended> {
        let Some(of_items) = &checks.items else { return Ok(()) };
        let node = node.and_then(|node| node.lists.items.as_deref());
        let mut partners = HashMap::new();
        if let (Some(keys), Some(Value::Array(old))) = (&checks.keys, old) {
            for item in old.iter().filter(|item| item.is_object()) {
                partners.entry(SameKeys { keys, item }).or_insert(item);
            }
        }
        for (index, item) in items.iter().enumerate() {
            let keys = checks.keys.as_deref().filter(|_| !partners.is_empty());
            let old = keys.and_then(|keys| partners.get(&SameKeys { keys, item }).copied());
            let nearest = CorrelatedValue::new(node, item, old).or(nearest);
            self.value(of_items, node, item, (old, nearest), &at.then(PathSegment::Index(index)))?;
        }
        Ok(())
    }

    fn members<'v>(
        &mut self,
        checks: &Checks,
        node: Option<&'v Node>,
        map: &'v Map,
        (old, nearest): (Option<&'v Value>, Nearest<'v>),
        at: &At<'_>,
    ) -> Result<(), Ended> {
        let mut member = |checks: &Checks, name: &str, value: &'v Value, step: PathSegment<'_>| {
            let old = old.and_then(|old| old.get(name));
            let node = node.and_then(|node| node.member(name));
            let nearest = match at.depth {
                0 if is_type_field(name) => None,
                _ => CorrelatedValue::new(node, value, old).or(nearest),
            };
            self.value(checks, node, value, (old, nearest), &at.then(step))
        };
        if let Some(of_values) = &checks.values {
            let mut names: Vec<&str> = map.keys().collect();
            names.sort_unstable();
            for name in names {
                member(of_values, name, &map[name], PathSegment::Key(name))?;
            }
        }
        for (name, checks) in &checks.properties {
            if let Some(value) = map.get(name) {
                member(checks, name, value, PathSegment::Field(name))?;
            }
        }
        Ok(())
    }

    /// Runs the rules of this value.
    fn own(
        &mut self,
        own: &Expressions,
        checks: &Checks,
        value: &Value,
        old: Option<&Value>,
        nearest: Nearest<'_>,
        at: &At<'_>,
    ) -> Result<(), Ended> {
        let here = CurrentValue { value, nearest, of: &checks.of, at };
        if self.budget.is_spent() {
            return self.end(&here, OUT_OF_BUDGET.to_owned());
        }
        let read = |value| values::from_tree(value, Some(&own.decl));
        let (this, before) = (read(value), old.map(read));
        for rule in &own.rules {
            let Ok(program) = &rule.rule else { continue };
            let uses_old = rule.uses_old_self();
            if uses_old && before.is_none() && !rule.optional_old_self {
                continue;
            }
            let was = match &before {
                Some(before) if rule.optional_old_self => Cel::some(before.clone()),
                Some(before) => before.clone(),
                None if rule.optional_old_self => Cel::Optional(None),
                None => Cel::Null,
            };
            let variables = [this.clone(), was];
            let mut meter = self.meter();
            let outcome = program.holds(&variables, &mut meter);
            if !self.pay(&meter) {
                return self.end(&here, OUT_OF_BUDGET.to_owned());
            }
            match outcome {
                Ok(true) => {}
                Ok(false) => self.failed(rule, &variables, before.is_some(), &here)?,
                Err(EvalError::TooCostly) => {
                    let shown = &rule.shown;
                    let why = format!(
                        "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}",
                        EvalError::TooCostly
                    );
                    return self.end(&here, why);
                }
                Err(error) => {
                    let (error, shown) = (error.to_string(), &rule.shown);
                    self.fault(here.evaluation_error(if error.starts_with("no such overload") {
                        format!(
                            "'{error}': call arguments did not match a supported operator, function or macro signature \
                             for rule: {shown}"
                        )
                    } else {
                        format!("{error} evaluating rule: {shown}")
                    }));
                }
            }
        }
        Ok(())
    }

    /// Charges an evaluation to the budget. Returns false if the budget is exceeded.
    fn pay(&mut self, meter: &Meter) -> bool {
        let left = self.budget.cost.checked_sub(meter.used());
        self.budget.cost = left.unwrap_or_default();
        self.budget.expressions = self.budget.expressions.saturating_sub(meter.work());
        left.is_some()
    }

    /// A meter for one evaluation, with its own limit.
    fn meter(&self) -> Meter {
        Meter::new(limits::EVALUATION).with_work(self.budget.expressions)
    }

    /// Ends the run with a fault.
    fn end(&mut self, here: &CurrentValue<'_>, why: String) -> Result<(), Ended> {
        self.fault(here.evaluation_error(why));
        self.budget.cost = 0;
        Err(Ended)
    }

    /// Returns true if there is room for another finding. The first one is always accepted.
    fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.bytes < FAULTS_BYTES_MAX;
        self.bytes += bytes;
        has_room
    }

    fn fault(&mut self, fault: FieldError) {
        if self.found.faults.len() < FAULTS_MAX && self.has_room(fault.about_bytes()) {
            self.found.faults.push(fault);
        }
    }

    /// Reports a rule that does not hold.
    fn failed(
        &mut self,
        rule: &Expression,
        variables: &[Cel<'_>],
        has_old: bool,
        here: &CurrentValue<'_>,
    ) -> Result<(), Ended> {
        let field = here.field(&rule.field);
        let was_so = !rule.uses_old_self() && here.nearest.is_some_and(CorrelatedValue::is_unchanged);
        let (fault, ended) = match self.message(rule, variables, has_old) {
            Ok(message) => {
                let detail = message.as_deref().unwrap_or(&rule.plain_message);
                (here.broken(field, rule.reason, detail), false)
            }
            Err(why) => (FieldError::invalid(field, here.of, why), true),
        };
        if !was_so {
            self.fault(fault);
        } else if self.found.warnings.len() < FAULTS_MAX && self.has_room(fault.about_bytes()) {
            self.found.warnings.push(fault.to_string());
        }
        if ended {
            self.budget.cost = 0;
            return Err(Ended);
        }
        Ok(())
    }

    /// Returns the result of `messageExpression`, if it can be used as a message.
    ///
    /// # Errors
    /// The reason why the run must end.
    fn message(&mut self, rule: &Expression, variables: &[Cel<'_>], has_old: bool) -> Result<Option<String>, String> {
        let Some(Ok(program)) = &rule.message else { return Ok(None) };
        if !has_old && !rule.optional_old_self && program.uses(OLD_SELF) {
            return Ok(None);
        }
        let mut meter = self.meter();
        let outcome = text_of(program, variables, &mut meter);
        if !self.pay(&meter) {
            return Err(
                "messageExpression evaluation failed due to running out of cost budget, no further validation rules \
                        will be run"
                    .to_owned(),
            );
        }
        match outcome {
            Ok(text) => {
                let text = text.trim();
                let can_be_shown = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
                Ok(can_be_shown.then(|| text.to_owned()))
            }
            Err(EvalError::TooCostly) => Err(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                go_format::quote(&rule.message_text)
            )),
            Err(EvalError::Failed(_)) => Ok(None),
        }
    }
}

fn text_of(program: &Program, variables: &[Cel<'_>], meter: &mut Meter) -> Result<String, EvalError> {
    match program.evaluate(variables, meter)? {
        Cel::String(text) => Ok(text.to_string()),
        _ => Err(EvalError::no_overload()),
    }
}

/// The value under validation.
struct CurrentValue<'h> {
    value: &'h Value,
    nearest: Nearest<'h>,
    of: &'h str,
    at: &'h At<'h>,
}

impl CurrentValue<'_> {
    /// The field of a fault: the rule's `fieldPath` below the path of the value.
    fn field(&self, below: &str) -> String {
        match (self.at.depth, below) {
            (0, "") => NOWHERE.to_owned(),
            (0, below) => below.to_owned(),
            (_, "") => self.at.to_string(),
            (_, below) => self.at.field(below),
        }
    }

    fn evaluation_error(&self, why: String) -> FieldError {
        FieldError::invalid(self.field(""), self.of, why)
    }

    fn broken(&self, field: String, reason: Reason, detail: &str) -> FieldError {
        let is_shown = !matches!(self.of, "object" | "array");
        match reason {
            Reason::Invalid if is_shown => FieldError::invalid(field, self.value.clone(), detail),
            Reason::Invalid => FieldError::invalid_unshown(field, detail),
            Reason::Forbidden => FieldError::forbidden(field, detail),
            Reason::Required => FieldError::required(field, detail),
            Reason::Duplicate if is_shown => FieldError::duplicate(field, self.value.clone()),
            Reason::Duplicate => FieldError::duplicate_unshown(field),
        }
    }
}
