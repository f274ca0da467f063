//! The encoding below the messages: tags, variable-length integers, length-delimited fields.
//!
//! Knows nothing of messages. Reading never goes beyond the bytes given and never allocates; writing goes to a [`Sink`],
//! which either keeps the bytes or only counts them.

use crate::error::WireFault;

/// The largest field number there is.
const MAX_FIELD: u64 = (1 << 29) - 1;

/// The value of one field as it stands in the bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wire<'a> {
    /// An integer or a boolean.
    Varint(u64),
    /// Eight bytes, least significant first.
    Fixed64(u64),
    /// Four bytes; no message of the API uses them, so only skipped.
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

/// Reads the fields of a message one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next field's number and value, `None` at the end.
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

    /// The next integer of a packed list, `None` at the end.
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
