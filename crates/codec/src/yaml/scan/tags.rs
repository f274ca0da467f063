//! Tags, anchors and directives.
//!
//! Tags, anchors and directives are scanned completely, so that their faults are reported. The names of anchors are
//! dropped, since aliases are refused.

use std::borrow::Cow;

use super::{Scanner, Token};
use crate::yaml::YamlError;

impl<'t> Scanner<'t> {
    /// `&x` or `*x`.
    pub(super) fn anchor(&mut self) -> Result<(), YamlError> {
        self.save_key()?;
        self.allows_key = false;
        let start = self.cursor.mark;
        self.cursor.skip();
        let name = self.name();
        let is_over = self.cursor.ends_word(0)
            || matches!(self.cursor.byte(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !is_over {
            return Err(self.cursor.error("did not find expected alphabetic or numeric character"));
        }
        self.push(Token::Anchor, start);
        Ok(())
    }

    /// Skips letters, digits, `_` and `-`.
    fn name(&mut self) -> &'t str {
        let start = self.cursor.mark.at;
        while matches!(self.cursor.byte(0), b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-') {
            self.cursor.skip();
        }
        self.cursor.since(start)
    }

    pub(super) fn tag(&mut self) -> Result<(), YamlError> {
        self.save_key()?;
        self.allows_key = false;
        let start = self.cursor.mark;
        let (handle, suffix) = if self.cursor.byte(1) == b'<' {
            self.cursor.skip_many(2);
            let suffix = self.uri("", false)?;
            if self.cursor.byte(0) != b'>' {
                return Err(self.cursor.error("did not find the expected '>'"));
            }
            self.cursor.skip();
            ("", suffix)
        } else {
            match self.handle(false)? {
                handle if handle.len() > 1 && handle.ends_with('!') => (handle, self.uri("", false)?),
                // The text is not a handle but the beginning of the tag itself.
                handle => match self.uri(&handle[1..], true)? {
                    suffix if suffix.is_empty() => ("", Cow::Borrowed("!")),
                    suffix => ("!", suffix),
                },
            }
        };
        if !self.cursor.ends_word(0) {
            return Err(self.cursor.error("did not find expected whitespace or line break"));
        }
        self.push(Token::Tag { handle, suffix }, start);
        Ok(())
    }

    /// Scans `!`, `!!` or `!name!`. In a tag also `!name`, which is then the beginning of the tag.
    fn handle(&mut self, of_directive: bool) -> Result<&'t str, YamlError> {
        let start = self.cursor.mark.at;
        if self.cursor.byte(0) != b'!' {
            return Err(self.cursor.error("did not find expected '!'"));
        }
        self.cursor.skip();
        let name = self.name();
        if self.cursor.byte(0) == b'!' {
            self.cursor.skip();
        } else if of_directive && !name.is_empty() {
            return Err(self.cursor.error("did not find expected '!'"));
        }
        Ok(self.cursor.since(start))
    }

    /// The rest of a tag after this beginning.
    fn uri(&mut self, beginning: &'t str, may_be_empty: bool) -> Result<Cow<'t, str>, YamlError> {
        let start = self.cursor.mark.at;
        let mut escaped: Option<Vec<u8>> = None;
        loop {
            match self.cursor.byte(0) {
                b'%' => {
                    let read = self.cursor.since(start);
                    let octet = self.octet()?;
                    escaped.get_or_insert_with(|| read.as_bytes().to_vec()).push(octet);
                }
                byte @ (b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z') => self.uri_byte(byte, escaped.as_mut()),
                byte if b"_-;/?:@&=+$,.!~*'()[]".contains(&byte) => self.uri_byte(byte, escaped.as_mut()),
                _ => break,
            }
        }
        let read = match escaped {
            None => Cow::Borrowed(self.cursor.since(start)),
            Some(bytes) => {
                let text = String::from_utf8(bytes);
                Cow::Owned(text.map_err(|_| self.cursor.error("found an incorrect trailing UTF-8 octet"))?)
            }
        };
        if read.is_empty() && !may_be_empty {
            return Err(self.cursor.error("did not find expected tag URI"));
        }
        Ok(if beginning.is_empty() { read } else { Cow::Owned([beginning, &read].concat()) })
    }

    fn uri_byte(&mut self, byte: u8, escaped: Option<&mut Vec<u8>>) {
        if let Some(escaped) = escaped {
            escaped.push(byte);
        }
        self.cursor.skip();
    }

    /// `%` and two digits.
    fn octet(&mut self) -> Result<u8, YamlError> {
        let digit = |ahead| char::from(self.cursor.byte(ahead)).to_digit(16);
        let octet = digit(1).zip(digit(2)).and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
        let octet = octet.ok_or_else(|| self.cursor.error("did not find URI escaped octet"))?;
        self.cursor.skip_many(3);
        Ok(octet)
    }

    pub(super) fn directive(&mut self) -> Result<(), YamlError> {
        self.end_document()?;
        let start = self.cursor.mark;
        self.cursor.skip();
        let name = self.name();
        if name.is_empty() {
            return Err(self.cursor.error("could not find expected directive name"));
        }
        if !self.cursor.ends_word(0) {
            return Err(self.cursor.error("found unexpected non-alphabetical character"));
        }
        self.cursor.skip_blanks();
        let token = match name {
            "YAML" => {
                let major = self.version_number()?;
                if self.cursor.byte(0) != b'.' {
                    return Err(self.cursor.error("did not find expected digit or '.' character"));
                }
                self.cursor.skip();
                Token::Version(major, self.version_number()?)
            }
            "TAG" => {
                let handle = self.handle(true)?;
                if !self.cursor.is_blank(0) {
                    return Err(self.cursor.error("did not find expected whitespace"));
                }
                self.cursor.skip_blanks();
                let prefix = self.uri("", false)?;
                if !self.cursor.ends_word(0) {
                    return Err(self.cursor.error("did not find expected whitespace or line break"));
                }
                Token::TagHandle { handle, prefix }
            }
            _ => return Err(self.cursor.error("found unknown directive name")),
        };
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !self.cursor.ends_line(0) {
            return Err(self.cursor.error("did not find expected comment or line break"));
        }
        self.cursor.line_break();
        self.push(token, start);
        Ok(())
    }

    /// One or two digits.
    fn version_number(&mut self) -> Result<u8, YamlError> {
        let start = self.cursor.mark.at;
        while self.cursor.byte(0).is_ascii_digit() {
            self.cursor.skip();
        }
        match self.cursor.since(start) {
            "" => Err(self.cursor.error("did not find expected version number")),
            digits if digits.len() > 2 => Err(self.cursor.error("found extremely long version number")),
            digits => Ok(digits.parse().unwrap_or_default()),
        }
    }
}
