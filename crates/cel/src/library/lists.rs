//! Functions of lists and sets.
//!
//! Sets are lists. A function that finds equal elements uses hashes, so none compares all pairs.

use super::{no_overload_of, strings};
use crate::values::{Elements, EvalError, List, Outcome, Value, compare, equals};
use std::cmp::Ordering;

/// The maximum length of `lists.range`.
const MAX_RANGE: i64 = 10_000_000;
/// The maximum depth of `flatten`.
const MAX_FLATTEN: i64 = 250;

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "min" => |args| extreme(args, "min", Ordering::is_lt),
        "max" => |args| extreme(args, "max", Ordering::is_gt),
        "indexOf" => index_of,
        "lastIndexOf" => last_index_of,
        "slice" => slice,
        "flatten" => flatten,
        "sort" => |args| match args {
            [Value::List(list)] => sorted(list, list),
            _ => Err(no_overload_of("sort", args)),
        },
        "@sortByAssociatedKeys" => |args| match args {
            [Value::List(list), Value::List(keys)] => sorted(list, keys),
            _ => Err(no_overload_of("@sortByAssociatedKeys", args)),
        },
        "lists.range" => |args| match args {
            [Value::Int(count)] if *count <= MAX_RANGE => Ok(Value::list((0..*count).map(Value::Int).collect())),
            [Value::Int(_)] => Err(EvalError::TooCostly),
            _ => Err(no_overload_of("lists.range", args)),
        },
        "reverse" => |args| match args {
            [Value::List(list)] => {
                let mut elements: Vec<Value<'_>> = list.iter().collect();
                elements.reverse();
                Ok(Value::list(elements))
            }
            _ => Err(no_overload_of("reverse", args)),
        },
        "distinct" => distinct,
        "sets.contains" => |args| sets(args, "sets.contains", contains_all),
        "sets.equivalent" => |args| sets(args, "sets.equivalent", |a, b| contains_all(a, b) && contains_all(b, a)),
        "sets.intersects" => |args| sets(args, "sets.intersects", contains_any),
        _ => return None,
    })
}

fn order(left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, EvalError> {
    match compare(left, right) {
        // As upstream, NaN counts as equal to every number.
        Some(order) => Ok(order.unwrap_or(Ordering::Equal)),
        None => Err(EvalError::no_overload()),
    }
}

fn is_sorted<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(no_overload_of("isSorted", args)) };
    let mut before: Option<Value<'a>> = None;
    for element in list.iter() {
        if let Some(before) = &before
            && order(before, &element)?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
        before = Some(element);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(no_overload_of("sum", args)) };
    let mut total: Option<Value<'a>> = None;
    for element in list.iter() {
        let next = match (total.take(), element) {
            (None, element) => element,
            (Some(Value::Int(a)), Value::Int(b)) => {
                Value::Int(a.checked_add(b).ok_or_else(|| EvalError::new("integer overflow"))?)
            }
            (Some(Value::Duration(a)), Value::Duration(b)) => {
                Value::Duration(a.checked_add(b).ok_or_else(|| EvalError::new("integer overflow"))?)
            }
            (Some(Value::Uint(a)), Value::Uint(b)) => {
                Value::Uint(a.checked_add(b).ok_or_else(|| EvalError::new("unsigned integer overflow"))?)
            }
            (Some(Value::Double(a)), Value::Double(b)) => Value::Double(a + b),
            _ => return Err(EvalError::no_overload()),
        };
        total = Some(next);
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

fn extreme<'a>(args: &[Value<'a>], name: &str, replaces: fn(Ordering) -> bool) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(no_overload_of(name, args)) };
    let mut best: Option<Value<'a>> = None;
    for element in list.iter() {
        let is_better = match &best {
            Some(best) => replaces(order(&element, best)?),
            None => true,
        };
        if is_better {
            best = Some(element);
        }
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn index_of<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::String(text), Value::String(part)] => strings::index_of(text, part, 0).map(Value::Int),
        [Value::String(text), Value::String(part), Value::Int(from)] => {
            strings::index_of(text, part, *from).map(Value::Int)
        }
        [Value::List(list), value] => Ok(place(list.iter().position(|element| equals(&element, value)))),
        _ => Err(no_overload_of("indexOf", args)),
    }
}

fn last_index_of<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::String(text), Value::String(part)] => strings::last_index_of(text, part, None).map(Value::Int),
        [Value::String(text), Value::String(part), Value::Int(from)] => {
            strings::last_index_of(text, part, Some(*from)).map(Value::Int)
        }
        [Value::List(list), value] => {
            let last = (0..list.len()).rev().find(|at| list.get(*at).is_some_and(|element| equals(&element, value)));
            Ok(place(last))
        }
        _ => Err(no_overload_of("lastIndexOf", args)),
    }
}

fn place<'a>(at: Option<usize>) -> Value<'a> {
    Value::Int(at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
}

fn slice<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(no_overload_of("slice", args));
    };
    let fault = |why: String| Err(EvalError::new(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return fault("negative indexes not supported".to_owned());
    };
    if from > to {
        return fault("start index must be less than or equal to end index".to_owned());
    }
    if to > list.len() {
        return fault(format!("list is length {}", list.len()));
    }
    Ok(match list {
        List::Tree(elements, decl) => Value::List(List::Tree(&elements[from..to], *decl)),
        List::Made(elements) | List::Joined(elements, _) => Value::list(elements[from..to].to_vec()),
    })
}

fn flatten<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(no_overload_of("flatten", args)),
    };
    if depth < 0 {
        return Err(EvalError::new("level must be non-negative"));
    }
    let mut out = Vec::new();
    flatten_into(list, depth.min(MAX_FLATTEN), &mut out);
    Ok(Value::list(out))
}

fn flatten_into<'a>(list: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) {
    for element in list.iter() {
        match element {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, out),
            element => out.push(element),
        }
    }
}

fn sorted<'a>(list: &List<'a>, keys: &List<'a>) -> Outcome<'a> {
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.iter().zip(list.iter()).collect();
    if let Some((first, _)) = pairs.first() {
        if compare(first, first).is_none() {
            return Err(EvalError::new("list elements must be comparable"));
        }
        let kind = first.type_name();
        if pairs.iter().any(|(key, _)| key.type_name() != kind) {
            return Err(EvalError::new("list elements must have the same type"));
        }
    }
    pairs.sort_by(|(a, _), (b, _)| compare(a, b).flatten().unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, element)| element).collect()))
}

fn distinct<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(no_overload_of("distinct", args)) };
    let mut out = Elements::default();
    for element in list.iter() {
        if !out.contains(&element) {
            out.push(element);
        }
    }
    Ok(Value::list(out.into_values()))
}

fn contains_all(list: &List<'_>, part: &List<'_>) -> bool {
    let elements: Elements<'_> = list.iter().collect();
    part.iter().all(|element| elements.contains(&element))
}

fn contains_any(list: &List<'_>, others: &List<'_>) -> bool {
    let elements: Elements<'_> = list.iter().collect();
    others.iter().any(|element| elements.contains(&element))
}

fn sets<'a>(args: &[Value<'a>], name: &str, holds: fn(&List<'_>, &List<'_>) -> bool) -> Outcome<'a> {
    match args {
        [Value::List(a), Value::List(b)] => Ok(Value::Bool(holds(a, b))),
        _ => Err(no_overload_of(name, args)),
    }
}
