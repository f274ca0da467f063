//! Declarations of functions: the types of their arguments and results, and the cost of a call.
//!
//! The declarations are lines of text in the notation of CEL's documentation, which are parsed once. A method's name
//! starts with a dot, and its target is the first argument. Capital letters are type parameters. `#` and the name of a
//! cost rule are at the end, unless a call costs one step.

mod text;

use crate::types::Type;
use std::collections::HashMap;

/// The functions of an environment.
#[derive(Debug, Default, Clone)]
pub struct Functions {
    by_name: HashMap<&'static str, Vec<Overload>>,
}

/// An overload of a function.
#[derive(Debug, Clone)]
pub struct Overload {
    /// True for a method.
    pub is_method: bool,
    /// The types of the arguments, the target first.
    pub args: Vec<Type>,
    /// The type of the result.
    pub result: Type,
    /// Its type parameters.
    pub params: Vec<char>,
    /// The rule of its cost.
    pub cost: CostRule,
}

/// The rules by which the cost of a call is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CostRule {
    /// One step.
    One,
    /// One step: `dyn` only hides the type.
    Dyn,
    /// `&&` and `||`.
    Logic,
    /// `?:`.
    Conditional,
    /// Access to an element of a list.
    IndexList,
    /// Access to a value of a map.
    IndexMap,
    /// Membership in a list.
    InList,
    /// Equality.
    Equal,
    /// Inequality.
    NotEqual,
    /// Comparison of the order of texts or bytes.
    Order,
    /// Concatenation of strings or bytes.
    AddText,
    /// Concatenation of lists.
    AddList,
    /// Comparison of the start or end of a text.
    Affix,
    /// Searching a text in a text.
    Contains,
    /// Matching a regular expression.
    Matches,
    /// Conversion of a string to bytes.
    ToBytes,
    /// Conversion of bytes to a string.
    ToText,
    /// Quoting of a string.
    Quote,
    /// A string into which values are inserted.
    Format,
    /// One pass over a list or string.
    Scan,
    /// Creates a string from a string.
    Text,
    /// Parses a string into a value without a size.
    Read,
    /// Parses a string in two passes.
    ReadTwice,
    /// Parses a string into a value with the size of the string.
    ReadSized,
    /// Replacing parts of a text.
    Replace,
    /// Splitting a text.
    Split,
    /// Joining the texts of a list.
    Join,
    /// Searches with a regular expression.
    Find,
    /// Membership of an address in a network.
    ContainsIp,
    /// Membership of an address in a network, given as a string.
    ContainsIpText,
    /// Membership of a network in a network.
    ContainsCidr,
    /// Membership of a network in a network, given as a string.
    ContainsCidrText,
    /// Validates a string against a format.
    Validate,
    /// An authorizer check.
    Authorize,
    /// Parses a selector.
    Selector,
    /// Comparison of each element of one list with each element of another.
    Sets,
    /// Comparison of two lists in both directions.
    SetsTwice,
    /// A part of a list.
    Slice,
    /// A list with nested lists expanded.
    Flatten,
    /// A list of numbers.
    Range,
    /// A reversed list.
    Reverse,
    /// A list without duplicates.
    Distinct,
    /// A sorted list.
    Sort,
    /// A list in the order of another one.
    SortBy,
}

impl Functions {
    /// The functions of the standard library, and those that Kubernetes adds everywhere.
    pub fn kubernetes() -> Self {
        let mut functions = Self::default();
        for library in text::KUBERNETES {
            functions.add(library);
        }
        functions
    }

    /// Adds the functions for patches.
    pub fn add_json_patch(&mut self) {
        self.add(text::JSON_PATCH);
    }

    fn add(&mut self, lines: &'static str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some((name, overloads)) = read(line) {
                self.by_name.entry(name).or_default().extend(overloads);
            } else {
                debug_assert!(false, "{line}");
            }
        }
    }

    /// The overloads of a function.
    pub fn get(&self, name: &str) -> Option<&[Overload]> {
        self.by_name.get(name).map(Vec::as_slice)
    }
}

/// The types whose values have an order.
const ORDERED: [Type; 8] =
    [Type::Int, Type::Uint, Type::Double, Type::Bool, Type::Duration, Type::Timestamp, Type::String, Type::Bytes];

/// Parses a line: a function's name and one overload. If the line contains `ORD`, it stands for one overload for each
/// type with an order.
fn read(line: &'static str) -> Option<(&'static str, Vec<Overload>)> {
    let (line, cost) =
        line.split_once('#').map_or(Some((line, CostRule::One)), |(line, rule)| Some((line, text::rule(rule)?)))?;
    let (name, rest) = line.split_once(" (")?;
    let (args, result) = rest.split_once(") -> ")?;
    let (name, is_method) = name.strip_prefix('.').map_or((name, false), |name| (name, true));
    let kinds: &[Type] = if args.contains("ORD") { &ORDERED } else { &[Type::Dyn] };
    let overloads = kinds.iter().map(|kind| {
        let mut params = Vec::new();
        let args = types(args, kind, &mut params)?;
        let result = types(result.trim(), kind, &mut params)?.pop()?;
        Some(Overload { is_method, args, result, params, cost })
    });
    Some((name, overloads.collect::<Option<_>>()?))
}

/// Comma-separated types.
fn types(text: &str, ordered: &Type, params: &mut Vec<char>) -> Option<Vec<Type>> {
    let mut out = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in text.char_indices().chain([(text.len(), ',')]) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                let part = text[start..at].trim();
                if !part.is_empty() {
                    out.push(one_type(part, ordered, params)?);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    Some(out)
}

fn one_type(text: &str, ordered: &Type, params: &mut Vec<char>) -> Option<Type> {
    if let Some((name, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let mut inner = types(inner, ordered, params)?.into_iter();
        let first = inner.next()?;
        return Some(match name {
            "list" => Type::list(first),
            "map" => Type::map(first, inner.next()?),
            "optional" => Type::optional(first),
            "type" => Type::Type(first.into()),
            _ => return None,
        });
    }
    Some(match text {
        "ORD" => ordered.clone(),
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        text if text.len() == 1 => {
            let name = text.chars().next()?;
            if !params.contains(&name) {
                params.push(name);
            }
            Type::Param(name)
        }
        name => Type::opaque(name),
    })
}

#[cfg(test)]
mod tests {
    use super::{Functions, read, text};

    #[test]
    fn every_line_of_the_declarations_is_read() {
        for line in text::KUBERNETES.iter().chain(&[text::JSON_PATCH]).flat_map(|library| library.lines()) {
            assert!(line.trim().is_empty() || read(line.trim()).is_some(), "{line}");
        }
    }

    #[test]
    fn sort_has_an_overload_for_each_ordered_type() {
        let functions = Functions::kubernetes();
        assert_eq!(functions.get("sort").map(<[_]>::len), Some(8));
        assert!(functions.get("math.greatest").is_none());
    }
}
