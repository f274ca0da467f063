//! Parts that many objects have alike, kept once for all of them.
//!
//! Which fields have which owner (`fieldsV1` in `metadata.managedFields`) is often half of an object, and the same in all objects that
//! came about in the same way. Whoever keeps many objects has these members cut out of their bytes and holds each text once. What is
//! left is still JSON, the skeleton, into which the parts are put back while it is copied.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::{MANAGED_FIELDS, METADATA_START, StoredObject};
use crate::cursor::Cursor;

/// The member that is cut out, where it is not the first one of its object, which it never is.
const MEMBER: &str = "fieldsV1";
/// What is shorter is not worth the pointer to it.
const LEAST_BYTES: usize = 128;

/// A text that was cut out, and the place in the skeleton where it goes.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) at: u32,
    pub(super) text: Arc<[u8]>,
}

/// What was cut out of an object, in order. `None` of most.
pub(super) type Parts = Option<Arc<[Part]>>;

impl StoredObject {
    /// The same object without its own copy of what others have, too: `keep` is shown each such text, and gives the one that is kept of
    /// it. `cursor` stands at the beginning of the text. `None` where nothing is cut out.
    pub(super) fn cut(&self, cursor: Cursor<'_>, mut keep: impl FnMut(&[u8]) -> Arc<[u8]>) -> Option<Self> {
        let members = members(cursor, self.body as usize);
        if members.is_empty() || self.parts.is_some() {
            return None;
        }
        let cut: usize = members.iter().map(Range::len).sum();
        let mut skeleton = Vec::with_capacity(self.bytes.len() - cut);
        let (mut parts, mut from) = (Vec::with_capacity(members.len()), 0);
        for member in members {
            skeleton.extend_from_slice(&self.bytes[from..member.start]);
            let at = u32::try_from(skeleton.len()).ok()?;
            parts.push(Part { at, text: keep(&self.bytes[member.clone()]) });
            from = member.end;
        }
        skeleton.extend_from_slice(&self.bytes[from..]);
        Some(Self { bytes: Bytes::from(skeleton), parts: Some(parts.into()), ..*self })
    }

    /// The object's text without what it shares with others: JSON that lacks nothing but which fields have which owner.
    pub fn skeleton(&self) -> &[u8] {
        &self.bytes
    }

    /// The same as text.
    pub fn skeleton_text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// Where in the skeleton a place of the text is, which is in no shared part.
    pub fn place_of(&self, in_text: u32) -> u32 {
        let mut gone = 0;
        for part in self.parts.as_deref().unwrap_or_default() {
            if part.at + gone >= in_text {
                break;
            }
            gone += u32::try_from(part.text.len()).unwrap_or(u32::MAX);
        }
        in_text.saturating_sub(gone)
    }

    /// Appends what of the text stands at these places of the skeleton.
    pub(super) fn write_range(&self, range: Range<usize>, out: &mut Vec<u8>) {
        self.pieces(range).for_each(|piece| out.extend_from_slice(piece));
    }

    /// The pieces that the text is put together of, from one place of the skeleton to another.
    pub(super) fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let (mut parts, mut from, mut part) = (self.parts.as_deref().unwrap_or_default().iter(), range.start, None);
        let mut is_over = false;
        std::iter::from_fn(move || {
            if let Some(text) = part.take() {
                return Some(text);
            }
            if is_over {
                return None;
            }
            let next = parts.find(|part| range.contains(&(part.at as usize)));
            let end = next.map_or(range.end, |part| part.at as usize);
            (part, is_over) = (next.map(|part| &*part.text), next.is_none());
            Some(&self.bytes[std::mem::replace(&mut from, end)..end])
        })
    }
}

/// Where the members are that can be cut out, each with the comma before it.
fn members(mut cursor: Cursor<'_>, body: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    cursor.advance(body);
    if !cursor.take(METADATA_START) || !cursor.take(b"{") {
        return found;
    }
    while let Some(key) = cursor.key() {
        if !key.is(MANAGED_FIELDS) || cursor.peek() != b'[' {
            cursor.skip();
            continue;
        }
        cursor.step();
        while matches!(cursor.peek(), b',' | b'{') {
            cursor.take(b",");
            if !cursor.take(b"{") {
                break;
            }
            loop {
                let start = cursor.position();
                let has_comma = cursor.peek() == b',';
                let Some(key) = cursor.key() else { break };
                let is_it = key.is(MEMBER) && cursor.peek() == b'{';
                cursor.skip();
                if is_it && has_comma && cursor.position() - start >= LEAST_BYTES {
                    found.push(start..cursor.position());
                }
            }
        }
        return found;
    }
    found
}
