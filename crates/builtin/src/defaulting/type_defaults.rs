//! Defaults as data: for each field of an object what it gets when it is left out, and the defaults of what it holds.
//!
//! A rule that reads other fields names them, so that `missing.rs` can say from the bytes of an object whether it would
//! change anything. They are constants and nest as objects do.

use keelson_meta::json::{Map, Value, json};
use keelson_meta::quantity::rounded_to_millis;

/// The defaults of one type.
pub(crate) struct TypeDefaults {
    /// Fields with a default, or whose content has defaults.
    pub(crate) fields: &'static [(&'static str, Rule)],
    /// Defaults that depend on other fields; they run last, in this order.
    pub(crate) then: &'static [FollowUp],
}

/// A step on an object whose fields have their defaults.
pub(crate) enum FollowUp {
    /// The defaults of another type, too.
    Also(&'static TypeDefaults),
    /// The defaults of another type where a boolean is true.
    If { flag: &'static str, then: &'static TypeDefaults },
    /// An empty object in a field, where none of these is there.
    WithoutAll { fields: &'static [&'static str], gets: &'static str },
    /// Whatever a function makes of the object where one of its fields is an object. It may read all of it, so that field is to be rare.
    Where { field: &'static str, run: fn(&mut Map) },
    /// Anything else. The paths name all that the function reads or sets; it must do the same where it finds nothing else.
    Run(&'static [&'static str], fn(&mut Map)),
}

/// The default of a field.
pub(crate) enum Rule {
    /// This text, where there is none or an empty one.
    Text(&'static str),
    /// This text, where there is none: an empty one says something.
    TextIfAbsent(&'static str),
    /// This number, where there is none.
    Number(i64),
    /// This number, where there is none or a zero: the field can't tell these apart.
    Positive(i64),
    /// This boolean, where there is none.
    Flag(bool),
    /// The value of another field of the object, where the field is absent or zero.
    Copied(&'static str),
    /// As [`Copied`](Self::Copied), for a number or a text. An empty text counts as absent.
    CopiedOverText(&'static str),
    /// The value that a function makes of another field, where the field is absent. The function reads nothing else.
    By(&'static str, fn(&Map) -> Option<Value>),
    /// The entries of another field of the object that this one lacks.
    EntriesOf(&'static str),
    /// An empty object, where there is none.
    Empty,
    /// Each quantity of the object rounded up to a thousandth.
    Amounts,
    /// A list of this one text, where there is none or an empty one.
    OneOf(&'static str),
    /// The defaults of the object, if it is there.
    In(&'static TypeDefaults),
    /// The defaults of the object, which is made if it is not there.
    Always(&'static TypeDefaults),
    /// The defaults of each item of the list.
    Each(&'static TypeDefaults),
}

impl TypeDefaults {
    /// Defaults without rules that depend on other fields.
    pub(crate) const fn of(fields: &'static [(&'static str, Rule)]) -> Self {
        Self { fields, then: &[] }
    }

    /// Fills in what the object leaves out.
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

/// Rounds the quantities of an object up to thousandths, below which the API does not go.
fn round_amounts(amounts: &mut Map) {
    for (_, amount) in amounts.iter_mut() {
        if let Some(rounded) = rounded(amount) {
            *amount = rounded.into();
        }
    }
}

/// The rounded form of a quantity, which is a text or a number; `None` if it has nothing to round.
pub(crate) fn rounded(amount: &Value) -> Option<String> {
    match amount {
        Value::String(text) => rounded_to_millis(text),
        Value::Number(number) => rounded_to_millis(&number.to_string()),
        _ => None,
    }
}

/// Makes a field say the same as the first item of a list: that item, or its field of the name `part`. The field wins if they differ, since
/// a client that knows only the field has changed it.
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

/// Sets a field. One that is there keeps its place, a new one comes last.
pub(crate) fn set(tree: &mut Map, name: &str, value: impl Into<Value>) {
    tree.insert(name, value);
}

/// Copies what one field has into another.
fn copy(tree: &mut Map, from: &str, to: &str) {
    if let Some(value) = tree.get(from).filter(|value| !value.is_null()).cloned() {
        set(tree, to, value);
    }
}

/// Returns true if a field is absent or null. An empty text in place of another type is neither, and the schema refuses it.
pub(crate) fn is_absent(tree: &Map, name: &str) -> bool {
    matches!(tree.get(name), None | Some(Value::Null))
}

/// Returns true if a text field is absent, null, or empty.
pub(crate) fn is_unset(tree: &Map, name: &str) -> bool {
    match tree.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Returns true if a field is absent, null, or zero.
pub(crate) fn is_zero(tree: &Map, name: &str) -> bool {
    is_absent(tree, name) || tree.get(name).and_then(Value::as_f64) == Some(0.0)
}

/// The text of a field, empty if there is none.
pub(crate) fn text<'a>(tree: &'a Map, name: &str) -> &'a str {
    tree.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns true if a boolean is set and true.
pub(crate) fn is_true(tree: &Map, name: &str) -> bool {
    tree.get(name).and_then(Value::as_bool) == Some(true)
}

/// The items of a list, none if there is no list.
pub(crate) fn list<'a>(tree: &'a Map, name: &str) -> &'a [Value] {
    tree.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The object in a field.
pub(crate) fn object<'a>(tree: &'a mut Map, name: &str) -> Option<&'a mut Map> {
    tree.get_mut(name)?.as_object_mut()
}

/// The object in a field, to be read.
pub(crate) fn peek<'a>(tree: &'a Map, name: &str) -> Option<&'a Map> {
    tree.get(name)?.as_object()
}

/// Does something with each object in a list. Nothing at all is an empty one there.
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
