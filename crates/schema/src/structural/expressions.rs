//! The CEL rules of a schema (`x-kubernetes-validations`).
//!
//! Rules are compiled once, with the type that the schema declares at their place. Limits on rules, such as their
//! estimated cost, are checked where definitions are validated. `run` evaluates rules and reports faults of values.

mod run;

use std::sync::Arc;

use keelson_cel::decl::{self, Decl};
use keelson_cel::{CompileError, Environment, Program, Type, environments};
use keelson_meta::json::Value;

pub use run::Findings;
pub(super) use run::{run, run_for_default};

use crate::field_path;

/// The name of the value's type in messages. Upstream's name ends with a number that changes.
const TYPE_NAME: &str = "selfType0";
/// The estimated cost from which a rule counts as expensive, in upstream's units.
const MUCH: u64 = 1_000_000;
/// The estimated memory of an empty rule, of each byte of its compiled text, and of each value of the document for its
/// types. The estimates are above measured values. Compiled regular expressions are kept elsewhere.
const RULE_BYTES: usize = 1024;
const BYTES_OF_A_BYTE: usize = 64;
const BYTES_OF_A_VALUE: usize = 256;
/// The variable with the old value.
const OLD_SELF: &str = "oldSelf";

/// The rules of one schema.
#[derive(Debug)]
pub struct Expressions {
    decl: Arc<Decl>,
    /// The number of values in the document of the types.
    values: usize,
    /// The rules in the order of the schema.
    pub rules: Vec<Expression>,
}

/// A rule.
#[derive(Debug)]
pub struct Expression {
    /// The compiled rule or its error.
    pub rule: Result<Program, CompileError>,
    /// The compiled `messageExpression` or its error.
    pub message: Option<Result<Program, CompileError>>,
    /// The source of `messageExpression`.
    message_text: String,
    /// The message if there is no `messageExpression`, or if it fails.
    plain_message: String,
    /// The text of the rule in messages about it.
    shown: String,
    reason: Reason,
    /// The `fieldPath` of faults, relative to the value.
    field: String,
    optional_old_self: bool,
    may_cost_much: bool,
    regex_states: u64,
    /// The length of the rule's source in bytes.
    length: usize,
}

/// The reason of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
}

/// The rules of a schema and of all schemas below it. Schemas without rules are left out.
#[derive(Debug, Default)]
pub(super) struct Checks {
    own: Option<Expressions>,
    /// The declared type. It is shown for a value that could not be validated.
    of: String,
    /// The rules of properties, by their names.
    properties: Vec<(String, Checks)>,
    values: Option<Box<Checks>>,
    items: Option<Box<Checks>>,
    /// The fields that identify the items of a list of type map.
    keys: Option<Vec<String>>,
}

impl Expressions {
    /// Compiles the rules of a schema, without those below it. Returns `None` if CEL can't represent the values.
    /// `is_root` is true for the schema of an object with its own metadata.
    pub fn compile(schema: &Value, is_root: bool) -> Option<Self> {
        let decl = decl::from_schema(schema, TYPE_NAME, is_root)?;
        let [plain, optional] = [false, true].map(|optional| environments::rule(&decl, optional));
        let stated = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
        let rules = stated.map(|rule| Expression::compile(rule, schema, &plain, &optional)).collect();
        Some(Self { decl, values: values(schema), rules })
    }

    /// The smallest possible size of a value in bytes.
    pub fn min_size(&self) -> u64 {
        self.decl.min_size
    }
}

impl Expression {
    fn compile(stated: &Value, schema: &Value, plain: &Environment, optional: &Environment) -> Self {
        let text = |name: &str| stated.get(name).and_then(Value::as_str).unwrap_or_default();
        let optional_old_self = stated.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default();
        let environment = if optional_old_self { optional } else { plain };
        let rule = Program::compile_rule(text("rule"), environment);
        // If the rule is invalid, its message is not compiled.
        let message = Some(text("messageExpression"))
            .filter(|message| !message.is_empty() && rule.is_ok())
            .map(|message| Program::compile_to(message, environment, &[Type::String]));
        let (stated_rule, stated_message) = (text("rule").trim(), text("message").trim());
        let has_message = !text("message").is_empty();
        let cost = rule.as_ref().map_or(0, |rule| rule.cost().max);
        let states = |program: &Program| program.regex_states();
        let of_message = message.as_ref().and_then(|made| made.as_ref().ok()).map_or(0, states);
        let regex_states = rule.as_ref().map_or(0, states).saturating_add(of_message);
        Self {
            may_cost_much: cost > MUCH,
            regex_states,
            length: stated
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(_, value)| value.as_str())
                .map(str::len)
                .sum(),
            rule,
            message,
            message_text: text("messageExpression").to_owned(),
            plain_message: if has_message { stated_message.to_owned() } else { format!("failed rule: {stated_rule}") },
            shown: if has_message { stated_message } else { stated_rule }.to_owned(),
            reason: match text("reason") {
                "FieldValueForbidden" => Reason::Forbidden,
                "FieldValueRequired" => Reason::Required,
                "FieldValueDuplicate" => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            field: field_path::resolve(text("fieldPath"), schema, true)
                .map_or_else(|_| String::new(), |field| field.path),
            optional_old_self,
        }
    }

    /// Returns true if the rule reads the old value.
    pub fn uses_old_self(&self) -> bool {
        self.rule.as_ref().is_ok_and(|rule| rule.uses(OLD_SELF))
    }
}

/// The number of values in a document.
fn values(document: &Value) -> usize {
    match document {
        Value::Object(members) => 1 + members.iter().map(|(_, value)| values(value)).sum::<usize>(),
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        _ => 1,
    }
}

impl Checks {
    /// Returns true if a schema or a schema below it states rules.
    pub(super) fn are_stated(schema: &Value) -> bool {
        let Some(schema) = schema.as_object() else { return false };
        let own = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let below = ["additionalProperties", "items"].into_iter().filter_map(|name| schema.get(name));
        own.is_some_and(|own| !own.is_empty())
            || properties.map(|(_, schema)| schema).chain(below).any(Self::are_stated)
    }

    /// Returns true if there are no rules.
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_none() && self.below().next().is_none()
    }

    /// The estimated memory in bytes.
    pub(super) fn estimated_bytes(&self) -> usize {
        let rule = |rule: &Expression| RULE_BYTES + rule.length * BYTES_OF_A_BYTE;
        let types = self.own.as_ref().map_or(0, |own| own.values * BYTES_OF_A_VALUE);
        let own = RULE_BYTES + types + self.rules().map(rule).sum::<usize>();
        own + self.below().map(Self::estimated_bytes).sum::<usize>()
    }

    /// Returns true if one of the rules may be expensive.
    pub(super) fn may_cost_much(&self) -> bool {
        self.rules().any(|rule| rule.may_cost_much) || self.below().any(Self::may_cost_much)
    }

    /// The number of states of the regular expressions of all rules.
    pub(super) fn regex_states(&self) -> u64 {
        let own = self.rules().map(|rule| rule.regex_states);
        own.chain(self.below().map(Self::regex_states)).fold(0, u64::saturating_add)
    }

    fn rules(&self) -> impl Iterator<Item = &Expression> {
        self.own.iter().flat_map(|own| &own.rules)
    }

    fn below(&self) -> impl Iterator<Item = &Self> {
        let properties = self.properties.iter().map(|(_, below)| below);
        properties.chain(self.values.as_deref()).chain(self.items.as_deref())
    }

    /// Compiles the rules of a schema and of all below it. Returns `None` without rules.
    pub(super) fn compile(schema: &Value, is_root: bool) -> Option<Self> {
        let list = |name: &str| schema.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let below = |schema: Option<&Value>| {
            let schema = schema.filter(|schema| schema.is_object())?;
            Self::compile(schema, is_embedded(schema))
        };
        let members = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let mut properties: Vec<(String, Self)> =
            members.filter_map(|(name, schema)| Some((name.to_owned(), below(Some(schema))?))).collect();
        properties.sort_by(|(left, _), (right, _)| left.cmp(right));
        let has_own = !list("x-kubernetes-validations").is_empty();
        let made = Self {
            own: if has_own { Expressions::compile(schema, is_root) } else { None },
            of: text("type").to_owned(),
            properties,
            values: below(schema.get("additionalProperties")).map(Box::new),
            items: below(schema.get("items")).map(Box::new),
            keys: (text("x-kubernetes-list-type") == "map").then(|| {
                let keys = list("x-kubernetes-list-map-keys").iter();
                keys.filter_map(Value::as_str).map(str::to_owned).collect()
            }),
        };
        (!made.is_empty()).then_some(made)
    }
}

/// Returns true for the schema of an object with its own metadata.
pub(super) fn is_embedded(schema: &Value) -> bool {
    schema.get("x-kubernetes-embedded-resource").and_then(Value::as_bool).unwrap_or_default()
}
