//! A simple model of the fields of a value, which the optimized walk is compared with. Also generates values of any
//! schema.
//!
//! The model copies everything and is slow, so that it is easy to verify.

use keelson_meta::json::{Map, Value, json};
use keelson_patch::fields::{FieldSchema, FieldSet, Granularity, Member, PathElement};
use keelson_schema::{SchemaRef, Type};

/// The fields of an object: all fields of a new value, or those of an apply.
pub(super) fn fields<'a, S: FieldSchema<'a>>(schema: S, object: &Value, applied: bool) -> FieldSet {
    let mut set = FieldSet::new();
    walk(Some(schema), object, applied, &mut Vec::new(), &mut set);
    set
}

fn walk<'a, S: FieldSchema<'a>>(
    schema: Option<S>,
    value: &Value,
    applied: bool,
    path: &mut Vec<PathElement>,
    set: &mut FieldSet,
) {
    for (name, part) in value.as_object().filter(|_| !is_leaf(schema, value)).into_iter().flatten() {
        let (schema, declared) = match schema.map(|schema| schema.member(name)) {
            Some(Member::Field(field)) => (Some(field), true),
            Some(Member::Entry(entry)) => (Some(entry), false),
            Some(Member::Unknown | Member::Undeclared) | None => (None, false),
        };
        path.push(PathElement::field(name));
        if !applied || !declared || is_leaf(schema, part) || *part == json!({}) || part.is_null() {
            set.insert(path);
        }
        walk(schema, part, applied, path, set);
        path.pop();
    }
    let Some(schema) = schema else { return };
    let identities: Vec<_> =
        value.as_array().into_iter().flatten().map(|item| (identity(schema, item), item)).collect();
    for (element, item) in &identities {
        let Some(element) = element else { continue };
        path.push(element.clone());
        set.insert(path);
        if identities.iter().filter(|(other, _)| other.as_ref() == Some(element)).count() == 1 {
            walk(schema.items(), item, applied, path, set);
        }
        path.pop();
    }
}

fn is_leaf<'a, S: FieldSchema<'a>>(schema: Option<S>, value: &Value) -> bool {
    match schema.map_or(Granularity::Deduced, FieldSchema::form) {
        Granularity::Scalar(_) | Granularity::Any | Granularity::AtomicList | Granularity::AtomicMap => true,
        Granularity::Map | Granularity::Set | Granularity::KeyedList => false,
        Granularity::Deduced => !value.is_object() && !value.is_null(),
    }
}

fn identity<'a, S: FieldSchema<'a>>(list: S, item: &Value) -> Option<PathElement> {
    match (list.form(), item) {
        (Granularity::Set, Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            Some(PathElement::value(item.clone()))
        }
        (Granularity::KeyedList, Value::Object(members)) => {
            let value = |key| members.get(key).cloned().or_else(|| list.key_default(key));
            let keys: Vec<_> = list.keys().filter_map(|key| Some((key.into(), value(key)?))).collect();
            (!keys.is_empty()).then(|| PathElement::key(keys))
        }
        _ => None,
    }
}

/// Random numbers by Marsaglia's xorshift.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn throw(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) % sides
    }

    fn one_of(&mut self, values: &[Value]) -> Value {
        values[self.throw(values.len() as u64) as usize].clone()
    }
}

/// A value of a schema, with repeated items, items without keys, escaped texts, nulls, and fields in any order.
pub(super) fn value(schema: SchemaRef<'_>, dice: &mut Dice, depth: usize) -> Value {
    if dice.throw(16) == 0 {
        return Value::Null;
    }
    match schema.value_type() {
        Type::Object => {
            let given = schema.fields().filter(|_| dice.throw(10) < depth as u64).collect::<Vec<_>>();
            let backwards = dice.throw(3) == 0;
            let fields: Box<dyn Iterator<Item = _>> =
                if backwards { Box::new(given.into_iter().rev()) } else { Box::new(given.into_iter()) };
            let member =
                |field: SchemaRef<'_>| (field.field_name().to_owned(), value(field, dice, depth.saturating_sub(1)));
            fields.map(member).collect::<Map>().into()
        }
        Type::Map => {
            let names = ["b", "a/b", "", "<\"\\ü>"].into_iter().filter(|_| dice.throw(2) == 0).collect::<Vec<_>>();
            let Some(values) = schema.items() else { return json!({}) };
            names.into_iter().map(|name| (name.to_owned(), value(values, dice, depth))).collect::<Map>().into()
        }
        Type::Array => {
            let Some(items) = schema.items() else { return json!([]) };
            (0..dice.throw(4)).map(|_| value(items, dice, depth)).collect()
        }
        Type::String | Type::Bytes | Type::Quantity | Type::Time | Type::MicroTime => {
            dice.one_of(&[json!("a"), json!("b"), json!("aa"), json!(""), json!("<&\"\\\u{2028}ü")])
        }
        Type::Int32 | Type::Int64 | Type::Number | Type::IntOrString => {
            dice.one_of(&[json!(0), json!(80), json!(9), json!(-1), json!(1.5)])
        }
        Type::Boolean => dice.one_of(&[json!(true), json!(false)]),
        Type::Any | Type::Either => {
            dice.one_of(&[json!({"a": {"b": [1]}}), json!({}), json!([{"a": null}]), json!("x")])
        }
    }
}
