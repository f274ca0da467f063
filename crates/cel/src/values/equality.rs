//! Equality and order of values.
//!
//! Numbers are compared by value, even if their types differ. Other values of different types are unequal, which is not
//! an error. Lists of the object that are declared as sets or maps are equal in any order, and so are their
//! concatenations.

use super::{Elements, List, Map, Value};
use crate::decl::{Decl, DeclKind, ListKind};
use std::cmp::Ordering;
use std::rc::Rc;

/// Returns true for equal values.
pub fn equals(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Type(a), Value::Type(b)) => **a == **b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a.instant() == b.instant(),
        (Value::List(a), Value::List(b)) => same_lists(a, b),
        (Value::Map(a), Value::Map(b)) => same_maps(a, b),
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equals(a, b),
            (a, b) => a.is_none() && b.is_none(),
        },
        (Value::Url(a), Value::Url(b)) => a.text() == b.text(),
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a, x), Value::Cidr(b, y)) => a == b && x == y,
        (Value::Quantity(a), Value::Quantity(b)) => a == b,
        (Value::Semver(a), Value::Semver(b)) => a.cmp(b).is_eq(),
        (Value::Format(a), Value::Format(b)) => a == b,
        (Value::Authorization(a), Value::Authorization(b)) => std::rc::Rc::ptr_eq(a, b),
        (a, b) => numbers(a, b).is_some_and(|order| order == Some(Ordering::Equal)),
    }
}

/// The order of two values. `None` for types without an order, `Some(None)` if a number is NaN.
pub fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Option<Ordering>> {
    Some(Some(match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) | (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => (**a).cmp(&**b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.instant().cmp(&b.instant()),
        (a, b) => return numbers(a, b),
    }))
}

/// The order of two numbers, of which the types may differ. `None` for other values.
fn numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Option<Ordering>> {
    Some(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Int(b)) => double_and_whole(*a, i128::from(*b)),
        (Value::Double(a), Value::Uint(b)) => double_and_whole(*a, i128::from(*b)),
        (Value::Int(a), Value::Double(b)) => double_and_whole(*b, i128::from(*a)).map(Ordering::reverse),
        (Value::Uint(a), Value::Double(b)) => double_and_whole(*b, i128::from(*a)).map(Ordering::reverse),
        _ => return None,
    })
}

/// As upstream, the numbers are compared as doubles if the double is in the range of the other type.
fn double_and_whole(double: f64, whole: i128) -> Option<Ordering> {
    const BOUND: f64 = 1e30;
    if double.is_nan() {
        return None;
    }
    if double.abs() > BOUND {
        return Some(if double > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    double.partial_cmp(&(whole as f64))
}

fn list_kind<'a>(list: &List<'a>) -> Option<&'a ListKind> {
    match list {
        List::Tree(_, Some(Decl { kind: DeclKind::List(_, kind), .. })) => Some(kind),
        List::Joined(_, kind) => Some(kind),
        _ => None,
    }
}

fn same_lists(left: &List<'_>, right: &List<'_>) -> bool {
    if left.len() != right.len() {
        return false;
    }
    // As upstream, the declaration of the left list determines how the lists are compared.
    match list_kind(left) {
        Some(ListKind::Set | ListKind::Map(_)) => {
            // Most lists have the same order, so the equal start is skipped first.
            let same = left.iter().zip(right.iter()).take_while(|(a, b)| equals(a, b)).count();
            if same == left.len() {
                return true;
            }
            // An element may occur twice, so each list must contain the other one.
            let (own, others): (Elements<'_>, Elements<'_>) = (left.iter().collect(), right.iter().collect());
            left.iter().skip(same).all(|element| others.contains(&element))
                && right.iter().skip(same).all(|element| own.contains(&element))
        }
        _ => left.iter().zip(right.iter()).all(|(a, b)| equals(&a, &b)),
    }
}

fn same_maps(left: &Map<'_>, right: &Map<'_>) -> bool {
    if left.len() != right.len() {
        return false;
    }
    left.entries().iter().all(|(key, value)| {
        let other = match (key, right) {
            // Both names are those of the data.
            (Value::String(name), Map::Tree(tree)) if matches!(left, Map::Tree(_)) => tree.member(name),
            (Value::String(_), Map::Tree(_)) | (_, Map::Made(_)) => right.get(key),
            _ => None,
        };
        other.is_some_and(|other| equals(value, &other))
    })
}

/// Concatenates two lists. The result of a set or map list on the left is such a list too: new elements are appended,
/// and elements with equal keys are replaced.
pub fn joined<'a>(left: &List<'a>, right: &List<'a>) -> List<'a> {
    match list_kind(left) {
        Some(kind @ ListKind::Set) => {
            let mut out: Elements<'a> = left.iter().collect();
            for element in right.iter() {
                if !out.contains(&element) {
                    out.push(element);
                }
            }
            List::Joined(Rc::new(out.into_values()), kind)
        }
        Some(kind @ ListKind::Map(keys)) => List::Joined(Rc::new(merged(left, right, keys)), kind),
        _ => List::Made(Rc::new(left.iter().chain(right.iter()).collect())),
    }
}

/// The elements of the left list, replaced by those of the right list with the same keys, and then the other ones.
fn merged<'a>(left: &List<'a>, right: &List<'a>, keys: &[String]) -> Vec<Value<'a>> {
    let mut out: Vec<Value<'a>> = left.iter().collect();
    // An element that is not an object has no keys, so it equals no other.
    let mut known: Elements<'a> = out.iter().map(|element| keys_of(element, keys).unwrap_or(Value::Null)).collect();
    for element in right.iter() {
        let of = keys_of(&element, keys);
        match of.as_ref().and_then(|of| known.place_of(of)) {
            Some(place) => out[place] = element,
            None => {
                known.push(of.unwrap_or(Value::Null));
                out.push(element);
            }
        }
    }
    out
}

/// The values of the key fields of an item in a map list.
fn keys_of<'a>(element: &Value<'a>, keys: &[String]) -> Option<Value<'a>> {
    let Value::Map(fields) = element else { return None };
    Some(Value::list(keys.iter().map(|key| Value::Optional(fields.field(key).map(Rc::new))).collect()))
}
