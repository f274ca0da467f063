//! Shares the parts of objects that are equal in many objects.
//!
//! Field ownership (`fieldsV1` in `metadata.managedFields`) is often half of an object, and equal in all objects with
//! the same history. Caches cut these members out of the bytes and keep each text once. The remaining text is still
//! JSON; it is called the skeleton. Copying an object inserts the parts again.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::{MANAGED_FIELDS, METADATA_START, StoredObject};
use crate::cursor::Cursor;

/// The member that is cut out. If it is the first of its object, which does not occur, it stays.
const MEMBER: &str = "fieldsV1";
/// The minimum size of a shared part in bytes. Sharing a shorter one would save less than its pointer takes.
const LEAST_BYTES: usize = 128;

/// A shared text, and its offset in the skeleton.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) at: u32,
    pub(super) text: Arc<[u8]>,
}

/// The shared parts of an object, in order. `None` for most objects.
pub(super) type Parts = Option<Arc<[Part]>>;

impl StoredObject {
    /// The object with its repeated parts shared: `keep` receives the text of each such part and returns the shared
    /// copy. `cursor` is at the start of the text. `None` if the object has no such part.
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

    /// The object's JSON without shared parts. It lacks only field ownership.
    pub fn skeleton(&self) -> &[u8] {
        &self.bytes
    }

    /// The skeleton as text.
    pub fn skeleton_text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// Converts an offset in the full text to an offset in the skeleton. It must not be within a shared part.
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

    /// Appends the text of a range of the skeleton.
    pub(super) fn write_range(&self, range: Range<usize>, out: &mut Vec<u8>) {
        self.pieces(range).for_each(|piece| out.extend_from_slice(piece));
    }

    /// The pieces of the text for a range of the skeleton.
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

/// The ranges of the members to cut out, each with its preceding comma.
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
