//! Indented JSON from compact JSON, byte by byte, without a value tree.
//!
//! The form is that of Go's `MarshalIndent` with two spaces: every member on its own line, empty arrays and objects on
//! one line. Answers to browsers and `curl` and to `?pretty=true` have it, without a final line break.

/// Appends the indented form of one compact JSON value. Lines after the first start `depth` levels in, so that an item
/// can be written into the middle of a list. Cost: one pass; the input must be valid and without whitespace.
pub fn write(compact: &[u8], depth: usize, out: &mut Vec<u8>) {
    let mut depth = depth;
    let mut at = 0;
    while let Some(&byte) = compact.get(at) {
        match byte {
            b'"' => {
                let end = string_end(compact, at);
                out.extend_from_slice(&compact[at..end]);
                at = end;
                continue;
            }
            b'{' | b'[' if matches!(compact.get(at + 1), Some(b'}' | b']')) => {
                out.extend_from_slice(&compact[at..at + 2]);
                at += 1;
            }
            b'{' | b'[' => {
                depth += 1;
                out.push(byte);
                new_line(depth, out);
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(depth, out);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(depth, out);
            }
            b':' => out.extend_from_slice(b": "),
            _ => out.push(byte),
        }
        at += 1;
    }
}

/// Writes a list item by item. What it appends, taken together, is the indented form of the whole list. It keeps nothing, so
/// that parts of a list can be written beside each other.
#[derive(Clone, Copy, Debug)]
pub struct ListWriter;

impl ListWriter {
    /// Appends what stands before the items, given as compact JSON up to and including the bracket that opens them.
    pub fn start(head: &[u8], out: &mut Vec<u8>) -> Self {
        write(&head[..head.len().saturating_sub(1)], 0, out);
        out.push(b'[');
        Self
    }

    /// Appends an item, given as compact JSON; `first` if none stands before it.
    pub fn item(self, compact: &[u8], first: bool, out: &mut Vec<u8>) {
        if !first {
            out.push(b',');
        }
        new_line(2, out);
        write(compact, 2, out);
    }

    /// Appends what stands after the items; `empty` if there are none.
    pub fn finish(self, empty: bool, out: &mut Vec<u8>) {
        if !empty {
            new_line(1, out);
        }
        out.extend_from_slice(b"]\n}");
    }
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
