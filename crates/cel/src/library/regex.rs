//! Regular expressions in the syntax of RE2, matched in linear time.
//!
//! How they are read is in `syntax`, how they are compiled and kept in `compiled`; here are the functions that ask them.

mod compiled;
mod syntax;

use super::no_overload_of;
use crate::cost::actual::Meter;
use crate::values::{EvalError, Outcome, Text, Value};

pub use compiled::{Compiled, MAX_STATES, Pattern, check, compiled};

/// What is asked of a regular expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegexCall {
    /// Whether it matches.
    Matches,
    /// The first match.
    Find,
    /// All matches.
    FindAll,
}

impl RegexCall {
    /// What a function of that name asks.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "matches" => Self::Matches,
            "find" => Self::Find,
            "findAll" => Self::FindAll,
            _ => return None,
        })
    }

    /// What is said of an expression that can't be read.
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

/// Asks a regular expression of the arguments of a call: `known`, or else that which is the second.
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

/// Asks of a text, of whose matches so many are wanted.
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
        RegexCall::Matches => Value::Bool(regex.is_match(text)),
        RegexCall::Find => regex.find(text).map_or(Value::text(""), |found| part(found.start(), found.end())),
        RegexCall::FindAll => {
            let most = match most {
                Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            let mut all = Vec::new();
            for found in regex.find_iter(text).take(most) {
                all.push(part(found.start(), found.end()));
                meter.search_on(*states, text.len() - found.end())?;
            }
            Value::list(all)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{check as judge, compiled};

    #[test]
    fn classes_and_escapes_mean_what_they_mean_to_re2() {
        let check = |pattern: &str, text: &str, matches: bool| {
            let (compiled, _) = compiled(pattern).unwrap_or_else(|fault| panic!("{pattern}: {fault}"));
            assert_eq!(compiled.regex.is_match(text), matches, "{pattern} on {text}");
        };
        check(r"^\d$", "١", false);
        check(r"^[\d\-]+$", "1-2", true);
        check(r"^\w+$", "é", false);
        check(r"\bfoo\b", "a foo b", true);
        check(r"\Bo", "foo", true);
        check(r"^[[:alpha:]]+$", "abc", true);
        check(r"^[[a]+$", "[a", true);
        check(r"^[a&&b]+$", "&", true);
        check(r"^\Qa.b\E$", "a.b", true);
        check(r"^a{,2}$", "a{,2}", true);
        check(r"^\pL$", "é", true);
        check(r"^\x41\x{42}\103$", "ABC", true);
        check(r"^[^-a]$", "-", false);
        check(r"^a#b$", "a#b", true);
    }

    #[test]
    fn faults_are_told_in_the_words_of_go() {
        let check = |pattern: &str, fault: &str| {
            assert_eq!(judge(pattern).unwrap_err(), format!("error parsing regexp: {fault}"));
            assert_eq!(compiled(pattern).unwrap_err(), format!("error parsing regexp: {fault}"));
        };
        check("a(", "missing closing ): `a(`");
        check("a)", "unexpected ): `a)`");
        check("[0", "missing closing ]: `[0`");
        check("*", "missing argument to repetition operator: `*`");
        check("a**", "invalid nested repetition operator: `**`");
        check("a{2000}", "invalid repeat count: `{2000}`");
        check("(a{40}b){30}", "invalid repeat count: `{30}`");
        check("(a{40,}){26,30}", "invalid repeat count: `{26,30}`");
        check(r"\q", r"invalid escape sequence: `\q`");
        check("(?=a)", "invalid or unsupported Perl syntax: `(?=`");
    }
}
