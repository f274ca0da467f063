//! Validates an object by the keywords of its schema, with upstream's messages in upstream's order.
//!
//! Values are validated first, then embedded objects, then duplicates in lists. Fields are visited in the order of
//! their names. A value that equals the old value at the same place causes no fault. List items are matched by hash, so
//! the work is linear in the length of a list. The work is counted, because a schema can multiply it.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use keelson_cel::library::regex::Pattern;
use keelson_meta::field_error::FieldError;
use keelson_meta::go_format;
use keelson_meta::json::{Map, Value, about_bytes};

use super::at::{At, NOWHERE, PathSegment, nowhere};
use super::equality::{CelEqual, SameKeys, is_unchanged};
use super::fault_list::{Budget, FaultList};
use super::rules::{Identity, Kind, Node, UndeclaredFields};
use super::{MAX_DEPTH, embedded, formats, numbers};

/// The work units for one value, one member or item, one name or value of the schema, and one character.
const LOOK: u64 = 100;
const LOOK_INSIDE: u64 = 50;
const LOOK_AT_STATED: u64 = 20;
const READ: u64 = 10;
/// The work units for compiling a pattern, and for each of its states.
const COMPILE: u64 = 30_000;
const COMPILE_STATE: u64 = 500;

/// The fault of an object whose validation exceeds the budget.
const TOO_MUCH_WORK: &str = "it would take too long to compare the object with all that its schema asks for";

/// The faults of a value, except those of embedded objects and duplicates.
pub(super) fn value_faults(root: &Node, object: &Value, old: Option<&Value>, budget: &mut Budget) -> Vec<FieldError> {
    let mut faults = FaultList::new(budget.keywords);
    value(root, object, old, &At::ROOT, &mut faults);
    reported(faults, budget)
}

/// The faults of an object whose old value is `old`. With `part`, only the faults of that part are reported.
pub(super) fn faults(
    root: &Node,
    object: &Value,
    old: Option<&Value>,
    part: Option<&str>,
    budget: &mut Budget,
) -> Vec<FieldError> {
    let mut faults = FaultList::new(budget.keywords);
    match part.and_then(|name| Some((name, root.property(name)?))) {
        Some((name, node)) => part_faults(name, node, object, old, &mut faults),
        None => value(root, object, old, &At::ROOT, &mut faults),
    }
    embedded::faults(root, object, false, &At::ROOT, &mut faults);
    let twice = faults.beside(|twice| lists(root, object, &At::ROOT, twice));
    let before = match old.filter(|_| !twice.is_empty()) {
        Some(old) => faults.beside(|before| lists(root, old, &At::ROOT, before)),
        None => Vec::new(),
    };
    if before.is_empty() {
        faults.extend(twice);
    }
    reported(faults, budget)
}

/// Returns the faults, with one more if the work was not completed.
fn reported(faults: FaultList, budget: &mut Budget) -> Vec<FieldError> {
    let (mut faults, left) = faults.into_parts();
    budget.keywords = left;
    if left == 0 {
        faults.push(nowhere(TOO_MUCH_WORK.to_owned()));
    }
    faults
}

/// The faults of a member of an object. Paths in their texts are relative to the member, but their fields are absolute.
fn part_faults(name: &str, node: &Node, object: &Value, old: Option<&Value>, faults: &mut FaultList) {
    let Some(value) = object.get(name) else { return };
    let old = old.and_then(|old| old.get(name));
    let mut of_part = faults.beside(|faults| self::value(node, value, old, &At::ROOT, faults));
    for fault in &mut of_part {
        match &*fault.field {
            NOWHERE | "" => name.clone_into(&mut fault.field),
            _ => fault.field.insert_str(0, &format!("{name}.")),
        }
    }
    faults.extend(of_part);
}

/// The faults of a value and all values below it.
fn value(node: &Node, value: &Value, old: Option<&Value>, at: &At<'_>, faults: &mut FaultList) {
    if at.depth > MAX_DEPTH || faults.is_full() {
        return;
    }
    faults.spend(LOOK);
    let before = faults.len();
    // As upstream, validation continues after a wrong type.
    of_its_type(node, value, at, faults);
    if !value.is_null() {
        combined(node, value, old, at, faults);
    }
    match value {
        Value::Number(_) => numbers::check(node, value, at, faults),
        Value::String(text) => self::text(node, text, at, faults),
        Value::Array(items) => list(node, items, old, at, faults),
        Value::Null | Value::Bool(_) | Value::Object(_) => {}
    }
    allowed(node, value, at, faults);
    if let Value::Object(map) = value {
        object(node, map, old, at, faults);
    }
    if let Some(old) = old.filter(|_| faults.len() > before) {
        faults.spend(about_bytes(value) as u64);
        if is_unchanged(node, old, value) {
            faults.truncate(before);
        }
    }
}

/// A value of another type than its schema states.
struct Mismatch {
    wanted: &'static str,
    found: &'static str,
}

/// Compares a value with the type of the schema. If the schema states no type, its format implies one for all values
/// except null, strings and lists.
fn typed(node: &Node, value: &Value) -> Result<(), Mismatch> {
    let (kinds, stated): (&[Kind], &str) = match &node.of {
        _ if node.int_or_string => (&[Kind::Integer, Kind::String], "integer,string"),
        None => (&[], ""),
        Some(kind) => (std::slice::from_ref(kind), kind.name()),
    };
    // The type of the value, its name in messages, and its implied format.
    let (kind, found, format) = match value {
        Value::Null if node.nullable || stated.is_empty() => return Ok(()),
        Value::Null => return Err(Mismatch { wanted: stated, found: "null" }),
        Value::Bool(_) => (Kind::Boolean, "boolean", ""),
        Value::String(_) => (Kind::String, "string", ""),
        Value::Array(_) => (Kind::Array, "array", ""),
        Value::Object(_) => (Kind::Object, "object", ""),
        Value::Number(number) if number.as_i64().is_some() => (Kind::Integer, "integer", "int64"),
        Value::Number(_) => (Kind::Number, "number", "float64"),
    };
    let is_number = match kind {
        Kind::Integer => kinds.contains(&Kind::Number),
        Kind::Number => kinds.contains(&Kind::Integer) && numbers::is_whole(value),
        _ => false,
    };
    if kinds.contains(&kind) || is_number {
        return Ok(());
    }
    match &node.format {
        Some(stated) if !matches!(kind, Kind::String | Kind::Array) => {
            Err(Mismatch { wanted: stated.name(), found: format })
        }
        _ if stated.is_empty() => Ok(()),
        _ => Err(Mismatch { wanted: stated, found }),
    }
}

/// Reports a value of another type.
fn of_its_type(node: &Node, value: &Value, at: &At<'_>, faults: &mut FaultList) {
    if let Err(Mismatch { wanted, found }) = typed(node, value) {
        let detail = format!("{at} in body must be of type {wanted}: {}", go_format::quote(found));
        faults.push(FieldError::type_invalid(at.to_string(), found, detail));
    }
}

fn text(node: &Node, text: &str, at: &At<'_>, faults: &mut FaultList) {
    if let Err(fault) = length_and_pattern(node, text, at, faults) {
        faults.push(fault);
    }
    if let Some(format) = &node.format {
        faults.spend(READ * text.len() as u64);
        if !formats::fits(format, text) {
            let detail = format!("{at} in body must be of type {}: {}", format.name(), go_format::quote(text));
            faults.push(FieldError::type_invalid(at.to_string(), text, detail));
        }
    }
}

/// Returns the first fault of a text's length or pattern.
fn length_and_pattern(node: &Node, text: &str, at: &At<'_>, faults: &mut FaultList) -> Result<(), FieldError> {
    let fault = |what: String| Err(FieldError::invalid(at.to_string(), text, what));
    if node.texts.max_length.is_some() || node.texts.min_length.is_some() {
        let length = text.chars().count();
        if let Some(most) = node.texts.max_length.filter(|most| length > *most) {
            return Err(FieldError::too_long(at.to_string(), most));
        }
        if let Some(least) = node.texts.min_length.filter(|least| length < *least) {
            return fault(format!("{at} in body should be at least {least} chars long"));
        }
    }
    if let Some(pattern) = &node.texts.pattern
        && let Err(complaint) = matches(pattern, text, faults)
    {
        return fault(format!("{at} in body should match '{}{complaint}'", pattern.text()));
    }
    Ok(())
}

/// Succeeds if the text matches. Fails with an empty text if it does not, or with the error of an invalid pattern.
fn matches(pattern: &Pattern, text: &str, faults: &mut FaultList) -> Result<(), String> {
    faults.spend(pattern.states().saturating_mul(text.len() as u64 + 1));
    if faults.is_exhausted() {
        return Ok(());
    }
    let (compiled, is_new) = pattern.compiled().map_err(|why| format!(", but pattern is invalid: {why}"))?;
    if is_new {
        faults.spend(COMPILE + COMPILE_STATE * compiled.states);
    }
    if compiled.regex.is_match(text) { Ok(()) } else { Err(String::new()) }
}

fn list(node: &Node, items: &[Value], old: Option<&Value>, at: &At<'_>, faults: &mut FaultList) {
    let lists = &node.lists;
    if let Some(of_items) = &lists.items {
        let partners = partners(&lists.identity, old);
        for (index, item) in items.iter().enumerate() {
            let old = match &lists.identity {
                Identity::Keys(keys) => partners.get(&SameKeys { keys, item }).copied(),
                Identity::None | Identity::Value => None,
            };
            value(of_items, item, old, &at.then(PathSegment::Index(index)), faults);
        }
    }
    if let Some(least) = lists.min_items.filter(|least| items.len() < *least) {
        let detail = format!("{at} in body should have at least {least} items");
        faults.push(FieldError::invalid(at.to_string(), items.len(), detail));
    }
    if let Some(most) = lists.max_items.filter(|most| items.len() > *most) {
        faults.push(FieldError::too_many(at.to_string(), items.len(), most));
    }
    let mut seen = HashSet::new();
    if lists.unique && !items.iter().all(|item| seen.insert(CelEqual(item))) {
        let detail = format!("{at} in body shouldn't contain duplicates");
        faults.push(FieldError::invalid(at.to_string(), sorted(Value::Array(items.to_vec())), detail));
    }
}

/// The old items of a list of type map, by their keys. Of items with equal keys the first counts.
fn partners<'o>(identity: &'o Identity, old: Option<&'o Value>) -> HashMap<SameKeys<'o>, &'o Value> {
    let (Identity::Keys(keys), Some(Value::Array(items))) = (identity, old) else { return HashMap::new() };
    let mut partners = HashMap::with_capacity(items.len());
    for item in items.iter().filter(|item| item.is_object()) {
        partners.entry(SameKeys { keys, item }).or_insert(item);
    }
    partners
}

fn object(node: &Node, map: &Map, old: Option<&Value>, at: &At<'_>, faults: &mut FaultList) {
    let objects = &node.objects;
    if let Some(least) = objects.min_properties.filter(|least| map.len() < *least) {
        let detail = format!("{at} in body should have at least {least} properties");
        faults.push(FieldError::invalid(at.to_string(), map.len(), detail));
    }
    if let Some(most) = objects.max_properties.filter(|most| map.len() > *most) {
        faults.push(FieldError::too_many(at.to_string(), map.len(), most));
    }
    let is_closed = matches!(objects.others, UndeclaredFields::Forbidden);
    if !objects.properties.is_empty() || !matches!(objects.others, UndeclaredFields::Free) {
        faults.spend(LOOK_INSIDE * map.len() as u64);
        let members = by_name(map);
        let undeclared = members.iter().filter(|(name, _)| node.property(name).is_none());
        for (name, member) in undeclared.filter(|_| !matches!(objects.others, UndeclaredFields::Free)) {
            if is_closed && !faults.is_full() {
                let detail = format!("{} in body is a forbidden property", at.field(name));
                faults.push(FieldError::invalid(at.to_string(), *name, detail));
            } else if let Some(below) = node.other() {
                let old = old.and_then(|old| old.get(name));
                value(below, member, old, &at.then(PathSegment::Field(name)), faults);
            }
        }
        for (name, member) in members {
            if let Some(below) = node.property(name) {
                let old = old.and_then(|old| old.get(name)).filter(|_| !(at.depth == 0 && is_type_field(name)));
                value(below, member, old, &at.then(PathSegment::Field(name)), faults);
            }
        }
    }
    faults.spend(LOOK_AT_STATED * objects.required.len() as u64);
    for name in &objects.required {
        if !map.contains_key(name) && !faults.is_full() {
            faults.push(FieldError::required(at.field(name), ""));
        }
    }
}

/// Returns true for the fields that name an object's type. Old objects are converted to the type of the new one, so
/// these fields never differ.
pub(super) fn is_type_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind")
}

/// The members of an object, sorted by name.
fn by_name(map: &Map) -> Vec<(&str, &Value)> {
    let mut members: Vec<(&str, &Value)> = map.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    members
}

fn allowed(node: &Node, value: &Value, at: &At<'_>, faults: &mut FaultList) {
    if node.allowed.is_empty() {
        return;
    }
    let stated = node.allowed.stated();
    faults.spend(about_bytes(value) as u64);
    if node.allowed.has(value) || faults.is_full() {
        return;
    }
    faults.spend(LOOK_INSIDE * stated.len() as u64);
    let shown: Vec<String> = stated
        .iter()
        .map(|allowed| allowed.as_str().map_or_else(|| go_format::json(&sorted(allowed.clone())), str::to_owned))
        .collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    faults.push(FieldError::not_supported(at.to_string(), sorted(value.clone()), &shown));
}

/// Validates by `allOf`, `anyOf`, `oneOf` and `not`.
fn combined(node: &Node, value: &Value, old: Option<&Value>, at: &At<'_>, faults: &mut FaultList) {
    let faults_of =
        |node: &Node, faults: &mut FaultList| faults.beside(|faults| self::value(node, value, old, at, faults));
    let combined = &*node.combined;
    if !combined.any_of.is_empty() {
        // A value of another type is not validated further, unless it may be unchanged, which is no fault.
        faults.spend(LOOK_AT_STATED * combined.any_of.len() as u64);
        let may_fit = |node: &Node| old.is_some() || typed(node, value).is_ok();
        if !combined.any_of.iter().any(|node| may_fit(node) && faults_of(node, faults).is_empty()) {
            faults.push(nowhere(format!("\"{at}\" must validate at least one schema (anyOf)")));
            if let Some(first) = combined.any_of.first() {
                self::value(first, value, old, at, faults);
            }
        }
    }
    if !combined.one_of.is_empty() {
        let fitting = combined.one_of.iter().filter(|node| faults_of(node, faults).is_empty()).count();
        if fitting != 1 {
            let how = if fitting == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {fitting} valid alternatives")
            };
            faults.push(nowhere(format!("\"{at}\" must validate one and only one schema (oneOf). {how}")));
            if let Some(first) = combined.one_of.first().filter(|_| fitting == 0) {
                self::value(first, value, old, at, faults);
            }
        }
    }
    if !combined.all_of.is_empty() {
        let mut fitting = 0;
        for node in &combined.all_of {
            let found = faults_of(node, faults);
            fitting += usize::from(found.is_empty());
            faults.extend(found);
        }
        if fitting < combined.all_of.len() {
            let none = if fitting == 0 { ". None validated" } else { "" };
            faults.push(nowhere(format!("\"{at}\" must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &combined.not
        && faults_of(not, faults).is_empty()
    {
        faults.push(nowhere(format!("\"{at}\" must not validate the schema (not)")));
    }
}

/// Reports duplicates in lists of type set and map, at any depth.
fn lists(node: &Node, value: &Value, at: &At<'_>, faults: &mut FaultList) {
    if !node.tells_apart || at.depth > MAX_DEPTH || faults.is_full() {
        return;
    }
    match value {
        Value::Array(items) => {
            duplicates(&node.lists.identity, items, at, faults);
            if let Some(of_items) = &node.lists.items {
                for (index, item) in items.iter().enumerate() {
                    lists(of_items, item, &at.then(PathSegment::Index(index)), faults);
                }
            }
        }
        Value::Object(map) => {
            for (name, member) in by_name(map) {
                let (below, step) = match node.property(name) {
                    Some(property) => (Some(property), PathSegment::Field(name)),
                    None => (node.other(), PathSegment::Key(name)),
                };
                if let Some(below) = below {
                    lists(below, member, &at.then(step), faults);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reports each repeated value once, where it occurs for the second time.
fn duplicates(identity: &Identity, items: &[Value], at: &At<'_>, faults: &mut FaultList) {
    match identity {
        Identity::None => {}
        Identity::Value => {
            let mut seen = HashMap::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                if faults.is_full() {
                    return;
                }
                if is_second(&mut seen, CelEqual(item)) {
                    let place = at.then(PathSegment::Index(index)).to_string();
                    faults.push(FieldError::duplicate(place, sorted(item.clone())));
                }
            }
        }
        Identity::Keys(keys) => {
            let mut seen = HashMap::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                if faults.is_full() {
                    return;
                }
                let place = || at.then(PathSegment::Index(index)).to_string();
                let Value::Object(map) = item else {
                    let detail = "must be an object for an array of list-type map";
                    faults.push(FieldError::invalid(place(), sorted(item.clone()), detail));
                    continue;
                };
                if is_second(&mut seen, SameKeys { keys, item }) {
                    let found = keys.iter().filter_map(|key| Some((key.as_str(), map.get(key)?.clone())));
                    faults.push(FieldError::duplicate(place(), sorted(Value::Object(found.collect::<Map>()))));
                }
            }
        }
    }
}

/// The value with sorted keys, as faults print it.
fn sorted(mut value: Value) -> Value {
    value.sort_all_keys();
    value
}

/// Returns true if this is the second occurrence of a value.
fn is_second<K: Hash + Eq>(seen: &mut HashMap<K, usize>, what: K) -> bool {
    let times = seen.entry(what).or_default();
    *times += 1;
    *times == 2
}
