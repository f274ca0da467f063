//! Indents compact JSON, byte by byte, without a value tree.
//!
//! The result is that of Go's `MarshalIndent` with two spaces: every member on its own line, empty arrays and objects
//! on one line. Responses to browsers, `curl` and `?pretty=true` have this form, without a final line break.

use bytes::Bytes;

/// Appends the indented form of one compact JSON value. Lines after the first are indented by `depth` levels, for an
/// item within a list. Cost: one pass. The input must be valid and without whitespace.
pub fn write(compact: &[u8], depth: usize, out: &mut Vec<u8>) {
    let mut writer = Writer { at: 0, depth };
    writer.write(compact, usize::MAX, out);
}

/// The length of the indented form, computed without writing it.
pub fn length(compact: &[u8]) -> usize {
    let (mut length, mut at, mut depth) = (0, 0, 0_usize);
    while let Some(&byte) = compact.get(at) {
        let (bytes, read) = match byte {
            b'"' => {
                let bytes = string_end(compact, at) - at;
                (bytes, bytes)
            }
            b'{' | b'[' if matches!(compact.get(at + 1), Some(b'}' | b']')) => (2, 2),
            b'{' | b'[' => {
                depth += 1;
                (2 + 2 * depth, 1)
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                (2 + 2 * depth, 1)
            }
            b',' => (2 + 2 * depth, 1),
            b':' => (2, 1),
            _ => (1, 1),
        };
        length += bytes;
        at += read;
    }
    length
}

/// Writes the indented form of one compact JSON value in pieces. For a deeply nested value it may be hundreds of times
/// as long as the compact form.
#[derive(Debug)]
pub struct Pieces {
    compact: Bytes,
    writer: Writer,
    /// The bytes before the value.
    before: Vec<u8>,
}

impl Pieces {
    /// Begins a value.
    pub fn new(compact: Bytes) -> Self {
        Self { compact, writer: Writer { at: 0, depth: 0 }, before: Vec::new() }
    }

    /// The next piece, of at least `length` bytes unless it is the last.
    pub fn next(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut piece = std::mem::take(&mut self.before);
        self.writer.write(&self.compact, length, &mut piece);
        Some(piece).filter(|piece| !piece.is_empty())
    }
}

/// The state of writing a value.
#[derive(Debug)]
struct Writer {
    at: usize,
    depth: usize,
}

impl Writer {
    /// Writes until the value is complete or the output has this length.
    fn write(&mut self, compact: &[u8], length: usize, out: &mut Vec<u8>) {
        while let Some(&byte) = compact.get(self.at) {
            if out.len() >= length {
                return;
            }
            match byte {
                b'"' => {
                    let end = string_end(compact, self.at);
                    out.extend_from_slice(&compact[self.at..end]);
                    self.at = end;
                    continue;
                }
                b'{' | b'[' if matches!(compact.get(self.at + 1), Some(b'}' | b']')) => {
                    out.extend_from_slice(&compact[self.at..self.at + 2]);
                    self.at += 1;
                }
                b'{' | b'[' => {
                    self.depth += 1;
                    out.push(byte);
                    new_line(self.depth, out);
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    new_line(self.depth, out);
                    out.push(byte);
                }
                b',' => {
                    out.push(byte);
                    new_line(self.depth, out);
                }
                b':' => out.extend_from_slice(b": "),
                _ => out.push(byte),
            }
            self.at += 1;
        }
    }
}

/// Writes a list item by item. The concatenated output is the indented form of the whole list. The writer has no state,
/// so parts of a list can be written in parallel.
#[derive(Clone, Copy, Debug)]
pub struct ListWriter;

impl ListWriter {
    /// Appends the head, given as compact JSON up to and including the opening bracket of the items.
    pub fn start(head: &[u8], out: &mut Vec<u8>) -> Self {
        write(&head[..head.len().saturating_sub(1)], 0, out);
        out.push(b'[');
        Self
    }

    /// Appends an item, given as compact JSON, if it has at most about `most` bytes. Returns true if it does, and
    /// leaves `out` unchanged otherwise. `first` marks the first item.
    pub fn item_within(self, compact: &[u8], first: bool, most: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        begin_item(first, out);
        let mut writer = Writer { at: 0, depth: ITEM_DEPTH };
        writer.write(compact, start.saturating_add(most), out);
        let is_written = writer.at >= compact.len();
        if !is_written {
            out.truncate(start);
        }
        is_written
    }

    /// The pieces of an item, given as compact JSON.
    pub fn pieces(self, compact: Bytes, first: bool) -> Pieces {
        let mut before = Vec::new();
        begin_item(first, &mut before);
        Pieces { compact, writer: Writer { at: 0, depth: ITEM_DEPTH }, before }
    }

    /// Appends the end. `empty` marks a list without items.
    pub fn finish(self, empty: bool, out: &mut Vec<u8>) {
        if !empty {
            new_line(1, out);
        }
        out.extend_from_slice(b"]\n}");
    }
}

/// Items are in an array in an object.
const ITEM_DEPTH: usize = 2;

fn begin_item(first: bool, out: &mut Vec<u8>) {
    if !first {
        out.push(b',');
    }
    new_line(ITEM_DEPTH, out);
}

fn new_line(depth: usize, out: &mut Vec<u8>) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

/// The position after the string that starts at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        match text.get(at) {
            None => return text.len(),
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}
