//! A scanner of parameters. It knows the position, for errors.
//!
//! The scanner recognizes characters, words and quotes. Parsers define their meaning.

use crate::error::QueryError;

/// A position in the text of a parameter.
pub(crate) struct Scanner<'t> {
    name: &'static str,
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    /// A scanner at the start of the parameter `name`.
    pub(crate) fn new(name: &'static str, text: &'t str) -> Self {
        Self { name, text, at: 0 }
    }

    /// The rest of the text.
    pub(crate) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Consumes a character.
    pub(crate) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Consumes an expected text. Returns false if it is absent.
    pub(crate) fn take(&mut self, expected: &str) -> bool {
        let there = self.rest().starts_with(expected);
        if there {
            self.at += expected.len();
        }
        there
    }

    /// Consumes characters while `wanted` returns true.
    pub(crate) fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|next| !wanted(next)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    pub(crate) fn skip_spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Reads a text in quotes of either kind. A backslash precedes literal characters.
    pub(crate) fn quoted(&mut self) -> Result<String, QueryError> {
        let opening = self.at;
        let Some(quote @ ('\'' | '"')) = self.next() else {
            return Err(self.error_at(opening, "a text in quotes is expected"));
        };
        let mut read = String::new();
        loop {
            match self.next() {
                Some(end) if end == quote => return Ok(read),
                Some('\\') => match self.next() {
                    Some(next) => read.push(next),
                    None => return Err(self.error_at(opening, "this quote is never closed")),
                },
                Some(next) => read.push(next),
                None => return Err(self.error_at(opening, "this quote is never closed")),
            }
        }
    }

    /// An error at the current position.
    pub(crate) fn error(&self, why: impl Into<String>) -> QueryError {
        self.error_at(self.at, why)
    }

    /// The current position.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// An error at a position.
    pub(crate) fn error_at(&self, at: usize, why: impl Into<String>) -> QueryError {
        let at = self.text[..at].chars().count();
        QueryError::Syntax { name: self.name, why: why.into(), at, text: self.text.to_owned() }
    }
}
