//! Regular expressions in the syntax of RE2, matched in linear time.
//!
//! The library that matches reads nearly the same syntax: where `\d`, `\w`, `\s` and `\b` mean more than ASCII to it, or a
//! bracket inside a class means something, the expression is rewritten.

use super::no_overload_of;
use crate::values::{EvalError, Outcome, Text, Value};
use regex::{Regex, RegexBuilder};

/// How many bytes a compiled expression may take.
const MAX_COMPILED: usize = 1 << 20;
/// How often a repetition may repeat.
const MAX_REPEAT: u32 = 1000;

/// Compiles an expression.
///
/// # Errors
/// What is wrong with it, in the words of Go.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let rewritten = rewrite(pattern).map_err(|fault| format!("error parsing regexp: {fault}"))?;
    RegexBuilder::new(&rewritten)
        .size_limit(MAX_COMPILED)
        .build()
        .map_err(|fault| format!("error parsing regexp: {}", explain(&fault, pattern)))
}

fn explain(fault: &regex::Error, pattern: &str) -> String {
    match fault {
        regex::Error::CompiledTooBig(_) => "expression too large".to_owned(),
        _ => format!("invalid or unsupported Perl syntax: `{pattern}`"),
    }
}

/// The expression as the library reads it.
fn rewrite(pattern: &str) -> Result<String, String> {
    let mut rewriter = Rewriter { chars: pattern.chars().collect(), at: 0, out: String::new(), open: 0 };
    let mut can_repeat = false;
    while let Some(c) = rewriter.peek(0) {
        can_repeat = rewriter.step(c, can_repeat)?;
    }
    if rewriter.open > 0 {
        return Err(format!("missing closing ): `{pattern}`"));
    }
    Ok(rewriter.out)
}

struct Rewriter {
    chars: Vec<char>,
    at: usize,
    out: String,
    open: u32,
}

impl Rewriter {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn rest(&self, from: usize) -> String {
        self.chars[from.min(self.chars.len())..].iter().collect()
    }

    fn copy(&mut self, count: usize) {
        let end = (self.at + count).min(self.chars.len());
        self.out.extend(&self.chars[self.at..end]);
        self.at = end;
    }

    /// Rewrites what is next, and tells whether that can be repeated.
    fn step(&mut self, c: char, can_repeat: bool) -> Result<bool, String> {
        match c {
            '\\' => self.escape(false).map(|()| true),
            '[' => self.class().map(|()| true),
            '(' => {
                self.group()?;
                self.open += 1;
                Ok(false)
            }
            ')' => {
                if self.open == 0 {
                    return Err(format!("unexpected ): `{}`", self.rest(0)));
                }
                self.open -= 1;
                self.copy(1);
                Ok(true)
            }
            '*' | '+' | '?' => {
                if !can_repeat {
                    return Err(format!("missing argument to repetition operator: `{c}`"));
                }
                self.copy(1);
                if self.peek(0) == Some('?') {
                    self.copy(1);
                }
                if let Some(next) = self.peek(0).filter(|next| matches!(next, '*' | '+' | '?')) {
                    return Err(format!("invalid nested repetition operator: `{c}{next}`"));
                }
                Ok(false)
            }
            '{' => self.repeat(can_repeat),
            '|' => {
                self.copy(1);
                Ok(false)
            }
            '^' | '$' => {
                self.copy(1);
                Ok(true)
            }
            // These mean something only in a mode that RE2 does not have.
            '#' | '&' | '~' | '-' | '}' | ']' => {
                self.out.push('\\');
                self.copy(1);
                Ok(true)
            }
            _ => {
                self.copy(1);
                Ok(true)
            }
        }
    }

    fn group(&mut self) -> Result<(), String> {
        if self.peek(1) != Some('?') {
            self.copy(1);
            return Ok(());
        }
        let start = self.at;
        let is_named =
            self.peek(2) == Some('P') || (self.peek(2) == Some('<') && !matches!(self.peek(3), Some('=' | '!')));
        if is_named {
            self.copy(2);
            return Ok(());
        }
        let mut end = 2;
        while self.peek(end).is_some_and(|c| "imsU-".contains(c)) {
            end += 1;
        }
        match self.peek(end) {
            Some(':') => self.copy(end + 1),
            Some(')') => self.copy(end),
            None => return Err(format!("missing closing ): `{}`", self.rest(0))),
            Some(_) => {
                let shown: String = self.chars[start..start + end + 1].iter().collect();
                return Err(format!("invalid or unsupported Perl syntax: `{shown}`"));
            }
        }
        Ok(())
    }

    /// A repetition in braces, or a brace that is just that.
    fn repeat(&mut self, can_repeat: bool) -> Result<bool, String> {
        let text: String = self.chars[self.at + 1..].iter().take_while(|c| **c != '}').collect();
        let is_closed = self.peek(1 + text.chars().count()) == Some('}');
        let (least, most) = text.split_once(',').map_or((text.as_str(), None), |(least, most)| (least, Some(most)));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_closed || !is_number(least) || !most.is_none_or(|most| most.is_empty() || is_number(most)) {
            self.out.push('\\');
            self.copy(1);
            return Ok(true);
        }
        let shown = format!("{{{text}}}");
        if !can_repeat {
            return Err(format!("missing argument to repetition operator: `{shown}`"));
        }
        let bound = |text: &str| text.parse().ok().filter(|count: &u32| *count <= MAX_REPEAT);
        let least = bound(least);
        let most = most.filter(|most| !most.is_empty()).map(bound);
        if least.is_none() || most.is_some_and(|most| most.is_none() || most < least) {
            return Err(format!("invalid repeat count: `{shown}`"));
        }
        self.copy(shown.chars().count());
        if self.peek(0) == Some('?') {
            self.copy(1);
        }
        Ok(false)
    }

    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let Some(c) = self.peek(1) else { return Err("trailing backslash at end of expression: ``".to_owned()) };
        let written = match (c, in_class) {
            ('d', false) => "[0-9]",
            ('d', true) => "0-9",
            ('D', _) => "[^0-9]",
            ('w', false) => "[0-9A-Za-z_]",
            ('w', true) => "0-9A-Za-z_",
            ('W', _) => "[^0-9A-Za-z_]",
            ('s', false) => "[\\t\\n\\f\\r ]",
            ('s', true) => "\\t\\n\\f\\r ",
            ('S', _) => "[^\\t\\n\\f\\r ]",
            ('b', false) => "(?-u:\\b)",
            ('B', false) => "(?-u:\\B)",
            ('Q', _) => return self.quoted(),
            ('p' | 'P' | 'x', _) => {
                self.copy(2);
                if self.peek(0) == Some('{') {
                    let end = self.chars[self.at..].iter().position(|c| *c == '}').map_or(1, |end| end + 1);
                    self.copy(end);
                }
                return Ok(());
            }
            ('A' | 'z', false) | ('a' | 'f' | 't' | 'n' | 'r' | 'v', _) => {
                self.copy(2);
                return Ok(());
            }
            ('0'..='7', _) => return self.octal(),
            (c, _) if c.is_ascii_punctuation() => {
                self.copy(2);
                return Ok(());
            }
            (c, _) => return Err(format!("invalid escape sequence: `\\{c}`")),
        };
        self.out.push_str(written);
        self.at += 2;
        Ok(())
    }

    fn octal(&mut self) -> Result<(), String> {
        let digits: String = self.chars[self.at + 1..].iter().take(3).take_while(|c| c.is_digit(8)).collect();
        if !digits.starts_with('0') && digits.len() < 2 {
            return Err(format!("invalid escape sequence: `\\{digits}`"));
        }
        let code = u32::from_str_radix(&digits, 8).unwrap_or(0);
        self.out.push_str(&format!("\\x{{{code:x}}}"));
        self.at += 1 + digits.len();
        Ok(())
    }

    fn quoted(&mut self) -> Result<(), String> {
        self.at += 2;
        while let Some(c) = self.peek(0) {
            if c == '\\' && self.peek(1) == Some('E') {
                self.at += 2;
                return Ok(());
            }
            self.out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
            self.at += 1;
        }
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        let start = self.at;
        self.copy(1);
        if self.peek(0) == Some('^') {
            self.copy(1);
        }
        let mut is_first = true;
        loop {
            match self.peek(0) {
                None => return Err(format!("missing closing ]: `{}`", self.rest(start))),
                Some(']') if !is_first => {
                    self.copy(1);
                    return Ok(());
                }
                Some('\\') => self.escape(true)?,
                Some('[') if self.peek(1) == Some(':') => {
                    let end = self.chars[self.at + 2..].windows(2).position(|pair| pair == [':', ']']);
                    let Some(end) = end else { return Err(format!("missing closing ]: `{}`", self.rest(start))) };
                    self.copy(end + 4);
                }
                Some('[' | ']' | '&' | '~') => {
                    self.out.push('\\');
                    self.copy(1);
                }
                // A dash at the start or the end is just that; two of them would mean a difference.
                Some('-') if is_first || matches!(self.peek(1), Some(']' | '-')) => {
                    self.out.push('\\');
                    self.copy(1);
                }
                Some(_) => self.copy(1),
            }
            is_first = false;
        }
    }
}

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "matches" => |args| made(args, RegexCall::Matches, "matches"),
        "find" => |args| made(args, RegexCall::Find, "find"),
        "findAll" => |args| made(args, RegexCall::FindAll, "findAll"),
        _ => return None,
    })
}

/// Asks a regular expression that is made only now.
fn made<'a>(args: &[Value<'a>], call: RegexCall, name: &str) -> Outcome<'a> {
    match args {
        [Value::String(_), Value::String(pattern), ..] => {
            let regex = compile(pattern).map_err(|fault| call.fault(fault))?;
            run(&regex, call, args)
        }
        _ if call == RegexCall::Matches => Err(EvalError::no_overload()),
        _ => Err(no_overload_of(name, args)),
    }
}

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
    pub fn fault(self, fault: String) -> EvalError {
        match self {
            Self::Matches => EvalError::new(fault),
            Self::Find | Self::FindAll => EvalError::new(format!("Illegal regex: {fault}")),
        }
    }
}

/// Asks a regular expression of a text, which is the first argument; the third is how many matches are wanted.
pub fn run<'a>(regex: &Regex, call: RegexCall, args: &[Value<'a>]) -> Outcome<'a> {
    let Some(Value::String(text)) = args.first() else { return Err(EvalError::no_overload()) };
    let part = |from: usize, to: usize| match text {
        Text::Borrowed(text) => Value::text(&text[from..to]),
        Text::Made(text) => Value::from(text[from..to].to_owned()),
    };
    Ok(match call {
        RegexCall::Matches => Value::Bool(regex.is_match(text)),
        RegexCall::Find => regex.find(text).map_or(Value::text(""), |found| part(found.start(), found.end())),
        RegexCall::FindAll => {
            let most = match args.get(2) {
                Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            Value::list(regex.find_iter(text).take(most).map(|found| part(found.start(), found.end())).collect())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn classes_and_escapes_mean_what_they_mean_to_re2() {
        let check = |pattern: &str, text: &str, matches: bool| {
            let regex = compile(pattern).unwrap_or_else(|fault| panic!("{pattern}: {fault}"));
            assert_eq!(regex.is_match(text), matches, "{pattern} on {text}");
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
            assert_eq!(compile(pattern).map(|_| ()).unwrap_err(), format!("error parsing regexp: {fault}"));
        };
        check("a(", "missing closing ): `a(`");
        check("a)", "unexpected ): `a)`");
        check("[0", "missing closing ]: `[0`");
        check("*", "missing argument to repetition operator: `*`");
        check("a**", "invalid nested repetition operator: `**`");
        check("a{2000}", "invalid repeat count: `{2000}`");
        check(r"\q", r"invalid escape sequence: `\q`");
        check("(?=a)", "invalid or unsupported Perl syntax: `(?=`");
    }
}
