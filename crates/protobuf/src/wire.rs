//! The wire encoding below messages: tags, variable-length integers, length-delimited fields.
//!
//! This module must not know messages. Reading stays within the given bytes and never allocates. Output goes to a
//! [`Sink`], which keeps the bytes or only counts them.

use std::ops::Range;

use crate::error::WireFault;

/// The largest field number.
const MAX_FIELD: u64 = (1 << 29) - 1;

/// The encoded value of one field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wire<'a> {
    /// An integer or a boolean.
    Varint(u64),
    /// Eight bytes, least significant first.
    Fixed64(u64),
    /// Four bytes. No message of the API uses them, so they are only skipped.
    Fixed32,
    /// A string, bytes, a message, or packed integers.
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    /// The length-delimited content.
    pub(crate) fn bytes(self) -> Result<&'a [u8], WireFault> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed64(_) | Self::Fixed32 => Err(WireFault::WrongWireType),
        }
    }

    /// The integer.
    pub(crate) fn varint(self) -> Result<u64, WireFault> {
        match self {
            Self::Varint(value) => Ok(value),
            Self::Bytes(_) | Self::Fixed64(_) | Self::Fixed32 => Err(WireFault::WrongWireType),
        }
    }

    /// The text.
    pub(crate) fn text(self) -> Result<&'a str, WireFault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireFault::InvalidUtf8)
    }
}

/// Reads the fields of a message in sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The number and value of the next field. `None` at the end.
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, WireFault> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number > MAX_FIELD {
            return Err(WireFault::IllegalTag);
        }
        let value = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| WireFault::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.array::<4>()?;
                Wire::Fixed32
            }
            _ => return Err(WireFault::IllegalTag),
        };
        Ok(Some((u32::try_from(number).map_err(|_| WireFault::IllegalTag)?, value)))
    }

    /// The next integer of a packed list. `None` at the end.
    pub(crate) fn packed(&mut self) -> Result<Option<u64>, WireFault> {
        if self.0.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, WireFault> {
        let mut value = 0u64;
        for (index, &byte) in self.0.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if index == 9 && bits > 1 {
                return Err(WireFault::Overflow);
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.0.len() < 10 { WireFault::Truncated } else { WireFault::Overflow })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireFault> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireFault::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireFault> {
        self.take(N)?.try_into().map_err(|_| WireFault::Truncated)
    }
}

/// The maximum size of a field's tag and length in bytes.
const MOST_HEADER_BYTES: usize = 15;

/// Receives encoded bytes.
///
/// Length-delimited content is written between [`begin`](Sink::begin) and [`end`](Sink::end). So one pass is enough to
/// write the bytes, or to count them.
pub(crate) trait Sink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Begins length-delimited content and reserves `room` bytes for its length.
    fn open(&mut self, room: usize) -> Open;

    /// Ends length-delimited content. Returns the number of bytes by which the content was shifted because of its
    /// length's size.
    fn end(&mut self, open: Open) -> isize;

    /// The number of bytes written.
    fn position(&self) -> usize;

    /// Appends a copy of an earlier range.
    fn repeat(&mut self, written: Range<usize>);

    /// Begins content that is mostly shorter than 128 bytes.
    fn begin(&mut self) -> Open {
        self.open(1)
    }

    /// Begins content that is mostly longer than 127 bytes.
    fn begin_long(&mut self) -> Open {
        self.open(2)
    }

    /// Writes an integer.
    fn varint(&mut self, value: u64) {
        match u8::try_from(value) {
            // The usual case.
            Ok(byte @ ..0x80) => self.put(&[byte]),
            _ => {
                let (bytes, length) = varint(value);
                self.put(&bytes[..length]);
            }
        }
    }

    /// Writes a field's number and wire type.
    fn tag(&mut self, number: u32, wire_type: WireType) {
        self.varint(u64::from(number) << 3 | wire_type as u64);
    }

    /// Writes a field of bytes or a string.
    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.tag(number, WireType::Bytes);
        self.varint(bytes.len() as u64);
        self.put(bytes);
    }

    /// Writes an integer field.
    fn integer(&mut self, number: u32, value: u64) {
        self.tag(number, WireType::Varint);
        self.varint(value);
    }
}

/// The start of length-delimited content, and the number of bytes reserved for its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    start: usize,
    room: usize,
}

impl Open {
    /// The start of the content, while it is open.
    pub(crate) fn start(self) -> usize {
        self.start
    }
}

/// The wire types that are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn varint(&mut self, value: u64) {
        let low = value as u8;
        match value {
            // The most frequent case.
            0..0x80 => self.push(low),
            0x80..0x4000 => self.extend_from_slice(&[low | 0x80, (value >> 7) as u8]),
            _ => {
                let (bytes, length) = varint(value);
                self.extend_from_slice(&bytes[..length]);
            }
        }
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        let tag = number << 3 | WireType::Bytes as u32;
        let (low, high) = (tag as u8, (tag >> 7) as u8);
        // The most frequent case. One reservation covers tag, length and bytes.
        self.reserve(MOST_HEADER_BYTES + bytes.len());
        match (tag, bytes.len()) {
            (0..0x80, length @ 0..0x80) => self.extend_from_slice(&[low, length as u8]),
            (0x80..0x4000, length @ 0..0x80) => self.extend_from_slice(&[low | 0x80, high, length as u8]),
            (_, length) => {
                self.varint(tag.into());
                self.varint(length as u64);
            }
        }
        self.extend_from_slice(bytes);
    }

    fn open(&mut self, room: usize) -> Open {
        self.resize(self.len() + room, 0);
        Open { start: self.len(), room }
    }

    /// Shifts the content if its length takes another number of bytes than reserved.
    fn end(&mut self, Open { start, room }: Open) -> isize {
        let end = self.len();
        let (bytes, length) = varint((end - start) as u64);
        let content = start - room + length;
        if content > start {
            self.resize(end + content - start, 0);
        }
        if content != start {
            self.copy_within(start..end, content);
            self.truncate(content + end - start);
        }
        self[start - room..content].copy_from_slice(&bytes[..length]);
        content.cast_signed() - start.cast_signed()
    }

    fn position(&self) -> usize {
        self.len()
    }

    fn repeat(&mut self, written: Range<usize>) {
        self.extend_from_within(written);
    }
}

/// Counts the bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count(pub(crate) usize);

impl Sink for Count {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn open(&mut self, room: usize) -> Open {
        Open { start: self.0, room }
    }

    fn end(&mut self, Open { start, .. }: Open) -> isize {
        self.0 += varint_len(self.0 - start);
        0
    }

    fn position(&self) -> usize {
        self.0
    }

    fn repeat(&mut self, written: Range<usize>) {
        self.0 += written.len();
    }
}

/// The size of a length in bytes.
pub(crate) fn varint_len(value: usize) -> usize {
    varint(value as u64).1
}

/// The bytes of an integer, and the number of valid ones.
fn varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut length = 1;
    while value >= 0x80 {
        bytes[length - 1] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        length += 1;
    }
    bytes[length - 1] = value as u8;
    (bytes, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_values_read_back(number in 1u32..1 << 29, value: u64, length in 0usize..300) {
            let bytes = vec![7; length];
            let mut out = Vec::new();
            let mut count = Count::default();
            fn write(out: &mut impl Sink, number: u32, value: u64, bytes: &[u8]) {
                out.integer(number, value);
                for room in [1, 2] {
                    out.tag(number, WireType::Bytes);
                    let open = out.open(room);
                    out.put(bytes);
                    out.end(open);
                }
                out.bytes(number, bytes);
            }
            write(&mut out, number, value, &bytes);
            write(&mut count, number, value, &bytes);
            prop_assert_eq!(count.0, out.len());
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.field(), Ok(Some((number, Wire::Varint(value)))));
            for _ in 0..3 {
                prop_assert_eq!(reader.field(), Ok(Some((number, Wire::Bytes(&bytes)))));
            }
            prop_assert_eq!(reader.field(), Ok(None));
        }
    }
}
