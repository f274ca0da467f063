//! Scans scalars: plain, quoted, literal and folded. A scalar on one line without an escape borrows from the text.
//!
//! A single line break within a folded scalar becomes a space. Of several line breaks the first is dropped. LS and PS
//! are kept.

use std::borrow::Cow;

use super::{Scanner, Token, columns};
use crate::yaml::YamlError;

/// The line breaks between two words of a scalar.
#[derive(Default)]
struct Breaks {
    first: Option<char>,
    others: String,
}

impl Breaks {
    fn add(&mut self, char: char) {
        match self.first {
            None => self.first = Some(char),
            Some(_) => self.others.push(char),
        }
    }

    /// Appends their folded form and clears them.
    fn fold_into(&mut self, text: &mut String) {
        match self.first.take() {
            Some('\n') if self.others.is_empty() => text.push(' '),
            Some('\n') | None => {}
            Some(first) => text.push(first),
        }
        text.push_str(&self.others);
        self.others.clear();
    }
}

/// The treatment of line breaks at the end of a block scalar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    /// One line break is kept, if the scalar ends in any.
    Clip,
    Strip,
    Keep,
}

impl<'t> Scanner<'t> {
    pub(super) fn plain(&mut self) -> Result<(), YamlError> {
        self.save_key()?;
        self.allows_key = false;
        let (start, indent) = (self.cursor.mark, self.indent + 1);
        let mut lines: Option<String> = None;
        let (mut from, mut to) = (start.at, start.at);
        let mut breaks = Breaks::default();
        let mut begins_line = false;
        while !self.cursor.is_document_indicator() && self.cursor.byte(0) != b'#' {
            while !self.cursor.ends_word(0) && !self.ends_plain() {
                if std::mem::take(&mut begins_line) {
                    let text = lines.get_or_insert_default();
                    text.push_str(&self.cursor.text()[from..to]);
                    breaks.fold_into(text);
                    from = self.cursor.mark.at;
                }
                self.cursor.skip();
                to = self.cursor.mark.at;
            }
            if !self.cursor.is_blank(0) && !self.cursor.is_break(0) {
                break;
            }
            loop {
                if self.cursor.is_blank(0) {
                    if begins_line && self.column() < indent && self.cursor.byte(0) == b'\t' {
                        return Err(self.cursor.error("found a tab character that violates indentation"));
                    }
                    self.cursor.skip();
                } else if let Some(char) = self.cursor.line_break() {
                    breaks.add(char);
                    begins_line = true;
                } else {
                    break;
                }
            }
            if self.level == 0 && self.column() < indent {
                break;
            }
        }
        if begins_line {
            self.allows_key = true;
        }
        let last = &self.cursor.text()[from..to];
        let text = match lines {
            None => Cow::Borrowed(last),
            Some(lines) => Cow::Owned(lines + last),
        };
        self.push(Token::Scalar { text, is_plain: true }, start);
        Ok(())
    }

    /// Returns true if the characters here end a plain scalar.
    fn ends_plain(&self) -> bool {
        match self.cursor.byte(0) {
            b':' => self.cursor.ends_word(1),
            b',' | b'?' | b'[' | b']' | b'{' | b'}' => self.level > 0,
            _ => false,
        }
    }

    pub(super) fn quoted(&mut self, is_single: bool) -> Result<(), YamlError> {
        self.save_key()?;
        self.allows_key = false;
        let start = self.cursor.mark;
        let quote = if is_single { b'\'' } else { b'"' };
        self.cursor.skip();
        let mut read: Option<String> = None;
        let mut from = self.cursor.mark.at;
        loop {
            if self.cursor.is_document_indicator() {
                return Err(self.cursor.error("found unexpected document indicator"));
            }
            if self.cursor.is_end() {
                return Err(self.cursor.error("found unexpected end of stream"));
            }
            let mut begins_line = false;
            while !self.cursor.ends_word(0) {
                let next = self.cursor.byte(1);
                match self.cursor.byte(0) {
                    byte if byte == quote && is_single && next == quote => {
                        read.get_or_insert_default().push_str(self.cursor.since(from));
                        self.cursor.skip();
                        from = self.cursor.mark.at;
                        self.cursor.skip();
                    }
                    byte if byte == quote => break,
                    b'\\' if !is_single => {
                        let text = read.get_or_insert_default();
                        text.push_str(self.cursor.since(from));
                        self.cursor.skip();
                        if self.cursor.line_break().is_some() {
                            begins_line = true;
                            from = self.cursor.mark.at;
                            break;
                        }
                        text.push(self.escaped()?);
                        from = self.cursor.mark.at;
                    }
                    _ => self.cursor.skip(),
                }
            }
            if self.cursor.byte(0) == quote {
                break;
            }
            self.fold_quoted(&mut read, &mut from, begins_line);
        }
        let last = self.cursor.since(from);
        let text = match read {
            None => Cow::Borrowed(last),
            Some(read) => Cow::Owned(read + last),
        };
        self.cursor.skip();
        self.push(Token::Scalar { text, is_plain: false }, start);
        Ok(())
    }

    /// Skips spaces and line breaks within quotes. At the end of a line they are folded, and the words since `from` are
    /// added without them.
    fn fold_quoted(&mut self, read: &mut Option<String>, from: &mut usize, begins_line: bool) {
        let words = self.cursor.since(*from);
        let (mut breaks, mut ends_line) = (Breaks::default(), begins_line);
        if begins_line {
            // An escaped line break adds nothing, and the line break after it does not count as the first.
            breaks.first = Some('\\');
        }
        loop {
            if self.cursor.is_blank(0) {
                self.cursor.skip();
            } else if let Some(char) = self.cursor.line_break() {
                breaks.add(char);
                ends_line = true;
            } else {
                break;
            }
        }
        if !ends_line {
            return;
        }
        let text = read.get_or_insert_default();
        text.push_str(words);
        if begins_line {
            breaks.first = None;
        }
        breaks.fold_into(text);
        *from = self.cursor.mark.at;
    }

    /// The character of the escape after a backslash.
    fn escaped(&mut self) -> Result<char, YamlError> {
        let digits = match self.cursor.byte(0) {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            byte => {
                let char = match byte {
                    b'0' => '\0',
                    b'a' => '\x07',
                    b'b' => '\x08',
                    b't' | b'\t' => '\t',
                    b'n' => '\n',
                    b'v' => '\x0b',
                    b'f' => '\x0c',
                    b'r' => '\r',
                    b'e' => '\x1b',
                    b' ' => ' ',
                    b'"' => '"',
                    b'\'' => '\'',
                    b'\\' => '\\',
                    b'N' => '\u{85}',
                    b'_' => '\u{a0}',
                    b'L' => '\u{2028}',
                    b'P' => '\u{2029}',
                    _ => return Err(self.cursor.error("found unknown escape character")),
                };
                self.cursor.skip();
                return Ok(char);
            }
        };
        self.cursor.skip();
        let mut code = 0;
        for ahead in 0..digits {
            let digit = char::from(self.cursor.byte(ahead)).to_digit(16);
            let digit = digit.ok_or_else(|| self.cursor.error("did not find expected hexdecimal number"))?;
            code = code << 4 | digit;
        }
        let char = char::from_u32(code);
        let char = char.ok_or_else(|| self.cursor.error("found invalid Unicode character escape code"))?;
        self.cursor.skip_many(digits);
        Ok(char)
    }

    /// A scalar after `|` or `>`.
    pub(super) fn block_scalar(&mut self, is_literal: bool) -> Result<(), YamlError> {
        self.forget_key()?;
        self.allows_key = true;
        let start = self.cursor.mark;
        self.cursor.skip();
        let (chomping, increment) = self.block_head()?;
        let mut indent = increment.map_or(0, |increment| self.indent.max(0) + increment);
        let (mut text, mut breaks) = (String::new(), String::new());
        let mut last: Option<char> = None;
        let mut after_blank = false;
        self.block_breaks(&mut indent, &mut breaks)?;
        while self.column() == indent && !self.cursor.is_end() {
            let is_blank = self.cursor.is_blank(0);
            match last.take() {
                Some('\n') if !is_literal && !after_blank && !is_blank => {
                    if breaks.is_empty() {
                        text.push(' ');
                    }
                }
                last => text.extend(last),
            }
            text.push_str(&breaks);
            breaks.clear();
            after_blank = is_blank;
            let from = self.cursor.mark.at;
            while !self.cursor.ends_line(0) {
                self.cursor.skip();
            }
            text.push_str(self.cursor.since(from));
            last = self.cursor.line_break();
            self.block_breaks(&mut indent, &mut breaks)?;
        }
        if chomping != Chomping::Strip {
            text.extend(last);
        }
        if chomping == Chomping::Keep {
            text.push_str(&breaks);
        }
        self.push(Token::Scalar { text: text.into(), is_plain: false }, start);
        Ok(())
    }

    /// Reads the header of a block scalar: a sign and a digit in any order, and an optional comment.
    fn block_head(&mut self) -> Result<(Chomping, Option<isize>), YamlError> {
        let (mut chomping, mut increment) = (None, None);
        for _ in 0..2 {
            match self.cursor.byte(0) {
                byte @ (b'+' | b'-') if chomping.is_none() => {
                    chomping = Some(if byte == b'+' { Chomping::Keep } else { Chomping::Strip });
                }
                b'0' if increment.is_none() => {
                    return Err(self.cursor.error("found an indentation indicator equal to 0"));
                }
                byte @ b'1'..=b'9' if increment.is_none() => increment = Some(isize::from(byte - b'0')),
                _ => break,
            }
            self.cursor.skip();
        }
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !self.cursor.ends_line(0) {
            return Err(self.cursor.error("did not find expected comment or line break"));
        }
        self.cursor.line_break();
        Ok((chomping.unwrap_or(Chomping::Clip), increment))
    }

    /// Skips empty lines of a block scalar, and the indentation of the next line. If `indent` is 0, it is set to that
    /// indentation.
    fn block_breaks(&mut self, indent: &mut isize, breaks: &mut String) -> Result<(), YamlError> {
        let mut deepest = 0;
        loop {
            while (*indent == 0 || self.column() < *indent) && self.cursor.byte(0) == b' ' {
                self.cursor.skip();
            }
            deepest = deepest.max(columns(self.cursor.mark));
            if (*indent == 0 || self.column() < *indent) && self.cursor.byte(0) == b'\t' {
                return Err(self.cursor.error("found a tab character where an indentation space is expected"));
            }
            match self.cursor.line_break() {
                Some(char) => breaks.push(char),
                None => break,
            }
        }
        if *indent == 0 {
            *indent = deepest.max(self.indent + 1).max(1);
        }
        Ok(())
    }
}
