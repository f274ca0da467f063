//! Runs the steps of a program.
//!
//! The cost of a step is charged before it runs. Errors are values, which `&&`, `||` and the macros `all` and `exists`
//! may absorb. An exceeded limit is never absorbed.

use super::{CallNode, FoldNode, Node, RegexNode};
use crate::ast::FoldKind;
use crate::cost::actual::Meter;
use crate::library::regex::ask;
use crate::stack::with_room;
use crate::values::{EvalError, List, Map, Outcome, Value};
use std::rc::Rc;

/// The costs of steps.
const STEP: u64 = 1;
const MAKE_LIST: u64 = 10;
const MAKE_MAP: u64 = 30;
const MAKE_MESSAGE: u64 = 40;

/// An evaluation of a program.
pub(super) struct Run<'r, 'a> {
    variables: &'r [Value<'a>],
    meter: &'r mut Meter,
    /// The variables and accumulators of loops.
    slots: Vec<Outcome<'a>>,
}

impl<'r, 'a> Run<'r, 'a> {
    pub(super) fn new(variables: &'r [Value<'a>], meter: &'r mut Meter) -> Self {
        Self { variables, meter, slots: Vec::new() }
    }

    pub(super) fn eval(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Constant(constant) => Ok(constant.value()),
            Node::Variable(place) => {
                self.meter.charge(STEP)?;
                self.variables.get(*place).cloned().ok_or_else(|| EvalError::new("no such attribute"))
            }
            Node::Local(slot) => {
                self.meter.charge(STEP)?;
                self.slots[*slot].clone()
            }
            _ => with_room(|| self.eval_within(node)),
        }
    }

    /// Evaluates a step that contains other steps.
    fn eval_within(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Constant(_) | Node::Variable(_) | Node::Local(_) => self.eval(node),
            Node::Select(operand, field) => {
                let operand = self.eval(operand)?;
                self.meter.charge(STEP)?;
                select(&operand, field)
            }
            Node::Has(operand, field) => {
                let operand = self.eval(operand)?;
                has(&operand, field).map(Value::Bool)
            }
            Node::OptionalSelect(operand, field) => {
                let operand = self.eval(operand)?;
                self.meter.charge(STEP)?;
                optional_select(&operand, field)
            }
            Node::And(sides) => self.and(&sides.0, &sides.1),
            Node::Or(sides) => self.or(&sides.0, &sides.1),
            Node::Conditional(parts) => match self.eval(&parts.0)? {
                Value::Bool(true) => self.eval(&parts.1),
                Value::Bool(false) => self.eval(&parts.2),
                _ => Err(EvalError::no_overload()),
            },
            Node::NotFalse(value) => {
                let value = self.eval(value);
                self.meter.charge(STEP)?;
                match value {
                    Err(EvalError::TooCostly) => Err(EvalError::TooCostly),
                    Ok(Value::Bool(false)) => Ok(Value::Bool(false)),
                    _ => Ok(Value::Bool(true)),
                }
            }
            Node::Call(call) => self.call(call),
            Node::Regex(call) => self.regex(call),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Message(name, fields) => self.message(name, fields),
            Node::Append(slot, element) => self.append(*slot, element),
            Node::Insert(slot, key, value) => self.insert(*slot, key, value.as_deref()),
            Node::Fold(fold) => self.fold(fold),
        }
    }

    /// Logical and. If one side is false, an error on the other side is absorbed.
    fn and(&mut self, left: &'a Node, right: &'a Node) -> Outcome<'a> {
        let left = self.eval(left);
        if matches!(left, Ok(Value::Bool(false)) | Err(EvalError::TooCostly)) {
            return left;
        }
        match (left, self.eval(right)) {
            (_, right @ (Ok(Value::Bool(false)) | Err(EvalError::TooCostly))) => right,
            (Err(left), _) => Err(left),
            (_, Err(right)) => Err(right),
            (Ok(Value::Bool(true)), Ok(Value::Bool(true))) => Ok(Value::Bool(true)),
            _ => Err(EvalError::no_overload()),
        }
    }

    /// Logical or. If one side is true, an error on the other side is absorbed.
    fn or(&mut self, left: &'a Node, right: &'a Node) -> Outcome<'a> {
        let left = self.eval(left);
        if matches!(left, Ok(Value::Bool(true)) | Err(EvalError::TooCostly)) {
            return left;
        }
        match (left, self.eval(right)) {
            (_, right @ (Ok(Value::Bool(true)) | Err(EvalError::TooCostly))) => right,
            (Err(left), _) => Err(left),
            (_, Err(right)) => Err(right),
            (Ok(Value::Bool(false)), Ok(Value::Bool(false))) => Ok(Value::Bool(false)),
            _ => Err(EvalError::no_overload()),
        }
    }

    fn call(&mut self, call: &'a CallNode) -> Outcome<'a> {
        // Nearly every call has at most two arguments.
        let result = match call.args.as_slice() {
            [] => self.called(call, &[]),
            [one] => {
                let args = [self.eval(one)?];
                self.called(call, &args)
            }
            [one, two] => {
                let args = [self.eval(one)?, self.eval(two)?];
                self.called(call, &args)
            }
            more => {
                let args = more.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
                self.called(call, &args)
            }
        }?;
        self.meter.after(call.rule, &result)?;
        Ok(result)
    }

    fn called(&mut self, call: &'a CallNode, args: &[Value<'a>]) -> Outcome<'a> {
        self.meter.before(call.rule, args)?;
        (call.native)(args)
    }

    fn regex(&mut self, call: &'a RegexNode) -> Outcome<'a> {
        let args = call.args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
        self.meter.charge_known(call.rule, &args)?;
        ask(call.known.as_ref(), call.call, &args, self.meter)
    }

    fn list(&mut self, elements: &'a [(Node, bool)]) -> Outcome<'a> {
        let mut out = Vec::with_capacity(elements.len());
        for (element, is_optional) in elements {
            let value = self.eval(element)?;
            out.extend(if *is_optional { optional(value)? } else { Some(value) });
        }
        self.meter.charge(MAKE_LIST)?;
        Ok(Value::list(out))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Outcome<'a> {
        let mut out: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for (key, value, is_optional) in entries {
            let key = self.eval(key)?;
            if !is_key(&key) {
                return Err(EvalError::new(format!("unsupported key type: {}", key.type_name())));
            }
            let value = self.eval(value)?;
            let Some(value) = (if *is_optional { optional(value)? } else { Some(value) }) else { continue };
            match out.iter_mut().find(|(other, _)| crate::values::equals(other, &key)) {
                Some((_, place)) => *place = value,
                None => out.push((key, value)),
            }
        }
        self.meter.charge(MAKE_MAP)?;
        Ok(Value::map(out))
    }

    fn message(&mut self, name: &str, fields: &'a [(Box<str>, Node, bool)]) -> Outcome<'a> {
        let mut made = Vec::with_capacity(fields.len());
        for (field, value, is_optional) in fields {
            let value = self.eval(value)?;
            let value = if *is_optional { optional(value)? } else { Some(value) };
            made.extend(value.map(|value| (Value::text(field), value)));
        }
        self.meter.charge(MAKE_MESSAGE)?;
        message(name, made)
    }

    fn append(&mut self, slot: usize, element: &'a Node) -> Outcome<'a> {
        let element = self.eval(element)?;
        // The costs of reading the accumulator, of creating a list, and of concatenating.
        self.meter.charge(STEP + MAKE_LIST + STEP)?;
        match std::mem::replace(&mut self.slots[slot], Ok(Value::Null))? {
            Value::List(List::Made(mut elements)) => {
                Rc::make_mut(&mut elements).push(element);
                Ok(Value::List(List::Made(elements)))
            }
            _ => Err(EvalError::no_overload()),
        }
    }

    fn insert(&mut self, slot: usize, key: &'a Node, value: Option<&'a Node>) -> Outcome<'a> {
        let key = self.eval(key)?;
        let added = match value {
            Some(value) => vec![(key, self.eval(value)?)],
            None => match key {
                Value::Map(map) => map.entries(),
                _ => return Err(EvalError::no_overload()),
            },
        };
        self.meter.charge(STEP + STEP)?;
        match std::mem::replace(&mut self.slots[slot], Ok(Value::Null))? {
            Value::Map(Map::Made(mut entries)) => {
                let gathered = Rc::make_mut(&mut entries);
                for (key, value) in added {
                    // Charged because the key is searched among the existing keys.
                    self.meter.charge_search(gathered.len())?;
                    if gathered.iter().any(|(other, _)| crate::values::equals(other, &key)) {
                        let text = crate::library::operators::key_text(&key);
                        return Err(EvalError::new(format!("insert failed: key {text} already exists")));
                    }
                    gathered.push((key, value));
                }
                Ok(Value::Map(Map::Made(entries)))
            }
            _ => Err(EvalError::no_overload()),
        }
    }

    fn fold(&mut self, fold: &'a FoldNode) -> Outcome<'a> {
        let slot = fold.slot;
        if fold.shape == FoldKind::Bind {
            let bound = self.eval(&fold.init);
            self.slots.truncate(slot);
            self.slots.push(bound);
            return self.finish(fold);
        }
        let range = self.eval(&fold.range)?;
        let init = self.eval(&fold.init);
        self.slots.truncate(slot);
        self.slots.extend([init, Ok(Value::Null), Ok(Value::Null)]);
        match range {
            Value::List(list) => {
                for at in 0..list.len() {
                    let Some(element) = list.get(at) else { break };
                    let index = Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
                    let (first, second) = if fold.is_double { (index, element) } else { (element, Value::Null) };
                    if !self.iterate(fold, first, second)? {
                        break;
                    }
                }
            }
            Value::Map(map) if fold.is_double => {
                for (key, value) in map.entries() {
                    if !self.iterate(fold, key, value)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for key in map.keys() {
                    if !self.iterate(fold, key, Value::Null)? {
                        break;
                    }
                }
            }
            other => return Err(EvalError::no_range(&other)),
        }
        self.finish(fold)
    }

    fn finish(&mut self, fold: &'a FoldNode) -> Outcome<'a> {
        self.slots.truncate(fold.slot + 1);
        let result = self.eval(&fold.result);
        self.slots.truncate(fold.slot);
        result
    }

    /// Runs a loop for one element. Returns false if the loop ends.
    fn iterate(&mut self, fold: &'a FoldNode, first: Value<'a>, second: Value<'a>) -> Result<bool, EvalError> {
        let slot = fold.slot;
        self.slots.truncate(slot + 3);
        self.slots[slot + 1] = Ok(first);
        self.slots[slot + 2] = Ok(second);
        let (is_all, decided) = match fold.shape {
            FoldKind::All => (true, false),
            FoldKind::Exists => (false, true),
            FoldKind::Bind | FoldKind::General => {
                if !matches!(self.eval(&fold.condition), Ok(Value::Bool(true))) {
                    return Ok(false);
                }
                // If the step fails, the loop ends, since the accumulator would stay an error.
                let gathered = self.eval(&fold.step)?;
                self.slots[slot] = Ok(gathered);
                return Ok(true);
            }
        };
        // The costs of reading the accumulator. `exists` also negates it.
        self.meter.charge(if is_all { 2 * STEP } else { 3 * STEP })?;
        if matches!(self.slots[slot], Ok(Value::Bool(value)) if value == decided) {
            return Ok(false);
        }
        self.meter.charge(STEP)?;
        match self.eval(&fold.step) {
            Err(EvalError::TooCostly) => return Err(EvalError::TooCostly),
            Ok(Value::Bool(value)) if value == decided => self.slots[slot] = Ok(Value::Bool(decided)),
            Ok(Value::Bool(_)) => {}
            Ok(_) if self.slots[slot].is_ok() => self.slots[slot] = Err(EvalError::no_overload()),
            Err(fault) if self.slots[slot].is_ok() => self.slots[slot] = Err(fault),
            Ok(_) | Err(_) => {}
        }
        Ok(true)
    }
}

fn is_key(key: &Value<'_>) -> bool {
    matches!(key, Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_))
}

/// The value in an optional.
fn optional(value: Value<'_>) -> Result<Option<Value<'_>>, EvalError> {
    match value {
        Value::Optional(value) => Ok(value.map(|value| (*value).clone())),
        other => Err(EvalError::new(format!(
            "cannot initialize optional entry from non-optional value {}",
            other.type_name()
        ))),
    }
}

fn select<'a>(operand: &Value<'a>, field: &str) -> Outcome<'a> {
    match operand {
        Value::Map(map) => map.field(field).ok_or_else(|| EvalError::no_key(field)),
        Value::Fields(fields) => fields.field(field).unwrap_or_else(|| Err(EvalError::no_key(field))),
        Value::Optional(Some(value)) => optional_select(value, field),
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::List(_) => Err(EvalError::new("unsupported index type 'string' in list")),
        _ => Err(EvalError::no_key(field)),
    }
}

fn has(operand: &Value<'_>, field: &str) -> Result<bool, EvalError> {
    Ok(match operand {
        Value::Map(map) => map.field(field).is_some(),
        Value::Fields(fields) => fields.field(field).transpose()?.is_some(),
        Value::Optional(Some(value)) => return has(value, field),
        _ => false,
    })
}

fn optional_select<'a>(operand: &Value<'a>, field: &str) -> Outcome<'a> {
    match operand {
        Value::Map(map) => Ok(map.field(field).map_or(Value::Optional(None), Value::some)),
        Value::Fields(fields) => Ok(fields.field(field).transpose()?.map_or(Value::Optional(None), Value::some)),
        Value::Optional(Some(value)) => optional_select(value, field),
        Value::Optional(None) => Ok(Value::Optional(None)),
        _ => Err(EvalError::no_key(field)),
    }
}

/// Creates a message. A well-known message becomes the value that it represents.
fn message<'a>(name: &str, fields: Vec<(Value<'a>, Value<'a>)>) -> Outcome<'a> {
    let field = |wanted: &str| {
        fields.iter().find(|(key, _)| matches!(key, Value::String(text) if **text == *wanted)).map(|(_, value)| value)
    };
    let number = |wanted: &str| match field(wanted) {
        Some(Value::Int(number)) => *number,
        _ => 0,
    };
    Ok(match name {
        "google.protobuf.Duration" => {
            let nanos =
                number("seconds").checked_mul(1_000_000_000).and_then(|nanos| nanos.checked_add(number("nanos")));
            Value::Duration(nanos.ok_or_else(|| EvalError::new("duration overflow"))?)
        }
        "google.protobuf.Timestamp" => {
            let time = crate::library::times::from_seconds(number("seconds"));
            let mut time = time.ok_or_else(|| EvalError::new("timestamp overflow"))?;
            time.nanos = u32::try_from(number("nanos")).ok().filter(|nanos| *nanos < 1_000_000_000).unwrap_or(0);
            Value::Timestamp(time)
        }
        "google.protobuf.Value" => Value::Null,
        "google.protobuf.ListValue" => Value::list(Vec::new()),
        _ if name.starts_with("google.protobuf.") && name.ends_with("Value") => match field("value") {
            Some(value) => value.clone(),
            None => zero(name),
        },
        _ => Value::map(fields),
    })
}

fn zero(name: &str) -> Value<'static> {
    match name {
        "google.protobuf.BoolValue" => Value::Bool(false),
        "google.protobuf.BytesValue" => Value::Bytes([].into()),
        "google.protobuf.DoubleValue" | "google.protobuf.FloatValue" => Value::Double(0.0),
        "google.protobuf.StringValue" => Value::text(""),
        "google.protobuf.UInt32Value" | "google.protobuf.UInt64Value" => Value::Uint(0),
        _ => Value::Int(0),
    }
}
