//! A YAML text and the current position in it. Lines are counted as YAML 1.1 does.
//!
//! The text is read byte by byte. Beyond its end, bytes read as zero. No valid text contains a zero byte, since
//! [`check_characters`] refuses control characters first.

use super::YamlError;

/// A place in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// In bytes.
    pub(super) at: usize,
    /// In characters.
    pub(super) index: usize,
    /// Line breaks before it.
    pub(super) line: usize,
    /// Characters before it in its line.
    pub(super) column: usize,
}

impl Mark {
    /// The line number, counted from one.
    pub(super) fn line_number(self) -> usize {
        self.line + 1
    }
}

/// Refuses characters that YAML does not allow.
///
/// # Errors
/// The first control character except tab, line feed, carriage return and next line, and the first noncharacter.
pub(super) fn check_characters(text: &str) -> Result<(), YamlError> {
    // Checks bytes first, since most texts are printable ASCII.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r');
    if text.bytes().fold(true, |plain, byte| plain & is_plain(byte)) {
        return Ok(());
    }
    let is_allowed = |char: char| matches!(char, ' '..='~' | '\n' | '\t' | '\r' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}');
    match text.find(|char| !is_allowed(char)) {
        None => Ok(()),
        Some(_) => Err(YamlError { line: 0, problem: "control characters are not allowed".to_owned() }),
    }
}

/// A text with the current position.
pub(super) struct Cursor<'t> {
    text: &'t str,
    pub(super) mark: Mark,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, mark: Mark::default() }
    }

    /// The whole text.
    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    /// The text from a position to the current one.
    pub(super) fn since(&self, start: usize) -> &'t str {
        self.text.get(start..self.mark.at).unwrap_or_default()
    }

    /// The byte at this distance.
    #[inline]
    pub(super) fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.mark.at + ahead).copied().unwrap_or(0)
    }

    #[inline]
    pub(super) fn is_end(&self) -> bool {
        self.mark.at >= self.text.len()
    }

    /// Returns true if a space or tab is at this distance.
    #[inline]
    pub(super) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t')
    }

    /// Returns true if a line break is at this distance. NEL, LS and PS are line breaks in YAML 1.1.
    #[inline]
    pub(super) fn is_break(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            b'\n' | b'\r' => true,
            0xc2 => self.byte(ahead + 1) == 0x85,
            0xe2 => self.byte(ahead + 1) == 0x80 && matches!(self.byte(ahead + 2), 0xa8 | 0xa9),
            _ => false,
        }
    }

    /// Returns true if a line ends at this distance.
    #[inline]
    pub(super) fn ends_line(&self, ahead: usize) -> bool {
        self.byte(ahead) == 0 || self.is_break(ahead)
    }

    /// Returns true if a word ends at this distance.
    #[inline]
    pub(super) fn ends_word(&self, ahead: usize) -> bool {
        self.is_blank(ahead) || self.ends_line(ahead)
    }

    /// Returns true if `---` or `...` begins a line here.
    #[inline]
    pub(super) fn is_document_indicator(&self) -> bool {
        self.mark.column == 0 && (self.is_indicator(b'-') || self.is_indicator(b'.'))
    }

    /// Returns true if three of these bytes begin a line here.
    pub(super) fn is_indicator(&self, byte: u8) -> bool {
        self.mark.column == 0 && (0..3).all(|ahead| self.byte(ahead) == byte) && self.ends_word(3)
    }

    /// Skips one character that is not a line break.
    #[inline]
    pub(super) fn skip(&mut self) {
        let width = match self.byte(0) {
            0..=0x7f => 1,
            0x80..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
        };
        self.mark.at += width;
        self.mark.index += 1;
        self.mark.column += 1;
    }

    pub(super) fn skip_many(&mut self, count: usize) {
        (0..count).for_each(|_| self.skip());
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip();
        }
    }

    /// Skips a comment, if one begins here.
    pub(super) fn skip_comment(&mut self) {
        if self.byte(0) == b'#' {
            while !self.ends_line(0) {
                self.skip();
            }
        }
    }

    /// Skips a line break, if there is one, and returns the character it represents.
    pub(super) fn line_break(&mut self) -> Option<char> {
        let (width, count, char) = match (self.byte(0), self.byte(1)) {
            (b'\r', b'\n') => (2, 2, '\n'),
            (b'\r' | b'\n', _) => (1, 1, '\n'),
            (0xc2, 0x85) => (2, 1, '\n'),
            (0xe2, 0x80) if self.byte(2) == 0xa8 => (3, 1, '\u{2028}'),
            (0xe2, 0x80) if self.byte(2) == 0xa9 => (3, 1, '\u{2029}'),
            _ => return None,
        };
        self.mark.at += width;
        self.mark.index += count;
        self.mark.column = 0;
        self.mark.line += 1;
        Some(char)
    }

    /// An error at this position.
    pub(super) fn error(&self, problem: &str) -> YamlError {
        // As `go-yaml`, which omits the number of the first line.
        let line = if self.mark.line == 0 { 0 } else { self.mark.line_number() };
        YamlError { line, problem: problem.to_owned() }
    }
}
