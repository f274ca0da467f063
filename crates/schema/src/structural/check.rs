//! Judges an object by the rules of its schema, in the words of the reference server.
//!
//! First what each value has to keep, then the objects that are embedded, then what has to be told apart in lists: the order of the
//! reference. Fields are gone through by name. What is the same as before is excused where it stands in the same place. Items are found
//! by their hash, so that the work grows with the length of a list and not with its square; what a schema can make of it is counted.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use keelson_cel::library::regex::Pattern;
use keelson_meta::field_error::FieldError;
use keelson_meta::go_format;
use keelson_meta::json::{self, Map, Value, about_bytes};

use super::at::{At, NOWHERE, PathSegment, nowhere};
use super::found::{Budget, Found};
use super::rules::{Bound, Identity, Kind, Node, Others};
use super::same::{Alike, SameKeys, is_unchanged};
use super::{MAX_DEPTH, embedded, formats};

/// How much work it is to look at a value, at a member or an item, at a name or a value that is stated, and at a character.
const LOOK: u64 = 100;
const LOOK_INSIDE: u64 = 50;
const LOOK_AT_STATED: u64 = 20;
const READ: u64 = 10;
/// How much work it is to compile a pattern, and a state of it.
const COMPILE: u64 = 30_000;
const COMPILE_STATE: u64 = 500;

/// What is said of an object for which its schema asks for too much.
const TOO_MUCH_WORK: &str = "it would take too long to compare the object with all that its schema asks for";

/// What is wrong with a value, but for the objects in it and what is there twice.
pub(super) fn value_faults(root: &Node, object: &Value, old: Option<&Value>, budget: &mut Budget) -> Vec<FieldError> {
    let mut faults = Found::new(budget.keywords);
    value(root, object, old, &At::ROOT, &mut faults);
    told(faults, budget)
}

/// What is wrong with an object, which was `old` before: of values, only with those in a part of it where one is named.
pub(super) fn faults(
    root: &Node,
    object: &Value,
    old: Option<&Value>,
    part: Option<&str>,
    budget: &mut Budget,
) -> Vec<FieldError> {
    let mut faults = Found::new(budget.keywords);
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
    told(faults, budget)
}

/// The faults that were found, and that there may be more where it was too much work to look for them.
fn told(faults: Found, budget: &mut Budget) -> Vec<FieldError> {
    let (mut faults, left) = faults.into_parts();
    budget.keywords = left;
    if left == 0 {
        faults.push(nowhere(TOO_MUCH_WORK.to_owned()));
    }
    faults
}

/// What is wrong with a member of an object. The texts name places in it, and the fields tell where it stands.
fn part_faults(name: &str, node: &Node, object: &Value, old: Option<&Value>, faults: &mut Found) {
    let Some(value) = object.get(name) else { return };
    let old = old.and_then(|old| old.get(name));
    let mut of_part = faults.beside(|faults| self::value(node, value, old, &At::ROOT, faults));
    for fault in &mut of_part {
        match &*fault.field {
            NOWHERE => {}
            "" => name.clone_into(&mut fault.field),
            _ => fault.field.insert_str(0, &format!("{name}.")),
        }
    }
    faults.extend(of_part);
}

/// What is wrong with a value and all below it.
fn value(node: &Node, value: &Value, old: Option<&Value>, at: &At<'_>, faults: &mut Found) {
    if at.depth > MAX_DEPTH || faults.is_full() {
        return;
    }
    faults.spend(LOOK);
    let before = faults.len();
    if value.is_null() && node.nullable {
        allowed(node, value, at, faults);
    } else if of_its_type(node, value, at, faults) {
        combined(node, value, old, at, faults);
        match value {
            Value::Number(_) => number(node, value, at, faults),
            Value::String(text) => self::text(node, text, at, faults),
            Value::Array(items) => list(node, items, old, at, faults),
            Value::Object(map) => object(node, map, old, at, faults),
            Value::Null | Value::Bool(_) => {}
        }
        allowed(node, value, at, faults);
    } else {
        combined(node, value, old, at, faults);
    }
    if let Some(old) = old.filter(|_| faults.len() > before) {
        faults.spend(about_bytes(value) as u64);
        if is_unchanged(node, old, value) {
            faults.truncate(before);
        }
    }
}

/// Whether a value is of the type that the schema states, if it states one; else what it has to be.
fn typed(node: &Node, value: &Value) -> Result<(), &'static str> {
    let (fits, wanted) = match node.of {
        _ if node.int_or_string => (value.is_string() || is_whole(value), "integer,string"),
        None => return Ok(()),
        Some(Kind::Object) => (value.is_object(), "object"),
        Some(Kind::Array) => (value.is_array(), "array"),
        Some(Kind::String) => (value.is_string(), "string"),
        Some(Kind::Integer) => (is_whole(value), "integer"),
        Some(Kind::Number) => (value.is_number(), "number"),
        Some(Kind::Boolean) => (value.is_boolean(), "boolean"),
    };
    if fits { Ok(()) } else { Err(wanted) }
}

/// Whether a value is of its type; tells of it when it is not.
fn of_its_type(node: &Node, value: &Value, at: &At<'_>, faults: &mut Found) -> bool {
    let Err(wanted) = typed(node, value) else { return true };
    let found = json::ValueKind::of(value);
    let (wanted, name) = match &node.format {
        // Of a number that is no whole one, upstream looks at formats.
        Some(format) if node.of == Some(Kind::Integer) && value.is_number() => (format.name(), "float64"),
        // What is too large for a whole number is a float there.
        _ if node.of == Some(Kind::Integer) && value.is_number() => (wanted, "number"),
        _ => (wanted, found.name()),
    };
    let detail = format!("{at} in body must be of type {wanted}: {}", go_format::quote(name));
    faults.push(FieldError::type_invalid(at.to_string(), name, detail));
    if node.of == Some(Kind::Integer) && value.is_number() {
        let format = node
            .format
            .as_ref()
            .map_or("(default format)".to_owned(), |format| format!("with format {}", format.name()));
        faults.push(nowhere(format!("Checked value must be of type integer {format} in {at}")));
    }
    false
}

/// Whether a value is a whole number: one that fits, or a float that tells it exactly.
fn is_whole(value: &Value) -> bool {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    let Value::Number(number) = value else { return false };
    number.as_i64().is_some() || number.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() <= EXACT)
}

fn number(node: &Node, value: &Value, at: &At<'_>, faults: &mut Found) {
    let Some(number) = value.as_f64() else { return };
    if let Some(format) = &node.format
        && let Some(kind) = format.out_of_range(number)
    {
        faults.push(nowhere(format!("Checked value must be of type {kind} with format {} in {at}", format.name())));
        return;
    }
    let mut fault = |what: String| faults.push(FieldError::invalid(at.to_string(), value.clone(), what));
    if let Some(factor) = node.numbers.multiple_of {
        if factor <= 0.0 {
            let detail = format!("factor MultipleOf declared for {at} must be positive: {}", go_format::float(factor));
            faults.push(FieldError::invalid(at.to_string(), go_number(factor), detail));
            return;
        }
        if !is_multiple(number, factor) {
            fault(format!("{at} in body should be a multiple of {}", go_format::float(factor)));
        }
    }
    if let Some(Bound { value: most, exclusive }) = node.numbers.maximum
        && (number > most || exclusive && number >= most)
    {
        let than = if exclusive { "less than" } else { "less than or equal to" };
        fault(format!("{at} in body should be {than} {}", go_format::float(most)));
    }
    if let Some(Bound { value: least, exclusive }) = node.numbers.minimum
        && (number < least || exclusive && number <= least)
    {
        let than = if exclusive { "greater than" } else { "greater than or equal to" };
        fault(format!("{at} in body should be {than} {}", go_format::float(least)));
    }
}

fn go_number(number: f64) -> Value {
    keelson_meta::json::Number::from_f64(number).map_or(Value::Null, |found| {
        match go_format::float(number).parse::<i64>() {
            Ok(whole) => Value::from(whole),
            Err(_) => Value::Number(found),
        }
    })
}

/// Whether a number is a multiple of a factor, as far as their digits tell: 0.3 is one of 0.1.
fn is_multiple(number: f64, factor: f64) -> bool {
    let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
    quotient.fract() == 0.0 || (quotient - quotient.round()).abs() < f64::EPSILON * quotient.abs()
}

fn text(node: &Node, text: &str, at: &At<'_>, faults: &mut Found) {
    let fault = |what: String| FieldError::invalid(at.to_string(), text, what);
    if node.texts.max_length.is_some() || node.texts.min_length.is_some() {
        let length = text.chars().count();
        if let Some(most) = node.texts.max_length.filter(|most| length > *most) {
            faults.push(FieldError::too_long(at.to_string(), most));
            return;
        }
        if let Some(least) = node.texts.min_length.filter(|least| length < *least) {
            return faults.push(fault(format!("{at} in body should be at least {least} chars long")));
        }
    }
    if node.format.is_some() {
        faults.spend(READ * text.len() as u64);
    }
    if let Some(pattern) = &node.texts.pattern
        && let Err(complaint) = matches(pattern, text, faults)
    {
        faults.push(fault(format!("{at} in body should match '{}{complaint}'", pattern.text())));
    }
    if let Some(format) = &node.format
        && matches!(node.of, None | Some(Kind::String))
        && !formats::fits(format, text)
    {
        let detail = format!("{at} in body must be of type {}: {}", format.name(), go_format::quote(text));
        faults.push(FieldError::type_invalid(at.to_string(), text, detail));
    }
}

/// Whether a text matches; else what is said of the pattern, if it is that which is wrong.
fn matches(pattern: &Pattern, text: &str, faults: &mut Found) -> Result<(), String> {
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

fn list(node: &Node, items: &[Value], old: Option<&Value>, at: &At<'_>, faults: &mut Found) {
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
    if lists.unique && !items.iter().all(|item| seen.insert(Alike(item))) {
        let detail = format!("{at} in body shouldn't contain duplicates");
        faults.push(FieldError::invalid(at.to_string(), Value::Array(items.to_vec()), detail));
    }
}

/// The items that stood in a list before, by what they are told apart by: only those of a list of type map are. Of items that are
/// not told apart the first one counts.
fn partners<'o>(identity: &'o Identity, old: Option<&'o Value>) -> HashMap<SameKeys<'o>, &'o Value> {
    let (Identity::Keys(keys), Some(Value::Array(items))) = (identity, old) else { return HashMap::new() };
    let mut partners = HashMap::with_capacity(items.len());
    for item in items.iter().filter(|item| item.is_object()) {
        partners.entry(SameKeys { keys, item }).or_insert(item);
    }
    partners
}

fn object(node: &Node, map: &Map, old: Option<&Value>, at: &At<'_>, faults: &mut Found) {
    let objects = &node.objects;
    if let Some(least) = objects.min_properties.filter(|least| map.len() < *least) {
        let unit = if least == 1 { "property" } else { "properties" };
        let detail = format!("{at} in body should have at least {least} {unit}");
        faults.push(FieldError::invalid(at.to_string(), map.len(), detail));
    }
    if let Some(most) = objects.max_properties.filter(|most| map.len() > *most) {
        faults.push(FieldError::too_many(at.to_string(), map.len(), most));
    }
    faults.spend(LOOK_AT_STATED * objects.required.len() as u64);
    for name in &objects.required {
        if !map.contains_key(name) && !faults.is_full() {
            faults.push(FieldError::required(at.field(name), ""));
        }
    }
    if objects.properties.is_empty() && matches!(objects.others, Others::Free) {
        return;
    }
    faults.spend(LOOK_INSIDE * map.len() as u64);
    for (name, member) in by_name(map) {
        match node.member(name) {
            Some(below) => {
                let old = old.and_then(|old| old.get(name)).filter(|_| !(at.depth == 0 && is_type_field(name)));
                value(below, member, old, &at.then(PathSegment::Field(name)), faults);
            }
            None if matches!(objects.others, Others::Forbidden) && !faults.is_full() => {
                let detail = format!("{} in body is a forbidden property", at.field(name));
                faults.push(FieldError::invalid(at.to_string(), name, detail));
            }
            None => {}
        }
    }
}

/// Returns true for the fields by which an object names its type. Old objects are converted to the type of the new one, so that a
/// change of these fields can't be seen.
pub(super) fn is_type_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind")
}

/// The members of an object, by name.
fn by_name(map: &Map) -> Vec<(&str, &Value)> {
    let mut members: Vec<(&str, &Value)> = map.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    members
}

fn allowed(node: &Node, value: &Value, at: &At<'_>, faults: &mut Found) {
    if node.allowed.is_empty() {
        return;
    }
    let stated = node.allowed.stated();
    faults.spend(about_bytes(value) as u64);
    if node.allowed.has(value) || faults.is_full() {
        return;
    }
    faults.spend(LOOK_INSIDE * stated.len() as u64);
    let shown: Vec<String> =
        stated.iter().map(|allowed| allowed.as_str().map_or_else(|| go_format::json(allowed), str::to_owned)).collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    faults.push(FieldError::not_supported(at.to_string(), value.clone(), &shown));
}

/// What the schemas say that are combined here.
fn combined(node: &Node, value: &Value, old: Option<&Value>, at: &At<'_>, faults: &mut Found) {
    let judged = |node: &Node, faults: &mut Found| faults.beside(|faults| self::value(node, value, old, at, faults));
    let combined = &*node.combined;
    if !combined.any_of.is_empty() {
        // What is of another type is not judged further, unless it is excused by being null or as it was.
        faults.spend(LOOK_AT_STATED * combined.any_of.len() as u64);
        let may_fit = |node: &Node| value.is_null() || old.is_some() || typed(node, value).is_ok();
        if !combined.any_of.iter().any(|node| may_fit(node) && judged(node, faults).is_empty()) {
            faults.push(nowhere(format!("\"{at}\" must validate at least one schema (anyOf)")));
            if let Some(first) = combined.any_of.first() {
                self::value(first, value, old, at, faults);
            }
        }
    }
    if !combined.one_of.is_empty() {
        let fitting = combined.one_of.iter().filter(|node| judged(node, faults).is_empty()).count();
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
            let found = judged(node, faults);
            fitting += usize::from(found.is_empty());
            faults.extend(found);
        }
        if fitting < combined.all_of.len() {
            let none = if fitting == 0 { ". None validated" } else { "" };
            faults.push(nowhere(format!("\"{at}\" must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &combined.not
        && judged(not, faults).is_empty()
    {
        faults.push(nowhere(format!("\"{at}\" must not validate the schema (not)")));
    }
}

/// What is there twice in lists whose items have to be told apart, and all below them.
fn lists(node: &Node, value: &Value, at: &At<'_>, faults: &mut Found) {
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

/// Tells of each value that is there more than once, where it is for the second time.
fn duplicates(identity: &Identity, items: &[Value], at: &At<'_>, faults: &mut Found) {
    match identity {
        Identity::None => {}
        Identity::Value => {
            let mut seen = HashMap::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                if faults.is_full() {
                    return;
                }
                if is_second(&mut seen, Alike(item)) {
                    faults.push(FieldError::duplicate(at.then(PathSegment::Index(index)).to_string(), item.clone()));
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
                    faults.push(FieldError::invalid(place(), item.clone(), detail));
                    continue;
                };
                if is_second(&mut seen, SameKeys { keys, item }) {
                    let found = keys.iter().filter_map(|key| Some((key.as_str(), map.get(key)?.clone())));
                    faults.push(FieldError::duplicate(place(), Value::Object(found.collect::<Map>())));
                }
            }
        }
    }
}

/// Whether this is what has been there once, and not more often.
fn is_second<K: Hash + Eq>(seen: &mut HashMap<K, usize>, what: K) -> bool {
    let times = seen.entry(what).or_default();
    *times += 1;
    *times == 2
}
