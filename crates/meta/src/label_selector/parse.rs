//! The grammar of label selectors.
//!
//! A lexer produces tokens for a parser with one token of lookahead. A token keeps its text for messages. If a name is
//! expected, `in` and `notin` are names.

use std::collections::BTreeSet;

use super::{Operator, Requirement};
use crate::field_error::{self, FieldError};
use crate::go_format;
use crate::names::{label_key_faults, label_value_faults};

/// The operators after a key, as listed in a message.
const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// The maximum number of faulty values in a message. The text of a fault is longer than its value, so all faults
/// together could be huge.
const MAX_FAULTS: usize = 100;

/// The path of a key in messages. Upstream has none here and prints `<nil>`.
const NO_PATH: &str = "<nil>";

/// Parses the requirements of a selector, in the given order.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: tokens(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        let next = parser.peek().as_name();
        match next.kind {
            Kind::Name | Kind::Not => {
                let requirement = parser.requirement();
                requirements.push(requirement.map_err(|error| format!("unable to parse requirement: {error}"))?);
                if parser.end_of_requirement()? {
                    return Ok(requirements);
                }
            }
            Kind::End => return Ok(requirements),
            _ => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", next.text)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Name,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    text: String,
}

impl Token {
    /// The token if a name is expected at its place.
    fn as_name(&self) -> Self {
        let kind = match self.kind {
            Kind::In | Kind::NotIn => Kind::Name,
            other => other,
        };
        Self { kind, text: self.text.clone() }
    }
}

/// All tokens of the text, with [`Kind::End`] last.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else { break };
        let length = if is_symbol(first) { symbol_length(rest) } else { name_length(rest) };
        let (token, after) = rest.split_at(length);
        tokens.push(classify(token));
        rest = after;
    }
    tokens.push(Token { kind: Kind::End, text: String::new() });
    tokens
}

fn classify(text: &str) -> Token {
    let kind = match text {
        "in" => Kind::In,
        "notin" => Kind::NotIn,
        _ => symbol_kind(text).unwrap_or(Kind::Name),
    };
    Token { kind, text: text.to_owned() }
}

fn symbol_kind(text: &str) -> Option<Kind> {
    Some(match text {
        ")" => Kind::Close,
        "," => Kind::Comma,
        "!" => Kind::Not,
        "==" => Kind::DoubleEquals,
        "=" => Kind::Equals,
        ">" => Kind::Greater,
        "<" => Kind::Less,
        "!=" => Kind::NotEquals,
        "(" => Kind::Open,
        _ => return None,
    })
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

/// The length of the longest symbol at the start, so that `==` is found before `=`. A symbol has at most two bytes.
fn symbol_length(text: &str) -> usize {
    match text.get(..2) {
        Some(pair) if symbol_kind(pair).is_some() => 2,
        _ => 1,
    }
}

fn name_length(text: &str) -> usize {
    text.find(|c: char| is_symbol(c) || matches!(c, ' ' | '\t' | '\r' | '\n')).unwrap_or(text.len())
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        // The last token is the end, and the position never moves past it.
        &self.tokens[self.position.min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.position += 1;
        token
    }

    /// Consumes the token after a requirement. Returns true at the end, false if another requirement follows a comma.
    fn end_of_requirement(&mut self) -> Result<bool, String> {
        let token = self.take();
        match token.kind {
            Kind::End => Ok(true),
            Kind::Comma => match self.peek().as_name() {
                Token { kind: Kind::Name | Kind::Not, .. } => Ok(false),
                other => Err(format!("found '{}', expected: identifier after ','", other.text)),
            },
            _ => Err(format!("found '{}', expected: ',' or 'end of string'", token.text)),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek().kind == Kind::Not;
        if negated {
            self.take();
        }
        let key = self.key()?;
        let ends = matches!(self.peek().kind, Kind::End | Kind::Comma);
        if negated || ends {
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: BTreeSet::new() });
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            _ => self.exact_value()?,
        };
        check_values(&key, operator, &values)?;
        Ok(Requirement { key, operator, values })
    }

    fn key(&mut self) -> Result<String, String> {
        let token = self.take().as_name();
        if token.kind != Kind::Name {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        let faults = label_key_faults(&token.text);
        if faults.is_empty() {
            return Ok(token.text);
        }
        Err(FieldError::invalid(NO_PATH, token.text, faults.join("; ")).to_string())
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let token = self.take();
        match token.kind {
            Kind::In => Ok(Operator::In),
            Kind::NotIn => Ok(Operator::NotIn),
            Kind::Equals => Ok(Operator::Equals),
            Kind::DoubleEquals => Ok(Operator::DoubleEquals),
            Kind::NotEquals => Ok(Operator::NotEquals),
            Kind::Greater => Ok(Operator::GreaterThan),
            Kind::Less => Ok(Operator::LessThan),
            Kind::End | Kind::Close | Kind::Comma | Kind::Not | Kind::Name | Kind::Open => {
                Err(format!("found '{}', expected: {BINARY_OPERATORS}", token.text))
            }
        }
    }

    /// The value after a comparison. A missing value is empty.
    fn exact_value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek().kind, Kind::End | Kind::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        let token = self.take().as_name();
        match token.kind {
            Kind::Name => Ok(BTreeSet::from([token.text])),
            _ => Err(format!("found '{}', expected: identifier", token.text)),
        }
    }

    /// The values in parentheses.
    fn set(&mut self) -> Result<BTreeSet<String>, String> {
        let open = self.take();
        if open.kind != Kind::Open {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        let first = self.peek().as_name();
        match first.kind {
            Kind::Name | Kind::Comma => {
                let values = self.set_values()?;
                match self.take().kind {
                    Kind::Close => Ok(values),
                    _ => Err(format!("found '{}', expected: ')'", first.text)),
                }
            }
            Kind::Close => {
                self.take();
                Ok(BTreeSet::from([String::new()]))
            }
            _ => Err(format!("found '{}', expected: ',', ')' or identifier", first.text)),
        }
    }

    /// Comma-separated values, where a missing value is empty. Stops before `)`.
    fn set_values(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            let token = self.take().as_name();
            match token.kind {
                Kind::Name => {
                    values.insert(token.text);
                    let next = self.peek().as_name();
                    match next.kind {
                        Kind::Comma => {}
                        Kind::Close => return Ok(values),
                        _ => return Err(format!("found '{}', expected: ',' or ')'", next.text)),
                    }
                }
                Kind::Comma => {
                    let next = self.peek().kind;
                    if values.is_empty() || matches!(next, Kind::Close | Kind::Comma) {
                        values.insert(String::new());
                    }
                    if next == Kind::Close {
                        return Ok(values);
                    }
                }
                _ => return Err(format!("found '{}', expected: ',', or identifier", token.text)),
            }
        }
    }
}

fn check_values(key: &str, operator: Operator, values: &BTreeSet<String>) -> Result<(), String> {
    let mut errors = Vec::new();
    if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
        for (index, value) in values.iter().enumerate().filter(|(_, value)| go_format::parse_int(value).is_err()) {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.push(FieldError::invalid(format!("values[{index}]"), value.as_str(), detail));
        }
    }
    for (index, value) in values.iter().enumerate() {
        if errors.len() >= MAX_FAULTS {
            break;
        }
        let faults = label_value_faults(value);
        if !faults.is_empty() {
            errors.push(FieldError::invalid(format!("values[{index}][{key}]"), value.as_str(), faults.join("; ")));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(field_error::join(&errors)) }
}
