//! Validates JSON text without building a tree.
//!
//! Error texts are those of Go's `encoding/json`, since clients print them and tests compare them. Every other reader
//! of the crate accepts a text that passes: depth, surrogates and number ranges are checked too. The check does not
//! recurse. It records the extents of arrays and objects for later readers.

use thiserror::Error;

use crate::cursor::{Extents, not_plain};

/// The maximum depth of arrays and objects. Upstream allows 10,000. No real object comes near 100. With this limit,
/// readers may recurse on a thread's stack.
pub const MAX_DEPTH: usize = 512;

/// The reason why a text is not JSON. It displays as Go's `encoding/json` does for the same bytes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JsonError {
    /// The text ends inside a value, or is empty.
    #[error("unexpected end of JSON input")]
    UnexpectedEnd,
    /// A byte that is invalid at its place.
    #[error("invalid character {} {context}", quote(*.found))]
    InvalidCharacter {
        /// The byte. Go prints it as a Latin-1 character.
        found: u8,
        /// The place, such as `after object key`.
        context: &'static str,
    },
    /// More than [`MAX_DEPTH`] nested arrays and objects, with the bracket that opens the next.
    #[error("invalid character {} exceeded max depth", quote(*.0))]
    TooDeep(u8),
    /// A `\u` escape of a lone surrogate. Go replaces it silently. This server refuses it, since data would be lost.
    #[error("invalid surrogate pair in \\u hexadecimal character escape")]
    LoneSurrogate,
    /// A number outside the range of a 64-bit float.
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    NumberRange(String),
    /// A value that the reader refused although the grammar allows it.
    #[error("{0}")]
    Refused(String),
    /// The text is not UTF-8. Go replaces the bytes silently. This server refuses them, since data would be lost.
    #[error("invalid UTF-8 in JSON input")]
    NotUtf8,
}

/// The whitespace and the extents of a valid text.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// There is no whitespace between tokens.
    pub(crate) compact: bool,
    pub(crate) extents: Extents,
}

/// Checks that `bytes` are one JSON value without trailing text. Cost: one pass, about a nanosecond per byte.
///
/// # Errors
/// The first fault, with the text of Go's `encoding/json`.
pub(crate) fn check(bytes: &[u8]) -> Result<Layout, JsonError> {
    let extents = Extents::with_capacity(bytes.len());
    let mut checker = Checker { bytes, at: 0, depth: 0, objects: [0; MAX_DEPTH / 64], compact: true, extents };
    checker.run()?;
    if std::str::from_utf8(bytes).is_err() {
        return Err(JsonError::NotUtf8);
    }
    Ok(Layout { compact: checker.compact, extents: checker.extents })
}

/// The expected next token. Some variants also allow the end of the innermost container or of the text.
#[derive(Clone, Copy)]
enum Expect {
    FirstValue,
    FirstKey,
    Comma,
}

struct Checker<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    /// One bit per open container: set for an object, clear for an array.
    objects: [u64; MAX_DEPTH / 64],
    compact: bool,
    extents: Extents,
}

impl Checker<'_> {
    fn run(&mut self) -> Result<(), JsonError> {
        let mut expect = self.next(Self::value)?;
        loop {
            self.skip_whitespace();
            let Some(&byte) = self.bytes.get(self.at) else {
                let complete = self.depth == 0 && matches!(expect, Expect::Comma);
                return if complete { Ok(()) } else { Err(JsonError::UnexpectedEnd) };
            };
            expect = match expect {
                Expect::FirstValue if byte == b']' => self.close(),
                Expect::FirstValue => self.value(byte)?,
                Expect::FirstKey if byte == b'}' => self.close(),
                Expect::FirstKey => self.key(byte)?,
                Expect::Comma => self.separator(byte)?,
            };
        }
    }

    /// Continues with the next token. The end of the text is an error.
    #[inline]
    fn next(&mut self, go: impl FnOnce(&mut Self, u8) -> Result<Expect, JsonError>) -> Result<Expect, JsonError> {
        self.skip_whitespace();
        match self.bytes.get(self.at) {
            Some(&byte) => go(self, byte),
            None => Err(JsonError::UnexpectedEnd),
        }
    }

    #[inline]
    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
            self.compact = false;
        }
    }

    #[inline]
    fn value(&mut self, byte: u8) -> Result<Expect, JsonError> {
        match byte {
            b'{' => return self.open(true),
            b'[' => return self.open(false),
            b'"' => self.string()?,
            b't' => self.literal(b"true", &TRUE)?,
            b'f' => self.literal(b"false", &FALSE)?,
            b'n' => self.literal(b"null", &NULL)?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => return self.invalid("looking for beginning of value"),
        }
        Ok(Expect::Comma)
    }

    #[inline]
    fn open(&mut self, object: bool) -> Result<Expect, JsonError> {
        if self.depth == MAX_DEPTH {
            return Err(JsonError::TooDeep(if object { b'{' } else { b'[' }));
        }
        let bit = 1u64 << (self.depth % 64);
        let word = &mut self.objects[self.depth / 64];
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        self.extents.open(self.at);
        self.at += 1;
        Ok(if object { Expect::FirstKey } else { Expect::FirstValue })
    }

    #[inline]
    fn close(&mut self) -> Expect {
        self.depth -= 1;
        self.at += 1;
        self.extents.close(self.at);
        Expect::Comma
    }

    #[inline]
    fn in_object(&self) -> bool {
        let innermost = self.depth - 1;
        self.objects[innermost / 64] & (1 << (innermost % 64)) != 0
    }

    /// Skips a key and its value. If the value is an array or object, moves into it.
    #[inline]
    fn key(&mut self, byte: u8) -> Result<Expect, JsonError> {
        if byte != b'"' {
            return self.invalid("looking for beginning of object key string");
        }
        self.string()?;
        self.skip_whitespace();
        match self.bytes.get(self.at) {
            Some(b':') => {
                self.at += 1;
                self.next(Self::value)
            }
            Some(_) => self.invalid("after object key"),
            None => Err(JsonError::UnexpectedEnd),
        }
    }

    /// Skips a comma and the token after it, or the end of a container.
    fn separator(&mut self, byte: u8) -> Result<Expect, JsonError> {
        if self.depth == 0 {
            return self.invalid("after top-level value");
        }
        match (self.in_object(), byte) {
            (true, b',') => {
                self.at += 1;
                self.next(Self::key)
            }
            (false, b',') => {
                self.at += 1;
                self.next(Self::value)
            }
            (true, b'}') | (false, b']') => Ok(self.close()),
            (true, _) => self.invalid("after object key:value pair"),
            (false, _) => self.invalid("after array element"),
        }
    }

    #[inline]
    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            let Some(plain) = self.bytes.get(self.at..).and_then(not_plain) else {
                return Err(JsonError::UnexpectedEnd);
            };
            self.at += plain;
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.escape()?,
                _ => return self.invalid("in string literal"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.at += 1;
                Ok(())
            }
            b'u' => self.unicode_escape(),
            _ => self.invalid("in string escape code"),
        }
    }

    fn unicode_escape(&mut self) -> Result<(), JsonError> {
        match self.hex()? {
            0xdc00..=0xdfff => Err(JsonError::LoneSurrogate),
            0xd800..=0xdbff => {
                if !self.bytes[self.at..].starts_with(b"\\u") {
                    return Err(JsonError::LoneSurrogate);
                }
                self.at += 1;
                match self.hex()? {
                    0xdc00..=0xdfff => Ok(()),
                    _ => Err(JsonError::LoneSurrogate),
                }
            }
            _ => Ok(()),
        }
    }

    /// Reads the four hexadecimal digits of a Unicode escape. The cursor is on the `u`.
    fn hex(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = char::from(self.peek()).to_digit(16) else {
                return self.invalid("in \\u hexadecimal character escape");
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn literal(&mut self, word: &[u8], contexts: &[&'static str]) -> Result<(), JsonError> {
        for (&wanted, context) in word.iter().zip(contexts) {
            if self.peek() != wanted {
                return self.invalid(context);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        if self.peek() == b'-' {
            self.at += 1;
        }
        match self.peek() {
            b'0' => self.at += 1,
            _ => self.digits("in numeric literal")?,
        }
        if self.peek() == b'.' {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        let exponent = matches!(self.peek(), b'e' | b'E');
        if exponent {
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        self.number_range(start, exponent)
    }

    /// A float can hold any number of up to 308 digits, so only long texts and exponents are checked.
    fn number_range(&self, start: usize, exponent: bool) -> Result<(), JsonError> {
        let text = &self.bytes[start..self.at];
        if !exponent && text.len() < 300 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(text);
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(()),
            _ => Err(JsonError::NumberRange(text.into_owned())),
        }
    }

    fn digits(&mut self, context: &'static str) -> Result<(), JsonError> {
        if !self.peek().is_ascii_digit() {
            return self.invalid(context);
        }
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    /// Reads the next byte. At the end of the text, Go's scanner reads one space, which appears in some of its errors.
    #[inline]
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(b' ')
    }

    fn invalid<T>(&self, context: &'static str) -> Result<T, JsonError> {
        Err(JsonError::InvalidCharacter { found: self.peek(), context })
    }
}

const TRUE: [&str; 4] =
    ["", "in literal true (expecting 'r')", "in literal true (expecting 'u')", "in literal true (expecting 'e')"];
const FALSE: [&str; 5] = [
    "",
    "in literal false (expecting 'a')",
    "in literal false (expecting 'l')",
    "in literal false (expecting 's')",
    "in literal false (expecting 'e')",
];
const NULL: [&str; 4] =
    ["", "in literal null (expecting 'u')", "in literal null (expecting 'l')", "in literal null (expecting 'l')"];

/// Go's quoted form of one byte taken as a Latin-1 character.
fn quote(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x09 => r"'\t'".to_owned(),
        0x0a => r"'\n'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        0x0d => r"'\r'".to_owned(),
        0x00..=0x1f | 0x7f => format!("'\\x{byte:02x}'"),
        // Characters that Go considers not printable: the C1 controls, the no-break space and the soft hyphen.
        0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str, expected: &str) {
        let error = check(text.as_bytes()).expect_err(text);
        assert_eq!(error.to_string(), expected, "for {text}");
    }

    #[test]
    fn faults_read_as_go_writes_them() {
        says("", "unexpected end of JSON input");
        says("{", "unexpected end of JSON input");
        says("\"abc", "unexpected end of JSON input");
        says("[1,", "unexpected end of JSON input");
        says("hello", "invalid character 'h' looking for beginning of value");
        says("[1,]", "invalid character ']' looking for beginning of value");
        says("{1:2}", "invalid character '1' looking for beginning of object key string");
        says("{\"a\":1,}", "invalid character '}' looking for beginning of object key string");
        says("{\"a\" 1}", "invalid character '1' after object key");
        says("{\"a\":1 \"b\"", "invalid character '\"' after object key:value pair");
        says("[1 2]", "invalid character '2' after array element");
        says("[1}", "invalid character '}' after array element");
        says("{} x", "invalid character 'x' after top-level value");
        says("01", "invalid character '1' after top-level value");
        says("tru", "invalid character ' ' in literal true (expecting 'e')");
        says("nul]", "invalid character ']' in literal null (expecting 'l')");
        says("-", "invalid character ' ' in numeric literal");
        says("1.x", "invalid character 'x' after decimal point in numeric literal");
        says("1e]", "invalid character ']' in exponent of numeric literal");
        says("\"\n\"", "invalid character '\\n' in string literal");
        says("\"\\x\"", "invalid character 'x' in string escape code");
        says("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape");
        says("'a'", "invalid character '\\'' looking for beginning of value");
        says("\u{1}", "invalid character '\\x01' looking for beginning of value");
        says("é", "invalid character 'Ã' looking for beginning of value");
        says("1e999", "json: cannot unmarshal number 1e999 into Go value of type float64");
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(check(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(check(nested(MAX_DEPTH + 1).as_bytes()).err(), Some(JsonError::TooDeep(b'[')));
    }

    #[test]
    fn whitespace_is_detected() {
        let compact = |text: &[u8]| check(text).unwrap().compact;
        assert_eq!([compact(b"{\"a b\":[1,2]}"), compact(b"{\"a\": 1}")], [true, false]);
    }

    #[test]
    fn text_that_would_lose_data_is_refused() {
        for text in [&b"\"\\ud800\""[..], b"\"\\udc00\"", b"\"\\ud800\\u0041\""] {
            assert_eq!(check(text).err(), Some(JsonError::LoneSurrogate));
        }
        assert_eq!(check(b"\"\xff\"").err(), Some(JsonError::NotUtf8));
        assert!(check(b"\"\\ud83d\\ude00\"").is_ok());
    }
}
