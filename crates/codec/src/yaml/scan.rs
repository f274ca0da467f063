//! Splits YAML 1.1 into tokens. It finds the tokens that `go-yaml` finds, including tokens for indentation.
//!
//! A key is recognized only at the `:` after it. It must be on one line and have at most [`KEY_CHARACTERS`], which
//! limits the pending tokens.

mod scalars;
mod tags;

use std::borrow::Cow;
use std::collections::VecDeque;

use super::YamlError;
use super::text::{Cursor, Mark};

/// The maximum length of a key up to its `:`, in characters.
const KEY_CHARACTERS: usize = 1024;
/// The maximum number of open collections of each style.
const MAX_OPEN: usize = 10_000;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    StreamEnd,
    /// `%YAML`, with the version.
    Version(u8, u8),
    /// `%TAG`.
    TagHandle {
        handle: &'t str,
        prefix: Cow<'t, str>,
    },
    DocumentStart,
    DocumentEnd,
    SequenceStart,
    MappingStart,
    /// The end of a sequence or a mapping in block style.
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    /// `-`.
    Entry,
    /// `,`.
    FlowEntry,
    /// `?`, or the start of a key.
    Key,
    /// `:`.
    Value,
    /// `&x` or `*x`.
    Anchor,
    /// A tag with this handle, or a verbatim tag without one.
    Tag {
        handle: &'t str,
        suffix: Cow<'t, str>,
    },
    Scalar {
        text: Cow<'t, str>,
        is_plain: bool,
    },
}

/// A token that becomes the start of a key if a `:` follows.
#[derive(Clone, Copy)]
struct PossibleKey {
    /// The number of the token.
    token: usize,
    /// The number of enclosing collections in flow style.
    level: usize,
    mark: Mark,
    /// True if any other token than a key would be a fault here.
    is_required: bool,
}

/// Finds tokens.
pub(super) struct Scanner<'t> {
    cursor: Cursor<'t>,
    tokens: VecDeque<(Token<'t>, Mark)>,
    /// The number of tokens consumed so far.
    taken: usize,
    /// Tokens that may start a key, in the order of the text, at most one for each level.
    keys: VecDeque<PossibleKey>,
    /// The number of open collections in flow style.
    level: usize,
    /// The column of the innermost collection in block style. -1 outside of all.
    indent: isize,
    indents: Vec<isize>,
    /// True if a key may begin here.
    allows_key: bool,
}

impl<'t> Scanner<'t> {
    /// A scanner for a text that [`check_characters`](super::text::check_characters) accepts.
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            cursor: Cursor::new(text),
            tokens: VecDeque::new(),
            taken: 0,
            keys: VecDeque::new(),
            level: 0,
            indent: -1,
            indents: Vec::new(),
            allows_key: true,
        }
    }

    /// The whole text.
    pub(super) fn text(&self) -> &'t str {
        self.cursor.text()
    }

    /// The next token and its position, without consuming it. The last one is the end of the stream.
    ///
    /// # Errors
    /// Text that begins no token, and a key without `:`.
    pub(super) fn peek(&mut self) -> Result<(&Token<'t>, Mark), YamlError> {
        while self.waits()? {
            self.fetch()?;
        }
        let (token, mark) = self.tokens.front().expect("it waits while there is none");
        Ok((token, *mark))
    }

    /// Consumes the next token.
    ///
    /// # Errors
    /// As [`Scanner::peek`].
    pub(super) fn take(&mut self) -> Result<(Token<'t>, Mark), YamlError> {
        self.peek()?;
        self.taken += 1;
        Ok(self.tokens.pop_front().expect("one was looked at"))
    }

    /// Returns true if more text must be scanned before it is known whether the next token starts a key.
    fn waits(&mut self) -> Result<bool, YamlError> {
        if self.tokens.is_empty() {
            return Ok(true);
        }
        match self.keys.front() {
            Some(key) if key.token == self.taken => {
                let key = *key;
                let is_possible = self.is_possible(&key)?;
                if !is_possible {
                    self.keys.pop_front();
                }
                Ok(is_possible)
            }
            _ => Ok(false),
        }
    }

    fn push(&mut self, token: Token<'t>, mark: Mark) {
        self.tokens.push_back((token, mark));
    }

    fn fetch(&mut self) -> Result<(), YamlError> {
        self.skip_to_token();
        self.close_blocks(self.column());
        let cursor = &self.cursor;
        let in_flow = self.level > 0;
        match cursor.byte(0) {
            0 => self.stream_end(),
            b'%' if cursor.mark.column == 0 => self.directive(),
            b'-' if cursor.is_indicator(b'-') => self.document_indicator(Token::DocumentStart),
            b'.' if cursor.is_indicator(b'.') => self.document_indicator(Token::DocumentEnd),
            b'[' => self.flow_start(Token::FlowSequenceStart),
            b'{' => self.flow_start(Token::FlowMappingStart),
            b']' => self.flow_end(Token::FlowSequenceEnd),
            b'}' => self.flow_end(Token::FlowMappingEnd),
            b',' => self.flow_entry(),
            b'-' if cursor.ends_word(1) => self.entry(),
            b'?' if in_flow || cursor.ends_word(1) => self.key(),
            b':' if in_flow || cursor.ends_word(1) => self.value(),
            b'*' | b'&' => self.anchor(),
            b'!' => self.tag(),
            b'|' if !in_flow => self.block_scalar(true),
            b'>' if !in_flow => self.block_scalar(false),
            b'\'' => self.quoted(true),
            b'"' => self.quoted(false),
            b'-' | b'?' | b':' => self.plain(),
            b'|' | b'>' | b'#' | b'%' | b'@' | b'`' | b'\t' => {
                Err(self.cursor.error("found character that cannot start any token"))
            }
            _ => self.plain(),
        }
    }

    /// Skips spaces, line breaks and comments. A tab is invalid where a key may begin.
    fn skip_to_token(&mut self) {
        loop {
            let takes_tabs = self.level > 0 || !self.allows_key;
            while self.cursor.byte(0) == b' ' || takes_tabs && self.cursor.byte(0) == b'\t' {
                self.cursor.skip();
            }
            self.cursor.skip_comment();
            if self.cursor.line_break().is_none() {
                return;
            }
            if self.level == 0 {
                self.allows_key = true;
            }
        }
    }

    /// The current column, as indentation.
    fn column(&self) -> isize {
        columns(self.cursor.mark)
    }

    /// Ends the collections in block style with a larger indentation.
    fn close_blocks(&mut self, column: isize) {
        while self.level == 0 && self.indent > column {
            self.push(Token::BlockEnd, self.cursor.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    /// Begins a collection in block style if the column is larger than the indentation of the enclosing one. `number`
    /// is the token before which it begins; `None` for the next one.
    fn open_block(&mut self, mark: Mark, number: Option<usize>, token: Token<'t>) -> Result<(), YamlError> {
        let column = columns(mark);
        if self.level > 0 || self.indent >= column {
            return Ok(());
        }
        if self.indents.len() == MAX_OPEN {
            return Err(self.cursor.error("exceeded max depth of 10000"));
        }
        self.indents.push(self.indent);
        self.indent = column;
        match number {
            Some(number) => self.tokens.insert(number - self.taken, (token, mark)),
            None => self.push(token, mark),
        }
        Ok(())
    }

    /// Records that a key may begin here, if allowed.
    fn save_key(&mut self) -> Result<(), YamlError> {
        if self.allows_key {
            let is_required = self.level == 0 && self.indent == self.column();
            self.forget_key()?;
            let token = self.taken + self.tokens.len();
            self.keys.push_back(PossibleKey { token, level: self.level, mark: self.cursor.mark, is_required });
        }
        Ok(())
    }

    /// Removes the token of this level that may start a key.
    fn pop_key(&mut self) -> Option<PossibleKey> {
        let is_here = self.keys.back().is_some_and(|key| key.level == self.level);
        if is_here { self.keys.pop_back() } else { None }
    }

    /// Records that no key starts on this level any more.
    fn forget_key(&mut self) -> Result<(), YamlError> {
        match self.pop_key() {
            Some(key) if key.is_required => Err(self.no_value()),
            _ => Ok(()),
        }
    }

    /// Returns true if a `:` at this position would still make this a key.
    fn is_possible(&self, key: &PossibleKey) -> Result<bool, YamlError> {
        let mark = self.cursor.mark;
        let is_possible = key.mark.line == mark.line && mark.index <= key.mark.index + KEY_CHARACTERS;
        if !is_possible && key.is_required {
            return Err(self.no_value());
        }
        Ok(is_possible)
    }

    #[cold]
    fn no_value(&self) -> YamlError {
        self.cursor.error("could not find expected ':'")
    }

    fn stream_end(&mut self) -> Result<(), YamlError> {
        if self.cursor.mark.column > 0 {
            self.cursor.mark.column = 0;
            self.cursor.mark.line += 1;
        }
        self.end_document()?;
        self.push(Token::StreamEnd, self.cursor.mark);
        Ok(())
    }

    fn end_document(&mut self) -> Result<(), YamlError> {
        self.close_blocks(-1);
        self.forget_key()?;
        self.allows_key = false;
        Ok(())
    }

    fn document_indicator(&mut self, token: Token<'t>) -> Result<(), YamlError> {
        self.end_document()?;
        self.push(token, self.cursor.mark);
        self.cursor.skip_many(3);
        Ok(())
    }

    /// Adds a token of one character.
    fn indicator(&mut self, token: Token<'t>) {
        self.push(token, self.cursor.mark);
        self.cursor.skip();
    }

    fn flow_start(&mut self, token: Token<'t>) -> Result<(), YamlError> {
        self.save_key()?;
        if self.level == MAX_OPEN {
            return Err(self.cursor.error("exceeded max depth of 10000"));
        }
        self.level += 1;
        self.allows_key = true;
        self.indicator(token);
        Ok(())
    }

    fn flow_end(&mut self, token: Token<'t>) -> Result<(), YamlError> {
        self.forget_key()?;
        self.level = self.level.saturating_sub(1);
        self.allows_key = false;
        self.indicator(token);
        Ok(())
    }

    fn flow_entry(&mut self) -> Result<(), YamlError> {
        self.forget_key()?;
        self.allows_key = true;
        self.indicator(Token::FlowEntry);
        Ok(())
    }

    fn entry(&mut self) -> Result<(), YamlError> {
        if self.level == 0 {
            if !self.allows_key {
                return Err(self.cursor.error("block sequence entries are not allowed in this context"));
            }
            self.open_block(self.cursor.mark, None, Token::SequenceStart)?;
        }
        self.forget_key()?;
        self.allows_key = true;
        self.indicator(Token::Entry);
        Ok(())
    }

    /// `?`.
    fn key(&mut self) -> Result<(), YamlError> {
        if self.level == 0 {
            if !self.allows_key {
                return Err(self.cursor.error("mapping keys are not allowed in this context"));
            }
            self.open_block(self.cursor.mark, None, Token::MappingStart)?;
        }
        self.forget_key()?;
        self.allows_key = self.level == 0;
        self.indicator(Token::Key);
        Ok(())
    }

    /// `:`.
    fn value(&mut self) -> Result<(), YamlError> {
        let key = match self.pop_key() {
            Some(key) if self.is_possible(&key)? => Some(key),
            _ => None,
        };
        if let Some(key) = key {
            self.tokens.insert(key.token - self.taken, (Token::Key, key.mark));
            self.open_block(key.mark, Some(key.token), Token::MappingStart)?;
            self.allows_key = false;
        } else {
            if self.level == 0 {
                if !self.allows_key {
                    return Err(self.cursor.error("mapping values are not allowed in this context"));
                }
                self.open_block(self.cursor.mark, None, Token::MappingStart)?;
            }
            self.allows_key = self.level == 0;
        }
        self.indicator(Token::Value);
        Ok(())
    }
}

#[expect(clippy::cast_possible_wrap, reason = "no text is that long")]
fn columns(mark: Mark) -> isize {
    mark.column as isize
}
