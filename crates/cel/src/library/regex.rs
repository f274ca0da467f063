//! Regular expressions with the syntax and semantics of Go's. Matching takes linear time.
//!
//! `parser` and `classes` parse them, with the tables in `unicode`. `compiled` compiles and caches them. The functions
//! of expressions are here. Tests compare the results with those of Go in `tests/go_regexp`.

mod classes;
mod code_points;
mod compiled;
mod counts;
mod parser;
mod syntax_error;
mod unicode;

use super::no_overload_of;
use crate::cost::actual::Meter;
use crate::values::{EvalError, Outcome, Text, Value};

pub use compiled::{Compiled, MAX_STATES, Pattern, check, compiled};

/// The functions that use regular expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegexCall {
    /// Returns true if the text matches.
    Matches,
    /// The first match.
    Find,
    /// All matches.
    FindAll,
}

impl RegexCall {
    /// The function of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "matches" => Self::Matches,
            "find" => Self::Find,
            "findAll" => Self::FindAll,
            _ => return None,
        })
    }

    /// The error of this function for an invalid regular expression.
    fn fault(self, fault: String) -> EvalError {
        match self {
            Self::Matches => EvalError::new(fault),
            Self::Find | Self::FindAll => EvalError::new(format!("Illegal regex: {fault}")),
        }
    }

    fn no_overload(self, args: &[Value<'_>]) -> EvalError {
        match self {
            Self::Matches => EvalError::no_overload(),
            Self::Find => no_overload_of("find", args),
            Self::FindAll => no_overload_of("findAll", args),
        }
    }
}

/// Runs a call. The regular expression is `known` if it is a literal, otherwise the second argument.
pub(crate) fn ask<'a>(known: Option<&Pattern>, call: RegexCall, args: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let asked = match (known, args) {
        (Some(pattern), _) => pattern.compiled(),
        (None, [Value::String(_), Value::String(pattern), ..]) => {
            meter.read_pattern(pattern)?;
            compiled::compiled_of_object(pattern)
        }
        (None, _) => return Err(call.no_overload(args)),
    };
    let (pattern, is_new) = asked.map_err(|fault| call.fault(fault))?;
    let Some(Value::String(text)) = args.first() else { return Err(EvalError::no_overload()) };
    meter.match_text(pattern.states, is_new, text)?;
    run(&pattern, call, text, args.get(2), meter)
}

/// Searches a text for up to this number of matches.
fn run<'a>(
    pattern: &Compiled,
    call: RegexCall,
    text: &Text<'a>,
    most: Option<&Value<'a>>,
    meter: &mut Meter,
) -> Outcome<'a> {
    let Compiled { regex, states, .. } = pattern;
    let part = |from: usize, to: usize| match text {
        Text::Borrowed(text) => Value::text(&text[from..to]),
        Text::Made(text) => Value::from(text[from..to].to_owned()),
    };
    Ok(match call {
        RegexCall::Matches => Value::Bool(regex.is_match(&**text)),
        RegexCall::Find => regex.find(&**text).map_or(Value::text(""), |found| part(found.start(), found.end())),
        RegexCall::FindAll => {
            let most = match most {
                Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            let mut all = Vec::new();
            for found in regex.find_iter(&**text).take(most) {
                all.push(part(found.start(), found.end()));
                meter.search_on(*states, text.len() - found.end())?;
            }
            Value::list(all)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{check, compiled};

    /// Inputs, then regular expressions, each with the first match in each input or the error. Written by Go 1.26.
    const PATTERNS: &str = include_str!("../../tests/go_regexp/patterns.txt");

    /// Unescapes a text of the table.
    fn plain(text: &str) -> String {
        let mut plain = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            plain.push(match (c, c == '\\') {
                (c, false) => c,
                _ => match chars.next().unwrap() {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'x' => {
                        let digits: String = chars.by_ref().take(2).collect();
                        char::from(u8::from_str_radix(&digits, 16).unwrap())
                    }
                    other => other,
                },
            });
        }
        plain
    }

    /// The result for a regular expression, in the form of the table.
    fn answer(pattern: &str, inputs: &[String]) -> String {
        let (checked, made) = (check(pattern), compiled(pattern));
        assert_eq!(checked.clone().err(), made.as_ref().err().cloned(), "{pattern}");
        let regex = match made {
            Err(fault) => return format!("!{}", fault.trim_start_matches("error parsing regexp: ")),
            Ok((compiled, _)) => compiled,
        };
        let place = |at: usize| char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[at]);
        let find = |input: &String| {
            regex
                .regex
                .find(input.as_str())
                .map_or(".".to_owned(), |found| [found.start(), found.end()].map(place).iter().collect())
        };
        inputs.iter().map(find).collect()
    }

    #[test]
    fn regular_expressions_match_as_in_go() {
        let mut inputs = Vec::new();
        let mut wrong = Vec::new();
        for line in PATTERNS.lines() {
            let (pattern, expected) = line.split_once('\t').unwrap();
            if pattern == "input" {
                inputs.push(plain(expected));
                continue;
            }
            let pattern = plain(pattern);
            let expected = if expected.starts_with('!') { plain(expected) } else { expected.to_owned() };
            let found = answer(&pattern, &inputs);
            if found != expected {
                wrong.push(format!("{pattern:?}: {found}, not {expected}"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{} of {}: {:#?}",
            wrong.len(),
            PATTERNS.lines().count(),
            &wrong[..wrong.len().min(40)]
        );
        assert!(PATTERNS.lines().count() > 4000);
    }

    #[test]
    fn names_of_scripts_of_several_words_are_accepted() {
        // Go 1.26 refuses these by mistake. Other versions accept them.
        for pattern in [r"\p{Old_Italic}", r"\p{Phags_Pa}", r"\p{SignWriting}"] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }
}
