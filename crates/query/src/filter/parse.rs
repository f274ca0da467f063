//! The parser of filters, with limits of depth and length.
//!
//! Precedence from low to high: `or`, `and`, `not`. A word before an opening bracket is `exists`, `any`, `all` or
//! `owner`. Any other word is a path, and one with a leading dot always is.

use regex::bytes::RegexBuilder;

use super::literals::{Form, Literal, OneOf};
use super::{Expr, Pattern, Test};
use crate::error::QueryError;
use crate::path::Path;
use crate::scan::Scanner;
use crate::value::Value;

/// The maximum nesting of brackets, negations and functions.
const MAX_DEPTH: usize = 32;
/// The maximum number of tests.
const MAX_TESTS: usize = 64;
/// The maximum number of values in one list.
const MAX_VALUES: usize = 256;
/// The maximum number of regular expressions.
const MAX_PATTERNS: usize = 16;
/// The cost for each byte of testing every item of a list, in walks through the list. An item may have one byte, with
/// one byte between two items.
const STEPS_OF_ITEMS: u64 = 8;
/// The cost for each byte of testing an object's owners, each of which has many bytes.
const STEPS_OF_OWNERS: u64 = 3;
/// Size limits of a compiled regular expression in bytes, each with the weight of a byte that the expression reads.
/// Larger expressions may take more steps for a byte.
const REGEX_BYTES: [(usize, u64); 3] = [(4 << 10, 1), (16 << 10, 4), (64 << 10, 16)];
/// The limit of a regular expression's cache in bytes. Common expressions stay fast within it.
const REGEX_CACHE_BYTES: usize = 256 << 10;

/// Creates a test of a text.
type OfText = fn(String) -> Test;

/// Functions that test a part of a string.
const PARTS: [(&str, OfText); 3] =
    [("startsWith", Test::StartsWith), ("endsWith", Test::EndsWith), ("contains", Test::Contains)];

const FUNCTIONS: [&str; 4] = ["exists", "any", "all", "owner"];

/// A parsed expression.
pub(super) struct Parsed {
    pub(super) root: Expr,
    /// The number of tests.
    pub(super) tests: usize,
    /// The cost for each byte of an object, in walks.
    pub(super) steps: u64,
    /// The number of regular expressions.
    pub(super) patterns: usize,
}

/// Parses a whole text.
pub(super) fn parse(parameter: &'static str, text: &str) -> Result<Parsed, QueryError> {
    let mut parser =
        Parser { scanner: Scanner::new(parameter, text), depth: 0, around: 0, tests: 0, steps: 0, patterns: 0 };
    let root = parser.any()?;
    parser.scanner.skip_spaces();
    match parser.scanner.is_at_end() {
        true => Ok(Parsed { root, tests: parser.tests, steps: parser.steps, patterns: parser.patterns }),
        false => Err(parser.scanner.error("\"and\" or \"or\" is expected")),
    }
}

struct Parser<'t> {
    scanner: Scanner<'t>,
    depth: usize,
    /// The number of item tests around the current one.
    around: usize,
    tests: usize,
    steps: u64,
    patterns: usize,
}

type Read = Result<Expr, QueryError>;

impl Parser<'_> {
    /// Parses a disjunction.
    fn any(&mut self) -> Read {
        let mut parts = vec![self.all()?];
        while self.connected("||", "or") {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Any(parts) })
    }

    /// Parses a conjunction.
    fn all(&mut self) -> Read {
        let mut parts = vec![self.one()?];
        while self.connected("&&", "and") {
            parts.push(self.one()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::All(parts) })
    }

    fn one(&mut self) -> Read {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.scanner.error("this is nested too deeply"));
        }
        self.scanner.skip_spaces();
        let expr = if self.scanner.take("!") || self.word("not") {
            Expr::Not(Box::new(self.one()?))
        } else if self.scanner.take("(") {
            let inner = self.any()?;
            self.close()?;
            inner
        } else if let Some(function) = FUNCTIONS.into_iter().find(|function| self.called(function)) {
            self.function(function)?
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn function(&mut self, name: &str) -> Read {
        self.count()?;
        let expr = match name {
            "exists" => Expr::Exists(self.path()?),
            "owner" => {
                self.steps += STEPS_OF_OWNERS;
                let kind = self.name()?;
                let kind = Expr::Value(field("kind"), Test::In(OneOf::new([text(&kind)])));
                let pass = if self.comma() {
                    let name = self.name()?;
                    Expr::All(vec![kind, Expr::Value(field("name"), Test::In(OneOf::new([text(&name)])))])
                } else {
                    kind
                };
                Expr::Items { of: Path::of_members(&["metadata", "ownerReferences"]), all: false, pass: Box::new(pass) }
            }
            _ => {
                let of = self.path()?;
                if !self.comma() {
                    return Err(self.scanner.error("a comma is expected"));
                }
                self.around += 1;
                let pass = Box::new(self.any()?);
                self.around -= 1;
                Expr::Items { of, all: name == "all", pass }
            }
        };
        self.close()?;
        Ok(expr)
    }

    fn test(&mut self) -> Read {
        self.count()?;
        let path = self.path()?;
        self.scanner.skip_spaces();
        // Longer operators precede their prefixes.
        let operators = ["==", "=", "!=", "<=", "<", ">=", ">"];
        if let Some(operator) = operators.into_iter().find(|operator| self.scanner.take(operator)) {
            return self.comparison(path, operator);
        }
        if self.word("in") {
            return Ok(Expr::Value(path, Test::In(OneOf::new(self.values()?))));
        }
        if self.word("notin") {
            return Ok(Expr::Not(Box::new(Expr::Value(path, Test::In(OneOf::new(self.values()?))))));
        }
        if let Some((_, test)) = PARTS.into_iter().find(|(word, _)| self.word(word)) {
            self.scanner.skip_spaces();
            return Ok(Expr::Value(path, test(self.scanner.quoted()?)));
        }
        if self.word("matches") {
            self.scanner.skip_spaces();
            return Ok(Expr::Value(path, Test::Matches(self.pattern()?)));
        }
        Err(self.scanner.error("a comparison is expected"))
    }

    /// Parses the path of a test and adds its cost. Within an item test, a single dot is the path of the item itself.
    fn path(&mut self) -> Result<Path, QueryError> {
        self.scanner.skip_spaces();
        let rest = self.scanner.rest();
        let is_itself = rest.strip_prefix('.').is_some_and(|rest| !rest.starts_with(follows_point));
        let path = match self.around > 0 && is_itself && self.scanner.take(".") {
            true => Path::to_itself(),
            false => Path::read(&mut self.scanner)?,
        };
        let is_of_items = self.around > 0 || !path.is_single();
        self.steps += if is_of_items { STEPS_OF_ITEMS } else { 1 };
        Ok(path)
    }

    fn pattern(&mut self) -> Result<Pattern, QueryError> {
        let at = self.scanner.position();
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            return Err(self.scanner.error(format!("at most {MAX_PATTERNS} regular expressions are allowed")));
        }
        let pattern = self.scanner.quoted()?;
        let made = |bytes| {
            RegexBuilder::new(&pattern).unicode(false).size_limit(bytes).dfa_size_limit(REGEX_CACHE_BYTES).build()
        };
        let mut why = String::new();
        for (bytes, weight) in REGEX_BYTES {
            match made(bytes) {
                Ok(regex) => return Ok(Pattern { regex, weight }),
                Err(error @ regex::Error::CompiledTooBig(_)) => why = error.to_string(),
                Err(error) => {
                    why = error.to_string();
                    break;
                }
            }
        }
        let why = why.lines().last().unwrap_or_default().trim().to_owned();
        Err(self.scanner.error_at(at, format!("invalid regular expression ({why})")))
    }

    fn comparison(&mut self, path: Path, operator: &str) -> Read {
        self.scanner.skip_spaces();
        let at = self.scanner.position();
        let literal = self.literal()?;
        if literal.form == Form::Bool && !matches!(operator, "=" | "==" | "!=") {
            let why = "only texts, numbers, quantities, times and versions are larger or smaller";
            return Err(self.scanner.error_at(at, why));
        }
        Ok(match operator {
            "<" => Expr::Value(path, Test::Less(literal)),
            "<=" => Expr::Value(path, Test::LessOrEqual(literal)),
            ">" => Expr::Value(path, Test::Greater(literal)),
            ">=" => Expr::Value(path, Test::GreaterOrEqual(literal)),
            "!=" => Expr::Not(Box::new(Expr::Value(path, Test::In(OneOf::new([literal]))))),
            _ => Expr::Value(path, Test::In(OneOf::new([literal]))),
        })
    }

    fn values(&mut self) -> Result<Vec<Literal>, QueryError> {
        self.scanner.skip_spaces();
        if !self.scanner.take("(") {
            return Err(self.scanner.error("a list of values in brackets is expected"));
        }
        let mut values = Vec::new();
        loop {
            self.scanner.skip_spaces();
            values.push(self.literal()?);
            if values.len() > MAX_VALUES {
                return Err(self.scanner.error(format!("a list has at most {MAX_VALUES} values")));
            }
            if !self.comma() {
                self.close()?;
                return Ok(values);
            }
        }
    }

    fn literal(&mut self) -> Result<Literal, QueryError> {
        let at = self.scanner.position();
        if matches!(self.scanner.peek(), Some('\'' | '"')) {
            return Ok(text(&self.scanner.quoted()?));
        }
        for (word, value) in [("true", true), ("false", false)] {
            if self.word(word) {
                return Ok(Literal { form: Form::Bool, place: vec![value.into()] });
            }
        }
        let forms = [("quantity", Form::Quantity), ("time", Form::Time), ("version", Form::Version)];
        if let Some((word, form)) = forms.into_iter().find(|(word, _)| self.called(word)) {
            let written = self.name()?;
            self.close()?;
            let mut place = Vec::new();
            let known = form.write(&Value::Text(written.into()), &mut place);
            return match known {
                Some(()) => Ok(Literal { form, place }),
                None => Err(self.scanner.error_at(at, format!("invalid {word}"))),
            };
        }
        let number =
            self.scanner.take_while(|next| next.is_ascii_digit() || matches!(next, '.' | '-' | '+' | 'e' | 'E'));
        let mut place = Vec::new();
        match Form::Number.write(&Value::Number(number.into()), &mut place) {
            Some(()) => Ok(Literal { form: Form::Number, place }),
            None => Err(self.scanner.error_at(at, "a value is expected")),
        }
    }

    /// A quoted text, or an unquoted one that ends at a comma or bracket.
    fn name(&mut self) -> Result<String, QueryError> {
        self.scanner.skip_spaces();
        if matches!(self.scanner.peek(), Some('\'' | '"')) {
            return self.scanner.quoted();
        }
        let name = self.scanner.take_while(|next| !matches!(next, ',' | ')' | '(' | '\'' | '"')).trim();
        if name.is_empty() {
            return Err(self.scanner.error("a text is expected"));
        }
        Ok(name.to_owned())
    }

    fn comma(&mut self) -> bool {
        self.scanner.skip_spaces();
        self.scanner.take(",")
    }

    fn close(&mut self) -> Result<(), QueryError> {
        self.scanner.skip_spaces();
        if self.scanner.take(")") { Ok(()) } else { Err(self.scanner.error("the bracket should be closed")) }
    }

    fn connected(&mut self, sign: &str, word: &str) -> bool {
        self.scanner.skip_spaces();
        self.scanner.take(sign) || self.word(word)
    }

    /// Consumes a whole word.
    fn word(&mut self, word: &str) -> bool {
        let ends = |rest: &str| {
            !rest.starts_with(|next: char| next.is_alphanumeric() || matches!(next, '_' | '-' | '/' | '.' | '['))
        };
        self.scanner.rest().strip_prefix(word).is_some_and(ends) && self.scanner.take(word)
    }

    /// Consumes a word and the bracket after it.
    fn called(&mut self, word: &str) -> bool {
        self.scanner.rest().strip_prefix(word).is_some_and(|rest| rest.starts_with('('))
            && self.scanner.take(word)
            && self.scanner.take("(")
    }

    fn count(&mut self) -> Result<(), QueryError> {
        self.tests += 1;
        if self.tests > MAX_TESTS {
            return Err(self.scanner.error(format!("there are at most {MAX_TESTS} tests")));
        }
        Ok(())
    }
}

/// Returns true if a dot before this character begins a path within a value.
fn follows_point(next: char) -> bool {
    next.is_alphanumeric() || matches!(next, '_' | '-' | '$' | '/' | '\\' | '[' | '.')
}

fn text(text: &str) -> Literal {
    Literal { form: Form::Text, place: text.as_bytes().to_vec() }
}

fn field(name: &str) -> Path {
    Path::of_members(&[name])
}
