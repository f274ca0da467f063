//! The frames of SPDY/3.1 that a session with a container needs.
//!
//! The client side opens streams and reads data. It writes header blocks as stored blocks of zlib, which every inflater
//! reads. Received header blocks only accept a stream, so they are skipped. Programs that use SPDY with kubelets rely
//! on the flow control of TCP.

use http::header::{HeaderName, UPGRADE};
use http::{HeaderMap, Response};

/// The header field with the protocol inside SPDY.
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// The size of a frame header in bytes.
pub(super) const HEAD_BYTES: usize = 8;

/// The first bytes of a control frame: the control bit, and the version.
const CONTROL: u16 = 0x8003;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
/// The flag of the last frame of a stream.
const FIN: u8 = 1;
/// The header of a zlib stream without a dictionary.
const ZLIB: [u8; 2] = [0x78, 0x01];
/// An empty stored block, which makes an inflater output all data so far.
const FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// Returns true for a response that switches to SPDY.
pub(super) fn is_chosen<B>(response: &Response<B>) -> bool {
    let fields: &HeaderMap = response.headers();
    fields.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"SPDY/3.1"))
}

/// The header of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameHead {
    /// The data of a stream follows.
    Data { stream: u32, is_last: bool, bytes: usize },
    /// A control frame, whose content follows.
    Control { kind: ControlKind, bytes: usize },
}

/// The kind of a control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlKind {
    /// The peer accepts a stream.
    Reply,
    /// The peer resets a stream.
    Reset,
    /// The peer requests a reply.
    Ping,
    /// The peer closes the connection.
    GoAway,
    /// A frame without effect here.
    Other,
}

impl FrameHead {
    /// Parses a frame header.
    pub(super) fn read(head: [u8; HEAD_BYTES]) -> Self {
        let [first, second, third, fourth, flags, length @ ..] = head;
        let bytes = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
        if first & 0x80 == 0 {
            let stream = u32::from_be_bytes([first, second, third, fourth]);
            return Self::Data { stream, is_last: flags & FIN != 0, bytes };
        }
        let kind = match u16::from_be_bytes([third, fourth]) {
            SYN_REPLY => ControlKind::Reply,
            RST_STREAM => ControlKind::Reset,
            PING => ControlKind::Ping,
            GOAWAY => ControlKind::GoAway,
            _ => ControlKind::Other,
        };
        Self::Control { kind, bytes }
    }
}

/// The stream id in a reply or reset, or the id of a ping.
pub(super) fn subject(content: &[u8]) -> Option<u32> {
    let first = content.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*first) & 0x7fff_ffff)
}

/// Writes the frames of a client, in their order.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The id of the last stream.
    last: u32,
}

impl Writer {
    /// A frame that opens a stream of this type, with the stream's id.
    pub(super) fn open(&mut self, stream_type: &str) -> (u32, Vec<u8>) {
        const NAME: &[u8] = b"streamtype";
        let is_first = self.last == 0;
        self.last += if is_first { 1 } else { 2 };
        let mut fields = 1u32.to_be_bytes().to_vec();
        for text in [NAME, stream_type.as_bytes()] {
            fields.extend_from_slice(&(text.len() as u32).to_be_bytes());
            fields.extend_from_slice(text);
        }
        let length = u16::try_from(fields.len()).unwrap_or(u16::MAX);
        let mut block = if is_first { ZLIB.to_vec() } else { Vec::new() };
        block.push(0);
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(&(!length).to_le_bytes());
        block.extend_from_slice(&fields);
        block.extend_from_slice(&FLUSH);
        let mut content = self.last.to_be_bytes().to_vec();
        // No associated stream, no priority, no slot.
        content.extend_from_slice(&[0; 6]);
        content.extend_from_slice(&block);
        (self.last, control(SYN_STREAM, &content))
    }
}

/// The header of a data frame.
pub(super) fn data_head(stream: u32, is_last: bool, bytes: usize) -> [u8; HEAD_BYTES] {
    let [a, b, c, d] = (stream & 0x7fff_ffff).to_be_bytes();
    let [_, x, y, z] = u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    [a, b, c, d, if is_last { FIN } else { 0 }, x, y, z]
}

/// The reply to a ping.
pub(super) fn ping(number: u32) -> Vec<u8> {
    control(PING, &number.to_be_bytes())
}

fn control(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = CONTROL.to_be_bytes().to_vec();
    frame.extend_from_slice(&kind.to_be_bytes());
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    // No flags, and three bytes of length.
    frame.extend_from_slice(&(length & 0x00ff_ffff).to_be_bytes());
    frame.extend_from_slice(content);
    frame
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn streams_are_opened_with_header_blocks_of_one_zlib_stream() {
        let mut writer = Writer::default();
        let (first, opened) = writer.open("error");
        assert_eq!((first, &opened[..8]), (1, &[0x80, 3, 0, 1, 0, 0, 0, (opened.len() - 8) as u8][..]));
        let (second, next) = writer.open("stdin");
        assert_eq!((second, &next[8..12]), (3, &[0, 0, 0, 3][..]));
        // All header blocks of a connection are one zlib stream, so the second block has no zlib header.
        let blocks = [&opened[18..], &next[18..]].concat();
        let mut fields = Vec::new();
        let _ = flate2::read::ZlibDecoder::new(&blocks[..]).read_to_end(&mut fields);
        let expected =
            |kind: &str| [&[0, 0, 0, 1, 0, 0, 0, 10][..], b"streamtype", &[0, 0, 0, 5], kind.as_bytes()].concat();
        assert_eq!(fields, [expected("error"), expected("stdin")].concat());
    }

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = FrameHead::read(data_head(7, true, 70_000));
        assert_eq!(head, FrameHead::Data { stream: 7, is_last: true, bytes: 70_000 });
        let sent = ping(2);
        let head = FrameHead::read(*sent.first_chunk().unwrap());
        assert_eq!(head, FrameHead::Control { kind: ControlKind::Ping, bytes: 4 });
        assert_eq!(subject(&sent[8..]), Some(2));
        let unknown = FrameHead::read([0x80, 3, 0, 9, 0, 0, 0, 8]);
        assert_eq!(unknown, FrameHead::Control { kind: ControlKind::Other, bytes: 8 });
        assert_eq!(subject(&[0, 0]), None);
    }
}
