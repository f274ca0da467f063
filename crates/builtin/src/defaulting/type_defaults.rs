//! Defaults as data: for each field its default value, and the defaults of its content.
//!
//! A rule that reads other fields lists them, so that `missing.rs` can check the bytes of an object. Defaults are
//! constants, and are nested like the objects.

use keelson_meta::json::{Map, Value, json};
use keelson_meta::quantity::rounded_to_millis;

/// The defaults of one type.
pub(crate) struct TypeDefaults {
    /// Fields with a default, or whose content has defaults.
    pub(crate) fields: &'static [(&'static str, Rule)],
    /// Defaults that depend on other fields. They run last, in this order.
    pub(crate) then: &'static [FollowUp],
}

/// A step that runs after the fields of an object have their defaults.
pub(crate) enum FollowUp {
    /// Applies the defaults of another type to the same object.
    Also(&'static TypeDefaults),
    /// Applies the defaults of another type if a boolean field is true.
    If { flag: &'static str, then: &'static TypeDefaults },
    /// Sets a field to an empty object if none of these fields is present.
    WithoutAll { fields: &'static [&'static str], gets: &'static str },
    /// Calls a function if a field is an object. The function may read the whole object, so the field should be rare.
    Where { field: &'static str, run: fn(&mut Map) },
    /// Calls a function. The paths list all fields that it reads or sets; its result must not depend on other fields.
    Run(&'static [&'static str], fn(&mut Map)),
}

/// The default of a field.
pub(crate) enum Rule {
    /// This string, if the field is absent or empty.
    Text(&'static str),
    /// This string, if the field is absent. An empty string has a meaning.
    TextIfAbsent(&'static str),
    /// This number, if the field is absent.
    Number(i64),
    /// This number, if the field is absent or zero, which mean the same.
    Positive(i64),
    /// This boolean, if the field is absent.
    Flag(bool),
    /// The value of another field of the object, if the field is absent or zero.
    Copied(&'static str),
    /// Like [`Copied`](Self::Copied), for a number or a string. An empty string counts as absent.
    CopiedOverText(&'static str),
    /// The result of a function of another field, if the field is absent. The function reads nothing else.
    By(&'static str, fn(&Map) -> Option<Value>),
    /// The entries of another field of the object that this one lacks.
    EntriesOf(&'static str),
    /// An empty object, if the field is absent.
    Empty,
    /// Rounds each quantity of the object up to a thousandth.
    Amounts,
    /// A list with this string, if the field is absent or empty.
    OneOf(&'static str),
    /// Applies defaults to the object, if it is present.
    In(&'static TypeDefaults),
    /// Applies defaults to the object. Creates it if it is absent.
    Always(&'static TypeDefaults),
    /// Applies defaults to each item of the list.
    Each(&'static TypeDefaults),
}

impl TypeDefaults {
    /// Defaults without rules that depend on other fields.
    pub(crate) const fn new(fields: &'static [(&'static str, Rule)]) -> Self {
        Self { fields, then: &[] }
    }

    /// Fills in the fields that the object omits.
    pub(crate) fn fill(&self, tree: &mut Map) {
        for (name, rule) in self.fields {
            rule.apply(tree, name);
        }
        for step in self.then {
            step.apply(tree);
        }
    }
}

impl FollowUp {
    fn apply(&self, tree: &mut Map) {
        match self {
            Self::Also(defaults) => defaults.fill(tree),
            Self::If { flag, then } if is_true(tree, flag) => then.fill(tree),
            Self::If { .. } => {}
            Self::WithoutAll { fields, gets } => {
                if tree.iter().all(|(name, value)| !fields.contains(&name) || value.is_null()) {
                    set(tree, gets, Map::new());
                }
            }
            Self::Where { field, run } if tree.get(field).is_some_and(Value::is_object) => run(tree),
            Self::Where { .. } => {}
            Self::Run(_, function) => function(tree),
        }
    }
}

impl Rule {
    pub(crate) fn apply(&self, tree: &mut Map, name: &str) {
        match self {
            Self::Text(text) if is_unset(tree, name) => set(tree, name, *text),
            Self::TextIfAbsent(text) if is_absent(tree, name) => set(tree, name, *text),
            Self::Number(number) if is_absent(tree, name) => set(tree, name, *number),
            Self::Positive(number) if is_zero(tree, name) => set(tree, name, *number),
            Self::Flag(flag) if is_absent(tree, name) => set(tree, name, *flag),
            Self::Copied(from) if is_zero(tree, name) => copy(tree, from, name),
            Self::CopiedOverText(from) if is_zero(tree, name) || is_unset(tree, name) => copy(tree, from, name),
            Self::By(_, function) if is_unset(tree, name) => {
                if let Some(value) = function(tree) {
                    set(tree, name, value);
                }
            }
            Self::EntriesOf(from) => {
                let Some(entries) = peek(tree, from).filter(|entries| !entries.is_empty()).cloned() else { return };
                Self::Empty.apply(tree, name);
                object(tree, name).into_iter().for_each(|inner| copy_missing(&entries, inner));
            }
            Self::Empty if is_absent(tree, name) => set(tree, name, Map::new()),
            Self::OneOf(text) if list(tree, name).is_empty() && is_list(tree, name) => set(tree, name, vec![*text]),
            Self::In(defaults) => object(tree, name).into_iter().for_each(|inner| defaults.fill(inner)),
            Self::Always(defaults) => {
                if is_absent(tree, name) {
                    set(tree, name, Map::new());
                }
                object(tree, name).into_iter().for_each(|inner| defaults.fill(inner));
            }
            Self::Each(defaults) => each(tree, name, |item| defaults.fill(item)),
            Self::Amounts => object(tree, name).into_iter().for_each(round_amounts),
            Self::Text(_)
            | Self::TextIfAbsent(_)
            | Self::Number(_)
            | Self::Positive(_)
            | Self::Flag(_)
            | Self::Copied(_)
            | Self::CopiedOverText(_)
            | Self::By(..)
            | Self::Empty
            | Self::OneOf(_) => {}
        }
    }
}

/// Rounds the quantities of an object up to thousandths, the smallest unit of the API.
fn round_amounts(amounts: &mut Map) {
    for (_, amount) in amounts.iter_mut() {
        if let Some(rounded) = rounded(amount) {
            *amount = rounded.into();
        }
    }
}

/// The rounded form of a quantity, which is a string or a number; `None` if it needs no rounding.
pub(crate) fn rounded(amount: &Value) -> Option<String> {
    match amount {
        Value::String(text) => rounded_to_millis(text),
        Value::Number(number) => rounded_to_millis(&number.to_string()),
        _ => None,
    }
}

/// Synchronizes a field with the first item of a list, or with the field `part` of that item. If they differ, the field
/// wins, because a client that does not know the list has changed it.
pub(crate) fn mirror_first(tree: &mut Map, field: &str, items: &str, part: Option<&str>) {
    let first = list(tree, items).first();
    let is_replaceable = first.is_none_or(|item| if part.is_some() { item.is_object() } else { item.is_string() });
    let known = first.and_then(|item| part.map_or(Some(item), |part| item.get(part)));
    let known = known.and_then(Value::as_str).unwrap_or_default().to_owned();
    if is_unset(tree, field) {
        if !known.is_empty() {
            set(tree, field, known);
        }
        return;
    }
    let stated = text(tree, field).to_owned();
    let is_list = matches!(tree.get(items), None | Some(Value::Null | Value::Array(_)));
    if !stated.is_empty() && stated != known && is_list && is_replaceable {
        let item = match part {
            None => json!(stated),
            Some(part) => json!({ (part): stated }),
        };
        set(tree, items, json!([item]));
    }
}

/// Sets a field. An existing field keeps its position, a new one comes last.
pub(crate) fn set(tree: &mut Map, name: &str, value: impl Into<Value>) {
    tree.insert(name, value);
}

/// Copies the value of one field to another.
fn copy(tree: &mut Map, from: &str, to: &str) {
    if let Some(value) = tree.get(from).filter(|value| !value.is_null()).cloned() {
        set(tree, to, value);
    }
}

/// Returns true if a field is absent or null. Another value of the wrong type is neither; the schema refuses it.
pub(crate) fn is_absent(tree: &Map, name: &str) -> bool {
    matches!(tree.get(name), None | Some(Value::Null))
}

/// Returns true if a string field is absent, null or empty.
pub(crate) fn is_unset(tree: &Map, name: &str) -> bool {
    match tree.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Returns true if a field is absent, null or zero.
pub(crate) fn is_zero(tree: &Map, name: &str) -> bool {
    is_absent(tree, name) || tree.get(name).and_then(Value::as_f64) == Some(0.0)
}

/// The string in a field; empty if absent.
pub(crate) fn text<'a>(tree: &'a Map, name: &str) -> &'a str {
    tree.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns true if a boolean field is true.
pub(crate) fn is_true(tree: &Map, name: &str) -> bool {
    tree.get(name).and_then(Value::as_bool) == Some(true)
}

/// The items of a list; empty if absent.
pub(crate) fn list<'a>(tree: &'a Map, name: &str) -> &'a [Value] {
    tree.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The object in a field.
pub(crate) fn object<'a>(tree: &'a mut Map, name: &str) -> Option<&'a mut Map> {
    tree.get_mut(name)?.as_object_mut()
}

/// The object in a field, for reading.
pub(crate) fn peek<'a>(tree: &'a Map, name: &str) -> Option<&'a Map> {
    tree.get(name)?.as_object()
}

/// Calls a function for each object in a list. Null items become empty objects.
pub(crate) fn each(tree: &mut Map, name: &str, action: impl FnMut(&mut Map)) {
    let items = tree.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten();
    let objects = items.filter_map(|item| {
        if item.is_null() {
            *item = Value::Object(Map::new());
        }
        item.as_object_mut()
    });
    objects.for_each(action);
}

/// Copies the entries of one object that another lacks.
pub(crate) fn copy_missing(from: &Map, to: &mut Map) {
    for (name, value) in from {
        to.entry(name).or_insert_with(|| value.clone());
    }
}

/// Returns true if the field is a list or absent.
fn is_list(tree: &Map, name: &str) -> bool {
    matches!(tree.get(name), None | Some(Value::Null | Value::Array(_)))
}
