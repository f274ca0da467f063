//! Reads a `fieldsV1` text piece by piece. Supports only the form that this server writes.
//!
//! The scanner finds the start and end of members. It must not know the meaning of their names.

use super::text::SELF_MEMBER;

/// The rest of the text.
pub(super) struct Scan<'t>(pub(super) &'t str);

impl<'t> Scan<'t> {
    /// Begins an object. Returns true if the field is a member itself.
    pub(super) fn begin(&mut self) -> Option<bool> {
        self.expect(b'{')?;
        if let Some(rest) = self.0.strip_prefix(SELF_MEMBER) {
            self.0 = rest;
            // In this form, a member without fields below it is an empty object.
            self.expect(b',')?;
            return Some(true);
        }
        Some(self.0.as_bytes().first() == Some(&b'}'))
    }

    /// The name of the next member between its quotes, without unescaping. `Some(None)` at the end of the object.
    pub(super) fn member(&mut self, is_first: bool) -> Option<Option<&'t str>> {
        if self.eat(b'}') {
            return Some(None);
        }
        if !is_first {
            self.expect(b',')?;
        }
        let name = self.string()?;
        self.expect(b':')?;
        Some(Some(name))
    }

    /// Skips an object.
    pub(super) fn skip(&mut self) -> Option<()> {
        self.expect(b'{')?;
        self.skip_members().map(drop)
    }

    /// Skips the members of an object and its end, and returns their text.
    pub(super) fn skip_members(&mut self) -> Option<&'t str> {
        let (bytes, mut at, mut depth) = (self.0.as_bytes(), 0, 0_usize);
        loop {
            match bytes.get(at)? {
                b'}' if depth == 0 => break,
                b'}' => depth -= 1,
                b'{' => depth += 1,
                b'"' => at += 1 + end_of_string(&bytes[at + 1..])?,
                b':' | b',' => {}
                _ => return None,
            }
            at += 1;
        }
        let members = &self.0[..at];
        self.0 = &self.0[at + 1..];
        Some(members)
    }

    /// Skips the next byte if it matches.
    fn eat(&mut self, wanted: u8) -> bool {
        let comes = self.0.as_bytes().first() == Some(&wanted);
        if comes {
            self.0 = &self.0[1..];
        }
        comes
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.eat(wanted).then_some(())
    }

    /// A string between its quotes, without unescaping.
    fn string(&mut self) -> Option<&'t str> {
        let text = self.0.strip_prefix('"')?;
        let end = end_of_string(text.as_bytes())?;
        self.0 = &text[end + 1..];
        Some(&text[..end])
    }
}

/// The index of the closing quote of a string.
fn end_of_string(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += text.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if text[at] == b'"' {
            return Some(at);
        }
        // Skips an escaped byte.
        at += 2;
    }
}
