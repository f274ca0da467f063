//! Writes YAML text from the values of a JSON text, in the layout of `go-yaml` v2.
//!
//! The style is block style throughout: two spaces per level, sequences in mappings not indented, lines folded at the
//! first space past column 80. Strings are plain if possible, literal blocks if they have line breaks, and quoted
//! otherwise.

use std::borrow::Cow;
use std::fmt;

use keelson_meta::control_characters::acts;
use keelson_meta::json::integral;

use super::glance::{CharacterClasses, ODD, SPACE, Verdict, look};
use super::order;
use super::style::{Style, is_break, must_escape, style};
use super::tape::{Kind, Tape, TapeIndex};

/// Lines are folded at the first space after this column.
const BEST_WIDTH: usize = 80;

/// Longer keys cannot be simple keys and get a leading `? `.
const MAX_SIMPLE_KEY_BYTES: usize = 128;

const INDENT: usize = 2;

/// The indentation of the lines of one text takes at most this many bytes, or [`SPREAD_FACTOR`] times the text if that
/// is more. A text beyond that has one line, unlike in `go-yaml`: below 400 levels, each word would have a line of 800
/// spaces.
const SPREAD_BYTES: usize = 256 * 1024;
const SPREAD_FACTOR: usize = 4;

/// A line break and more spaces than most indentations.
const BREAK_AND_SPACES: &[u8; 65] = b"\n                                                                ";

/// Writes the values of a tape.
///
/// Values that are not completely written are on an explicit stack, so that a document can be written in pieces. The
/// indentation of a deep document may be hundreds of times as long as its content.
#[derive(Debug)]
pub(super) struct Emitter<T> {
    tape: Tape<T>,
    /// The open sequences and mappings, outermost first.
    open: Vec<Open>,
    /// The members of the open mappings, outermost first.
    members: Vec<TapeIndex>,
    writer: Writer,
}

/// A partly written sequence or mapping.
#[derive(Clone, Copy, Debug)]
enum Open {
    Sequence {
        next: TapeIndex,
        end: TapeIndex,
        indent: usize,
    },
    /// The members are at `start` to `end` on the stack of members.
    Mapping {
        start: usize,
        next: usize,
        end: usize,
        indent: usize,
    },
}

/// The text before a nested node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    /// The document itself.
    Root,
    /// A key and a colon, in a mapping.
    Value,
    /// A dash, or the `? ` or `: ` of a long key, after which a nested node starts on the same line.
    Item,
}

impl<T: AsRef<str>> Emitter<T> {
    /// Appends a whole document to `out`, which must be empty or end in a line break.
    pub(super) fn document(tape: Tape<T>, out: Vec<u8>) -> Vec<u8> {
        let mut emitter = Self::of_document(tape, out);
        emitter.write(usize::MAX);
        emitter.writer.out
    }

    /// Writes a whole document with bidirectional controls escaped.
    pub(super) fn document_for_terminals(tape: Tape<T>) -> Vec<u8> {
        let mut emitter = Self::new(tape, Vec::new());
        emitter.writer.for_terminals = true;
        emitter.node(emitter.tape.root(), 0, Context::Root);
        emitter.write(usize::MAX);
        emitter.writer.out
    }

    /// Appends a whole document to `out` if it has at most about `most` bytes. Returns true if it does, and leaves
    /// `out` unchanged otherwise.
    pub(super) fn document_within(tape: Tape<T>, most: usize, out: &mut Vec<u8>) -> bool {
        Self::of_document(tape, std::mem::take(out)).within(most, 0, out)
    }

    /// As [`Self::document_within`], for one item of a sequence at the left margin.
    pub(super) fn item_within(tape: Tape<T>, most: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        Self::of_item(tape, std::mem::take(out)).within(most, start, out)
    }

    /// Begins an item of a sequence at the left margin, which [`Self::piece`] returns behind `out`.
    pub(super) fn of_item(tape: Tape<T>, out: Vec<u8>) -> Self {
        let mut emitter = Self::new(tape, out);
        emitter.dash(emitter.tape.root(), 0);
        emitter
    }

    fn within(mut self, most: usize, start: usize, out: &mut Vec<u8>) -> bool {
        self.write(start.saturating_add(most));
        *out = self.writer.out;
        if !self.open.is_empty() {
            out.truncate(start);
        }
        self.open.is_empty()
    }

    /// Begins a document, which [`Self::piece`] returns.
    pub(super) fn of_document(tape: Tape<T>, out: Vec<u8>) -> Self {
        let mut emitter = Self::new(tape, out);
        emitter.node(emitter.tape.root(), 0, Context::Root);
        emitter
    }

    /// The next piece of the document, of about this number of bytes. `None` at the end.
    pub(super) fn piece(&mut self, length: usize) -> Option<Vec<u8>> {
        self.write(length);
        Some(std::mem::take(&mut self.writer.out)).filter(|piece| !piece.is_empty())
    }

    /// The approximate size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.tape.bytes()
    }

    fn new(tape: Tape<T>, out: Vec<u8>) -> Self {
        let writer = Writer { out, column: 0, whitespace: true, indention: true, for_terminals: false };
        Self { tape, open: Vec::with_capacity(16), members: Vec::with_capacity(64), writer }
    }

    /// Writes until the document is complete or the output has this length.
    fn write(&mut self, length: usize) {
        loop {
            match self.open.last().copied() {
                None => return self.writer.end_line(),
                Some(_) if self.writer.out.len() >= length => return,
                Some(Open::Sequence { next, end, indent }) if next < end => {
                    let behind = self.tape.behind(next);
                    if let Some(Open::Sequence { next, .. }) = self.open.last_mut() {
                        *next = behind;
                    }
                    self.dash(next, indent);
                }
                Some(Open::Mapping { next: place, end, indent, .. }) if place < end => {
                    if let Some(Open::Mapping { next, .. }) = self.open.last_mut() {
                        *next += 1;
                    }
                    self.member(self.members[place], indent);
                }
                Some(Open::Sequence { .. }) => drop(self.open.pop()),
                Some(Open::Mapping { start, .. }) => {
                    self.members.truncate(start);
                    self.open.pop();
                }
            }
        }
    }

    /// Writes a scalar whose parent is indented by `indent`, or begins a collection.
    fn node(&mut self, value: TapeIndex, indent: usize, context: Context) {
        let below = if context == Context::Root { 0 } else { indent + INDENT };
        match self.tape.kind(value) {
            Kind::Null => self.writer.short("", "null"),
            Kind::True => self.writer.short("", "true"),
            Kind::False => self.writer.short("", "false"),
            Kind::Number => self.writer.short("", &number_text(self.tape.content(value))),
            Kind::Text => {
                let text = self.tape.content(value);
                self.writer.text(text, look(text.as_bytes()), indent + INDENT, false);
            }
            Kind::Array if self.tape.is_empty(value) => self.writer.indicator("[]", true),
            Kind::Array => {
                let (next, end) = self.tape.inside(value);
                let indent = if context == Context::Value { indent } else { below };
                self.open.push(Open::Sequence { next, end, indent });
            }
            Kind::Object if self.tape.is_empty(value) => self.writer.indicator("{}", true),
            Kind::Object => self.mapping(value, below),
        }
    }

    fn dash(&mut self, item: TapeIndex, indent: usize) {
        self.writer.indent(indent);
        self.writer.nested_indicator("-");
        self.node(item, indent, Context::Item);
    }

    /// Begins a mapping.
    fn mapping(&mut self, map: TapeIndex, indent: usize) {
        let start = self.members.len();
        let tape = &self.tape;
        self.members.extend(tape.members(map));
        let end = self.members.len();
        let members = &mut self.members[start..];
        let compare = |a: &TapeIndex, b: &TapeIndex| order::natural(tape.key(*a), tape.key(*b));
        // Most members are sorted already.
        if !members.is_sorted_by(|a, b| compare(a, b).is_le()) {
            members.sort_by(compare);
        }
        self.open.push(Open::Mapping { start, next: start, end, indent });
    }

    fn member(&mut self, member: TapeIndex, indent: usize) {
        self.writer.indent(indent);
        let key = self.tape.key(member);
        let look = look(key.as_bytes());
        if key.len() <= MAX_SIMPLE_KEY_BYTES && (look.lacks(ODD) || !key.contains(is_break)) {
            self.writer.text(key, look, indent + INDENT, true);
            self.writer.indicator(":", false);
            self.node(member, indent, Context::Value);
        } else {
            self.writer.nested_indicator("?");
            self.writer.text(key, look, indent + INDENT, false);
            self.writer.indent(indent);
            self.writer.nested_indicator(":");
            self.node(member, indent, Context::Item);
        }
    }
}

/// Returns true for a character that a terminal interprets. Line feeds and tabs are excluded, since the styles handle
/// them.
fn acts_on_a_terminal(char: char) -> bool {
    !matches!(char, '\n' | '\t') && acts(char)
}

/// Returns true if the lines of a text, which end at spaces and line breaks, would have too much indentation.
fn spreads(text: &str, indent: usize) -> bool {
    // Nearly all texts are short.
    if text.len().saturating_mul(indent) <= SPREAD_BYTES {
        return false;
    }
    let lines = text.bytes().filter(|byte| matches!(byte, b' ' | b'\n')).count();
    lines.saturating_mul(indent) > SPREAD_BYTES.max(text.len().saturating_mul(SPREAD_FACTOR))
}

/// Writes texts and indicators, and tracks the column.
#[derive(Debug)]
struct Writer {
    out: Vec<u8>,
    column: usize,
    /// True if the last character was a space that separates tokens.
    whitespace: bool,
    /// True if the current line has only indentation and indicators that start a nested node.
    indention: bool,
    /// True to escape characters that a terminal interprets, which `go-yaml` prints literally.
    for_terminals: bool,
}

impl Writer {
    fn end_line(&mut self) {
        if self.column > 0 {
            self.line_break();
        }
    }

    /// Writes a string. Lines after the first are indented by `indent`. A simple key has only one line.
    fn text(&mut self, text: &str, look: CharacterClasses, indent: usize, key: bool) {
        let stays = key || look.lacks(SPACE) || self.column + text.len() < BEST_WIDTH;
        match look.verdict(text) {
            Verdict::Plain if stays => return self.short("", text),
            Verdict::Quoted => return self.short("\"", text),
            Verdict::Plain | Verdict::Unknown => {}
        }
        let fold = !key && !spreads(text, indent);
        match style(text, key) {
            _ if self.for_terminals && text.chars().any(acts_on_a_terminal) => self.double_quoted(text, fold, indent),
            Style::Plain => self.plain(text, fold, indent),
            Style::Single => self.single_quoted(text, fold, indent),
            Style::Literal if fold => self.literal(text, indent),
            Style::Double | Style::Literal => self.double_quoted(text, fold, indent),
        }
    }

    /// Writes an ASCII text without folding, between these quotes.
    fn short(&mut self, quote: &str, text: &str) {
        let space = if self.whitespace { "" } else { " " };
        for part in [space, quote, text, quote] {
            self.out.extend_from_slice(part.as_bytes());
            self.column += part.len();
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn plain(&mut self, text: &str, fold: bool, indent: usize) {
        if !self.whitespace {
            self.put(' ');
        }
        self.words(text, fold, indent, None);
        self.whitespace = false;
        self.indention = false;
    }

    fn single_quoted(&mut self, text: &str, fold: bool, indent: usize) {
        self.indicator("'", true);
        self.words(text, fold, indent, Some('\''));
        self.indicator("'", false);
    }

    /// Writes text without line breaks, folding at single spaces and doubling one character.
    fn words(&mut self, text: &str, fold: bool, indent: usize, doubled: Option<char>) {
        let stays = !fold || self.column + text.len() <= BEST_WIDTH || !text.contains(' ');
        if stays && doubled.is_none_or(|doubled| !text.contains(doubled)) {
            return self.put_all(text);
        }
        let mut after_space = false;
        let mut rest = text.chars();
        let mut first = true;
        while let Some(char) = rest.next() {
            let next = rest.as_str().chars().next();
            let inside = !first && next.is_some_and(|next| next != ' ');
            first = false;
            if char == ' ' && fold && inside && !after_space && self.column > BEST_WIDTH {
                self.indention = false;
                self.indent(indent);
            } else {
                if doubled == Some(char) {
                    self.put(char);
                }
                self.put(char);
            }
            after_space = char == ' ';
        }
    }

    fn double_quoted(&mut self, text: &str, fold: bool, indent: usize) {
        self.indicator("\"", true);
        let mut after_space = false;
        let mut rest = text.chars();
        let mut first = true;
        while let Some(char) = rest.next() {
            let next = rest.as_str().chars().next();
            if must_escape(char) || self.for_terminals && acts_on_a_terminal(char) {
                self.escape(char);
            } else if char == ' ' && fold && !after_space && !first && next.is_some() && self.column > BEST_WIDTH {
                self.indention = false;
                self.indent(indent);
                if next == Some(' ') {
                    self.put('\\');
                }
            } else {
                self.put(char);
            }
            after_space = char == ' ';
            first = false;
        }
        self.indicator("\"", false);
    }

    fn escape(&mut self, char: char) {
        self.put('\\');
        let short = match char {
            '\0' => Some('0'),
            '\x07' => Some('a'),
            '\x08' => Some('b'),
            '\t' => Some('t'),
            '\n' => Some('n'),
            '\x0b' => Some('v'),
            '\x0c' => Some('f'),
            '\r' => Some('r'),
            '\x1b' => Some('e'),
            '"' => Some('"'),
            '\\' => Some('\\'),
            '\u{85}' => Some('N'),
            '\u{a0}' => Some('_'),
            '\u{2028}' => Some('L'),
            '\u{2029}' => Some('P'),
            _ => None,
        };
        if let Some(short) = short {
            self.put(short);
            return;
        }
        let code = u32::from(char);
        let digits = match code {
            0..=0xff => format!("x{code:02X}"),
            0x100..=0xffff => format!("u{code:04X}"),
            _ => format!("U{code:08X}"),
        };
        self.put_all(&digits);
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.indicator("|", true);
        if text.starts_with([' ', '\n']) {
            self.put('2');
        }
        match text.strip_suffix('\n') {
            None => self.put('-'),
            Some(rest) if rest.is_empty() || rest.ends_with('\n') => self.put('+'),
            Some(_) => {}
        }
        self.line_break();
        for line in text.split_inclusive('\n') {
            let words = line.trim_end_matches('\n');
            if !words.is_empty() {
                self.indent(indent);
                self.put_all(words);
                self.indention = false;
            }
            if line.ends_with('\n') {
                self.line_break();
            }
        }
    }

    /// Starts a line at `indent`, or stays on a line that has only indentation and dashes.
    fn indent(&mut self, indent: usize) {
        let breaks = !self.indention || self.column > indent || (self.column == indent && !self.whitespace);
        if breaks {
            self.column = 0;
            self.indention = true;
        }
        let missing = indent.saturating_sub(self.column);
        match BREAK_AND_SPACES.get(usize::from(!breaks)..=missing) {
            Some(start) => self.out.extend_from_slice(start),
            None => {
                self.out.extend_from_slice(if breaks { b"\n" } else { b"" });
                self.out.resize(self.out.len() + missing, b' ');
            }
        }
        self.column += missing;
        self.whitespace = true;
    }

    /// Writes an indicator that needs a space before the next token.
    fn indicator(&mut self, indicator: &str, separate: bool) {
        if separate && !self.whitespace {
            self.put(' ');
        }
        self.put_all(indicator);
        self.whitespace = false;
        self.indention = false;
    }

    /// Writes an indicator after which a nested node may start on the same line.
    fn nested_indicator(&mut self, indicator: &str) {
        let indention = self.indention;
        self.indicator(indicator, true);
        self.indention = indention;
    }

    /// Writes text without line breaks.
    fn put_all(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.column += if text.is_ascii() { text.len() } else { text.chars().count() };
    }

    fn put(&mut self, char: char) {
        self.out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        self.column += 1;
    }

    fn line_break(&mut self) {
        self.out.push(b'\n');
        self.column = 0;
        self.whitespace = true;
        self.indention = true;
    }
}

/// Numbers as Go's JSON and YAML writers format them: integral floats as integers, others in the shortest form that
/// parses back, with an exponent below 1e-4 and from 1e6.
fn number_text(number: &str) -> Cow<'_, str> {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return number.into();
    }
    let float = number.parse().unwrap_or_default();
    integral(float).map_or_else(|| float_text(float), |int| int.to_string()).into()
}

/// A float in the shortest form that parses back.
pub(super) fn float_text(float: impl fmt::Display + fmt::LowerExp) -> String {
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent @ (..-4 | 6..)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        Ok(_) | Err(_) => float.to_string(),
    }
}
