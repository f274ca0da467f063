//! A fast reader of compact JSON that is known to be valid.
//!
//! The cursor does not validate the text and builds no tree. It skips values that the caller does not need: in one step
//! if their extents are known, otherwise byte by byte. On invalid JSON the results are wrong, but the cursor never
//! panics and always ends.

use std::borrow::Cow;

/// The approximate number of bytes of an object for each array or object in it, for reserving memory.
const BYTES_PER_EXTENT: usize = 32;

/// A position in compact, valid JSON.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    extents: &'a [Extent],
    /// The index of the extent from which a search starts: no earlier one begins at the cursor or after it.
    place: usize,
}

/// The start and end of an array or object.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u32,
    end: u32,
    /// The index of the first extent that begins after the end of this one.
    next: u32,
}

/// The extents of the arrays and objects in a text: of all of them, or only of some.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    /// In order of their starts. While an extent is open, its end holds the index of its parent.
    known: Vec<Extent>,
    open: u32,
}

/// The content of a JSON string, without the quotes and with its escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawText<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// Creates a cursor on the token at `at`.
    #[inline]
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, extents: &[], place: 0 }
    }

    /// Creates a cursor on a text with known extents.
    #[inline]
    pub(crate) fn over(bytes: &'a [u8], at: usize, extents: &'a Extents) -> Self {
        Self { bytes, at, extents: &extents.known, place: 0 }
    }

    /// The position of the cursor.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// The byte at the cursor. 0 at the end, which starts no token.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    /// Advances to a later position.
    #[inline]
    pub(crate) fn advance(&mut self, to: usize) {
        self.at = to.max(self.at);
    }

    /// Steps over one byte.
    #[inline]
    pub fn step(&mut self) {
        self.at += 1;
    }

    /// Skips `expected`. Returns false if the text has something else at the cursor.
    #[inline]
    pub fn take(&mut self, expected: &[u8]) -> bool {
        let there = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(expected));
        if there {
            self.at += expected.len();
        }
        there
    }

    /// Returns the next key of the current object and moves to its value, which the caller must skip. Returns `None` at
    /// the end of the object.
    #[inline]
    pub fn key(&mut self) -> Option<RawText<'a>> {
        if self.peek() == b',' {
            self.at += 1;
        }
        if self.peek() != b'"' {
            self.at += 1;
            return None;
        }
        let key = self.string();
        self.at += 1;
        Some(key)
    }

    /// Steps over the string at the cursor.
    #[inline]
    pub fn string(&mut self) -> RawText<'a> {
        let start = self.at + 1;
        self.skip_string();
        RawText(self.bytes.get(start..self.at.saturating_sub(1)).unwrap_or_default())
    }

    /// Steps over the value at the cursor and returns its bytes.
    #[inline]
    pub fn raw(&mut self) -> &'a [u8] {
        let start = self.at;
        self.skip();
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// Steps over the value at the cursor and returns the text of a scalar. `None` for null, arrays and objects.
    pub fn scalar(&mut self) -> Option<Cow<'a, str>> {
        match self.peek() {
            b'"' => Some(self.string().decode()),
            b'n' | b'{' | b'[' => {
                self.skip();
                None
            }
            _ => Some(String::from_utf8_lossy(self.raw())),
        }
    }

    /// Steps over the value at the cursor.
    #[inline]
    pub fn skip(&mut self) {
        match self.peek() {
            b'"' => self.skip_string(),
            b'{' | b'[' => self.skip_container(),
            _ => {
                while !matches!(self.peek(), b',' | b'}' | b']' | 0) {
                    self.at += 1;
                }
            }
        }
    }

    fn skip_container(&mut self) {
        if let Some(extent) = self.extent() {
            (self.at, self.place) = (extent.end as usize, extent.next as usize);
            return;
        }
        let mut depth = 0usize;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// The extent of the array or object at the cursor, if known. Successive searches only move forward.
    #[inline]
    fn extent(&mut self) -> Option<Extent> {
        while let Some(extent) = self.extents.get(self.place) {
            if extent.start as usize >= self.at {
                return Some(*extent).filter(|extent| extent.start as usize == self.at);
            }
            self.place += 1;
        }
        None
    }

    #[inline]
    fn skip_string(&mut self) {
        self.at += 1;
        loop {
            match self.bytes.get(self.at..).and_then(quote_or_backslash) {
                None => {
                    self.at = self.bytes.len();
                    return;
                }
                Some(distance) => self.at += distance,
            }
            if self.peek() == b'"' {
                self.at += 1;
                return;
            }
            self.at += 2;
        }
    }
}

impl Extents {
    /// Reserves memory for the extents of a text of about this length.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { known: Vec::with_capacity(bytes / BYTES_PER_EXTENT + 1), open: 0 }
    }

    /// The memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.known.len() * size_of::<Extent>()
    }

    /// Frees memory beyond this number of bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.known.shrink_to(bytes / size_of::<Extent>());
    }

    /// Clears the extents for another text.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.open = 0;
    }

    /// Records the start of an array or object.
    #[inline]
    pub(crate) fn open(&mut self, at: usize) {
        let place = self.known.len();
        self.known.push(Extent { start: narrow(at), end: self.open, next: 0 });
        self.open = narrow(place);
    }

    /// Records the end of the innermost open array or object.
    #[inline]
    pub(crate) fn close(&mut self, at: usize) {
        let next = narrow(self.known.len());
        if let Some(extent) = self.known.get_mut(self.open as usize) {
            extent.next = next;
            self.open = std::mem::replace(&mut extent.end, narrow(at));
        }
    }
}

/// Converts an offset. Objects have a few MiB, so offsets fit into 32 bits.
#[inline]
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl<'a> RawText<'a> {
    /// Returns true if this is the key `name`, whose JSON form must not have escapes.
    #[inline]
    pub fn is(self, name: &str) -> bool {
        // Most keys of equal length differ in the first byte. Comparing it first avoids the call for the rest.
        self.0.len() == name.len() && self.0.first() == name.as_bytes().first() && self.0 == name.as_bytes()
    }

    /// Returns true if this is one of the keys `names`, whose JSON forms must not have escapes.
    pub fn is_any(self, names: &[&str]) -> bool {
        names.iter().any(|name| self.is(name))
    }

    /// Returns true if the string has this content, with or without escapes.
    pub fn stands_for(self, text: &str) -> bool {
        self.0 == text.as_bytes() || (self.0.contains(&b'\\') && self.decode() == text)
    }

    /// The bytes between the quotes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The bytes of a text without escapes.
    #[inline]
    pub fn plain(self) -> Option<&'a [u8]> {
        (!self.0.contains(&b'\\')).then_some(self.0)
    }

    /// The unescaped text.
    pub fn decode(self) -> Cow<'a, str> {
        if self.0.contains(&b'\\') {
            let quoted = [b"\"", self.0, b"\""].concat();
            return Cow::Owned(serde_json::from_slice(&quoted).unwrap_or_default());
        }
        std::str::from_utf8(self.0).map_or_else(|_| String::from_utf8_lossy(self.0), Cow::Borrowed)
    }
}

/// The distance to the next `"` or `\`, searched eight bytes at a time.
#[inline]
pub(crate) fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    find(bytes, |word| zero_bytes(word ^ repeat(b'"')) | zero_bytes(word ^ repeat(b'\\')))
}

/// The distance to the next byte that does not stand for itself in a string: `"`, `\` or a control character.
#[inline]
pub(crate) fn not_plain(bytes: &[u8]) -> Option<usize> {
    let controls = |word: u64| word.wrapping_sub(repeat(0x20)) & !word & repeat(0x80);
    find(bytes, |word| controls(word) | zero_bytes(word ^ repeat(b'"')) | zero_bytes(word ^ repeat(b'\\')))
}

/// The distance to the first byte whose top bit `marks` sets. `marks` may set bits of later bytes wrongly.
#[inline]
fn find(bytes: &[u8], marks: impl Fn(u64) -> u64) -> Option<usize> {
    let mut rest = bytes;
    while let Some((word, behind)) = rest.split_first_chunk() {
        let found = marks(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(bytes.len() - rest.len() + (found.trailing_zeros() / 8) as usize);
        }
        rest = behind;
    }
    // Fills up with spaces, which `marks` never marks.
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    let found = marks(u64::from_le_bytes(last));
    (found != 0).then(|| bytes.len() - rest.len() + (found.trailing_zeros() / 8) as usize)
}

#[inline]
const fn repeat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Sets the top bit of every zero byte. Only the lowest set bit is reliable, and callers use only that one.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeat(0x01)) & !word & repeat(0x80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_walked() {
        let text = br#"{"a":"x\"}","bcdefghijkl":[{"y":"]"},2],"c":-1.5,"d":{}}"#;
        let mut cursor = Cursor::new(text, 1);
        let mut seen = Vec::new();
        while let Some(key) = cursor.key() {
            seen.push((key.decode().into_owned(), String::from_utf8_lossy(cursor.raw()).into_owned()));
        }
        let expected = [("a", r#""x\"}""#), ("bcdefghijkl", r#"[{"y":"]"},2]"#), ("c", "-1.5"), ("d", "{}")].map(own);
        assert_eq!(seen, expected);
        assert_eq!(cursor.position(), text.len());
    }

    fn own((key, value): (&str, &str)) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn quotes_are_found_at_every_distance() {
        for distance in 0..40 {
            let mut text = vec![b'x'; distance];
            assert_eq!((quote_or_backslash(&text), not_plain(&text)), (None, None));
            text.extend_from_slice(b"\\\"xxxxxxxx");
            assert_eq!((quote_or_backslash(&text), not_plain(&text)), (Some(distance), Some(distance)));
            for (byte, is_plain) in [(0, false), (0x1f, false), (0x20, true), (0x7f, true), (0x80, true), (0xff, true)]
            {
                text[distance] = byte;
                assert_eq!(not_plain(&text), Some(distance + usize::from(is_plain)), "{byte}");
            }
        }
    }

    #[test]
    fn broken_text_ends_the_walk() {
        for text in [&b"{\"a"[..], b"{\"a\\", b"{\"a\":", b"{\"a\":[[", b"{,", b"", b"{\"a\":]]]]"] {
            let mut cursor = Cursor::new(text, 1);
            while cursor.key().is_some() {
                cursor.skip();
            }
        }
    }
}
