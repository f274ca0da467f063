//! The packets of konnectivity's gRPC protocol, and their frames in a gRPC stream.
//!
//! Written by hand after the published definition (`konnectivity-client/proto/client/client.proto`). Unknown fields
//! are skipped, as in any protobuf message.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// The most bytes of a packet.
const PACKET_BYTES: usize = 1 << 20;
/// The bytes of a frame before its message: a flag for compression, and the length.
const PREFIX_BYTES: usize = 5;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// Requests a connection to an address.
    DialRequest { address: String, random: i64 },
    /// Answers a request: the id of the connection, or an error.
    DialResponse { error: String, connection: i64, random: i64 },
    /// Withdraws a request, or reports its end.
    DialClosed { random: i64 },
    /// Ends a connection.
    CloseRequest { connection: i64 },
    /// Confirms or reports the end of a connection.
    CloseResponse { connection: i64 },
    /// Bytes of a connection.
    Data { connection: i64, data: Bytes },
    /// A packet of a type that this protocol does not know.
    Other,
}

/// The number of each type, and of the field with its content.
const DIAL_REQUEST: (u64, u64) = (0, 2);
const DIAL_RESPONSE: (u64, u64) = (1, 3);
const CLOSE_REQUEST: (u64, u64) = (2, 5);
const CLOSE_RESPONSE: (u64, u64) = (3, 6);
const DATA: (u64, u64) = (4, 4);
const DIAL_CLOSED: (u64, u64) = (5, 7);

impl Packet {
    /// Writes the packet as a frame.
    pub(super) fn frame(&self) -> Bytes {
        let mut content = BytesMut::new();
        let (number, field) = match self {
            Self::DialRequest { address, random } => {
                put_bytes(&mut content, 1, b"tcp");
                put_bytes(&mut content, 2, address.as_bytes());
                put_number(&mut content, 3, random.cast_unsigned());
                DIAL_REQUEST
            }
            Self::DialResponse { error, connection, random } => {
                put_bytes(&mut content, 1, error.as_bytes());
                put_number(&mut content, 2, connection.cast_unsigned());
                put_number(&mut content, 3, random.cast_unsigned());
                DIAL_RESPONSE
            }
            Self::DialClosed { random } => {
                put_number(&mut content, 1, random.cast_unsigned());
                DIAL_CLOSED
            }
            Self::CloseRequest { connection } => {
                put_number(&mut content, 1, connection.cast_unsigned());
                CLOSE_REQUEST
            }
            Self::CloseResponse { connection } => {
                put_number(&mut content, 2, connection.cast_unsigned());
                CLOSE_RESPONSE
            }
            Self::Data { connection, data } => {
                put_number(&mut content, 1, connection.cast_unsigned());
                put_bytes(&mut content, 3, data);
                DATA
            }
            Self::Other => (u64::MAX, 15),
        };
        let mut message = BytesMut::with_capacity(content.len() + 16);
        put_number(&mut message, 1, number);
        put_bytes(&mut message, field, &content);
        let mut frame = BytesMut::with_capacity(PREFIX_BYTES + message.len());
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        frame.extend_from_slice(&message);
        frame.freeze()
    }

    /// Removes the first packet from received bytes, if it is complete.
    ///
    /// # Errors
    /// The bytes are no frame of this protocol, or the packet is too large.
    pub(super) fn take(received: &mut BytesMut) -> Result<Option<Self>, String> {
        let Some([compressed, length @ ..]) = received.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        if *compressed != 0 {
            return Err("the egress proxy compresses packets".to_owned());
        }
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > PACKET_BYTES {
            return Err(format!("the egress proxy sends a packet of more than {PACKET_BYTES} bytes"));
        }
        if received.len() - PREFIX_BYTES < length {
            return Ok(None);
        }
        received.advance(PREFIX_BYTES);
        let message = received.split_to(length).freeze();
        Self::read(message).map(Some).ok_or_else(|| "the egress proxy sends a malformed packet".to_owned())
    }

    fn read(message: Bytes) -> Option<Self> {
        let mut number = 0;
        let mut contents = Vec::new();
        each_field(message, |field, value| match (field, value) {
            (1, Value::Number(value)) => number = value,
            (_, Value::Bytes(value)) => contents.push((field, value)),
            (_, Value::Number(_)) => {}
        })?;
        let known = [DIAL_REQUEST, DIAL_RESPONSE, CLOSE_REQUEST, CLOSE_RESPONSE, DATA, DIAL_CLOSED];
        let Some(kind) = known.into_iter().find(|(known, _)| *known == number) else { return Some(Self::Other) };
        // The last one counts. Without content all its fields have their defaults.
        let content = contents.into_iter().rfind(|(field, _)| *field == kind.1);
        Self::from_content(kind, content.map(|(_, content)| content).unwrap_or_default())
    }

    fn from_content(kind: (u64, u64), content: Bytes) -> Option<Self> {
        let (mut numbers, mut texts) = ([0_i64; 4], [Bytes::new(), Bytes::new(), Bytes::new(), Bytes::new()]);
        each_field(content, |field, value| {
            let Some(at) = usize::try_from(field).ok().filter(|at| *at < numbers.len()) else { return };
            match value {
                Value::Number(value) => numbers[at] = value.cast_signed(),
                Value::Bytes(value) => texts[at] = value,
            }
        })?;
        let [_, first, second, third] = numbers;
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        Some(match kind {
            DIAL_REQUEST => Self::DialRequest { address: text(&texts[2]), random: third },
            DIAL_RESPONSE => Self::DialResponse { error: text(&texts[1]), connection: second, random: third },
            CLOSE_REQUEST => Self::CloseRequest { connection: first },
            CLOSE_RESPONSE => Self::CloseResponse { connection: second },
            DATA => Self::Data { connection: first, data: std::mem::take(&mut texts[3]) },
            DIAL_CLOSED => Self::DialClosed { random: first },
            _ => Self::Other,
        })
    }
}

enum Value {
    Number(u64),
    Bytes(Bytes),
}

/// Calls `visit` for each field of a message. Returns `None` if the message is malformed.
fn each_field(mut message: Bytes, mut visit: impl FnMut(u64, Value)) -> Option<()> {
    while message.has_remaining() {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                if length > message.len() {
                    return None;
                }
                Value::Bytes(message.split_to(length))
            }
            kind @ (1 | 5) => {
                let length = if kind == 1 { 8 } else { 4 };
                if length > message.len() {
                    return None;
                }
                message.advance(length);
                continue;
            }
            _ => return None,
        };
        visit(tag >> 3, value);
    }
    Some(())
}

fn varint(message: &mut Bytes) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        if !message.has_remaining() {
            return None;
        }
        let byte = message.get_u8();
        number |= u64::from(byte & 127) << (7 * place);
        if byte & 128 == 0 {
            return Some(number);
        }
    }
    None
}

fn put_varint(out: &mut BytesMut, mut number: u64) {
    while number >= 128 {
        out.put_u8((number & 127) as u8 | 128);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// Writes a number, unless it is the default.
fn put_number(out: &mut BytesMut, field: u64, number: u64) {
    if number != 0 {
        put_varint(out, field << 3);
        put_varint(out, number);
    }
}

fn put_bytes(out: &mut BytesMut, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_survive_their_frames() {
        let packets = [
            Packet::DialRequest { address: "[::1]:443".to_owned(), random: i64::MAX },
            Packet::DialResponse { error: "no route".to_owned(), connection: -1, random: 7 },
            Packet::DialClosed { random: 300 },
            Packet::CloseRequest { connection: 1 },
            Packet::CloseResponse { connection: i64::MIN },
            Packet::Data { connection: 5, data: Bytes::from(vec![0xff; 70_000]) },
            Packet::Data { connection: 0, data: Bytes::new() },
            Packet::Other,
        ];
        let mut received = BytesMut::new();
        for packet in &packets {
            received.extend_from_slice(&packet.frame());
        }
        for packet in &packets {
            assert_eq!(Packet::take(&mut received), Ok(Some(packet.clone())));
        }
        assert_eq!(Packet::take(&mut received), Ok(None));
        // No part of a frame is a packet.
        let close = Packet::CloseRequest { connection: 1 }.frame();
        for length in 0..close.len() {
            assert_eq!(Packet::take(&mut BytesMut::from(&close[..length])), Ok(None));
        }
    }

    /// The bytes as protoc's code for Go writes them.
    #[test]
    fn packets_have_upstreams_form() {
        let frame = Packet::DialRequest { address: "a:1".to_owned(), random: 300 }.frame();
        assert_eq!(&frame[..], b"\0\0\0\0\x0f\x12\x0d\x0a\x03tcp\x12\x03a:1\x18\xac\x02");
        let frame = Packet::Data { connection: 2, data: Bytes::from_static(b"xy") }.frame();
        assert_eq!(&frame[..], b"\0\0\0\0\x0a\x08\x04\x22\x06\x08\x02\x1a\x02xy");
    }

    #[test]
    fn malformed_frames_are_refused() {
        let refused = |bytes: &[u8]| Packet::take(&mut BytesMut::from(bytes)).unwrap_err();
        assert_eq!(refused(&[1, 0, 0, 0, 0]), "the egress proxy compresses packets");
        assert_eq!(refused(&[0, 0xff, 0xff, 0xff, 0xff]), "the egress proxy sends a packet of more than 1048576 bytes");
        for message in [&[0x08][..], &[0x12, 0x7f], &[0x0b], &[0x08, 0x04, 0x22, 0x02, 0x1a, 0x05], &[0xff; 11]] {
            let frame = [&[0, 0, 0, 0, message.len() as u8], message].concat();
            assert_eq!(refused(&frame), "the egress proxy sends a malformed packet");
        }
    }
}
