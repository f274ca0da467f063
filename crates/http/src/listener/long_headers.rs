//! Answers requests whose heads are too long with a reason.
//!
//! Without this, h2 would end a connection, with all its watches, for a head that is far too long. For a long URL it
//! would reset the stream, and clients retry after that. hyper answers such HTTP/1.1 heads without a body.
//!
//! The stream of this module wraps the connection below h2 and hyper. On HTTP/2 it collects header blocks that may be
//! too long. It replaces a block that is too long by a small block with a mark, and [`refusal`] finds the mark. On
//! HTTP/1.1 it replaces hyper's answer. Frames that cannot contain a long head pass unchanged.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::Version;
use http::header::{HeaderMap, HeaderName};
use keelson_meta::ApiError;
use keelson_meta::json::to_value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::header_block::{self, HeadFault, MOST_FIELD_BYTES, MOST_URL_BYTES};
use super::linger::Linger;

/// The connection preface of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The bytes before the payload of a frame.
const FRAME_HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// A header block of fewer bytes can exceed the limits of URL and fields only by repeated references to table entries.
const SHORT_BLOCK_BYTES: usize = 32 * 1024;
/// The maximum size of a header block in bytes. A connection with a larger one is closed, as for a protocol error.
const MOST_BLOCK_BYTES: usize = 1024 * 1024;
/// The maximum number of frames of a header block. Frames may be empty.
const MOST_FRAMES: usize = 256;
/// The bytes of each read while a block is collected.
const READ_BYTES: usize = 8 * 1024;

/// The field that marks a request whose head was too long.
const MARK: HeaderName = HeaderName::from_static("keelson-long-head");
/// The values of the mark for the two faults. They are random, so that no client can forge them.
static MARKS: LazyLock<[String; 2]> = LazyLock::new(|| {
    use std::hash::{BuildHasher as _, RandomState};
    ["url", "fields"]
        .map(|fault| format!("{:016x}{:016x}", RandomState::new().hash_one(fault), RandomState::new().hash_one(fault)))
});

/// The error for a request whose head was too long. `None` for all others.
pub(super) fn refusal(headers: &HeaderMap, version: Version) -> Option<ApiError> {
    // hyper's limit is only as exact as the size of its reads.
    if version <= Version::HTTP_11 {
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        return (bytes > MOST_FIELD_BYTES).then(|| refused(HeadFault::Fields));
    }
    let mark = headers.get(MARK)?;
    [HeadFault::Url, HeadFault::Fields].into_iter().find(|fault| mark == mark_of(*fault)).map(refused)
}

fn mark_of(fault: HeadFault) -> &'static str {
    match fault {
        HeadFault::Url => &MARKS[0],
        HeadFault::Fields => &MARKS[1],
    }
}

fn refused(fault: HeadFault) -> ApiError {
    match fault {
        HeadFault::Url => ApiError::UrlTooLong { limit: MOST_URL_BYTES },
        HeadFault::Fields => ApiError::HeadTooLarge { limit: MOST_FIELD_BYTES },
    }
}

/// A connection that answers requests with long heads.
#[derive(Debug)]
pub(super) struct LongHeaders<S> {
    inner: S,
    reading: Reading,
    /// Bytes that were read but not parsed.
    input: BytesMut,
    /// Bytes that were parsed but not passed to h2.
    output: BytesMut,
    /// The answer that replaces one of hyper's, and the length of hyper's.
    answer: Option<(Bytes, usize)>,
    /// The reads after such an answer, since hyper has not read the whole head.
    linger: Option<Linger>,
}

#[derive(Debug)]
enum Reading {
    /// The connection preface, with the number of its bytes read so far.
    Preface(usize),
    /// HTTP/1.1.
    Unframed,
    /// A frame header.
    Head,
    /// The payload of a frame that passes unchanged, with the number of remaining bytes.
    Payload(usize),
    /// A header block.
    Block(Box<Block>),
}

#[derive(Debug)]
struct Block {
    stream: [u8; 4],
    ends_stream: bool,
    /// The remaining bytes of the current frame. `None` between two frames.
    left: Option<usize>,
    padding: usize,
    is_last: bool,
    frames: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct FrameHead {
    length: usize,
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

impl FrameHead {
    fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = *bytes.first_chunk::<FRAME_HEAD_BYTES>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        Some(Self { length, kind, flags, stream })
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns true if the frame begins a header block that may be too long.
    fn may_be_long(self) -> bool {
        self.kind == HEADERS && (!self.has(END_HEADERS) || self.length > SHORT_BLOCK_BYTES)
    }

    /// The number of payload bytes before the header block, for padding length and priority.
    fn prefix(self) -> usize {
        usize::from(self.has(PADDED)) + if self.has(PRIORITY) { 5 } else { 0 }
    }
}

impl<S> LongHeaders<S> {
    pub(super) fn new(inner: S) -> Self {
        let (input, output) = (BytesMut::new(), BytesMut::new());
        Self { inner, reading: Reading::Preface(0), input, output, answer: None, linger: None }
    }

    /// Parses bytes that pass unchanged, and returns their number.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut place = 0;
        while place < bytes.len() {
            let rest = &bytes[place..];
            match &mut self.reading {
                Reading::Preface(seen) => {
                    let expected = &PREFACE[*seen..];
                    let count = rest.len().min(expected.len());
                    if rest[..count] != expected[..count] {
                        self.reading = Reading::Unframed;
                        continue;
                    }
                    *seen += count;
                    place += count;
                    if *seen == PREFACE.len() {
                        self.reading = Reading::Head;
                    }
                }
                Reading::Unframed => return bytes.len(),
                Reading::Head => match FrameHead::read(rest) {
                    Some(head) if !head.may_be_long() => {
                        place += FRAME_HEAD_BYTES;
                        self.reading = Reading::Payload(head.length);
                    }
                    Some(_) | None => return place,
                },
                Reading::Payload(left) => {
                    let count = rest.len().min(*left);
                    *left -= count;
                    place += count;
                }
                Reading::Block(_) => return place,
            }
            if matches!(self.reading, Reading::Payload(0)) {
                self.reading = Reading::Head;
            }
        }
        place
    }

    /// Parses the bytes read. Returns false if more must be read first.
    fn advance(&mut self) -> io::Result<bool> {
        if let Reading::Block(block) = &mut self.reading {
            if !block.collect(&mut self.input)? {
                return Ok(false);
            }
            block.write(&mut self.output)?;
            self.reading = Reading::Head;
            return Ok(true);
        }
        let head = FrameHead::read(&self.input).filter(|head| head.may_be_long());
        if let (Reading::Head, Some(head)) = (&self.reading, head) {
            let Some(block) = Block::begin(head, &mut self.input)? else { return Ok(false) };
            self.reading = Reading::Block(Box::new(block));
            return Ok(true);
        }
        let input = std::mem::take(&mut self.input);
        let passes = self.pass(&input);
        self.output.extend_from_slice(&input[..passes]);
        self.input = input;
        self.input.advance(passes);
        Ok(passes > 0)
    }
}

impl Block {
    /// Begins the header block of a frame. `None` if too few bytes were read.
    fn begin(head: FrameHead, input: &mut BytesMut) -> io::Result<Option<Self>> {
        let prefix = head.prefix();
        if input.len() < FRAME_HEAD_BYTES + prefix {
            return Ok(None);
        }
        let padding = if head.has(PADDED) { usize::from(input[FRAME_HEAD_BYTES]) } else { 0 };
        if head.length < prefix + padding {
            return Err(malformed());
        }
        input.advance(FRAME_HEAD_BYTES + prefix);
        Ok(Some(Self {
            stream: head.stream,
            ends_stream: head.has(END_STREAM),
            left: Some(head.length - prefix),
            padding,
            is_last: head.has(END_HEADERS),
            frames: 1,
            bytes: Vec::new(),
        }))
    }

    /// Collects the bytes read of the block. Returns true when the block is complete.
    fn collect(&mut self, input: &mut BytesMut) -> io::Result<bool> {
        loop {
            let Some(left) = self.left else {
                let Some(head) = FrameHead::read(input) else { return Ok(false) };
                self.frames += 1;
                if head.kind != CONTINUATION || head.stream != self.stream || self.frames > MOST_FRAMES {
                    return Err(malformed());
                }
                input.advance(FRAME_HEAD_BYTES);
                (self.left, self.is_last) = (Some(head.length), head.has(END_HEADERS));
                continue;
            };
            let came = input.split_to(left.min(input.len()));
            let padding = std::mem::take(&mut self.padding);
            let (of_block, left) = (left - padding, left - came.len());
            self.bytes.extend_from_slice(&came[..came.len().min(of_block)]);
            self.padding = padding.min(left);
            if self.bytes.len() > MOST_BLOCK_BYTES {
                return Err(malformed());
            }
            if left > 0 {
                self.left = Some(left);
                return Ok(false);
            }
            self.left = None;
            if self.is_last {
                return Ok(true);
            }
        }
    }

    /// Writes the frames of the block, or of a small block that replaces it.
    fn write(&self, output: &mut BytesMut) -> io::Result<()> {
        let shrunk = match header_block::fault(&self.bytes) {
            Ok(Some(fault)) => {
                Some(header_block::shrunk(&self.bytes, (MARK.as_str(), mark_of(fault))).map_err(|_| malformed())?)
            }
            // h2 reports the error of a malformed block.
            Ok(None) | Err(_) => None,
        };
        let bytes = shrunk.as_ref().unwrap_or(&self.bytes);
        let mut parts = bytes.chunks(super::connection::MAX_FRAME_BYTES as usize).peekable();
        let mut kind = HEADERS;
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            let end_stream = if kind == HEADERS && self.ends_stream { END_STREAM } else { 0 };
            let [_, length @ ..] = u32::try_from(part.len()).unwrap_or_default().to_be_bytes();
            output.extend_from_slice(&length);
            output.extend_from_slice(&[kind, end_stream | if is_last { END_HEADERS } else { 0 }]);
            output.extend_from_slice(&self.stream);
            output.extend_from_slice(part);
            kind = CONTINUATION;
        }
        Ok(())
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a header block breaks the protocol or is too long")
}

impl<S: AsyncRead + Unpin> AsyncRead for LongHeaders<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.output.is_empty() {
                let count = this.output.len().min(buffer.remaining());
                buffer.put_slice(&this.output.split_to(count));
                return Poll::Ready(Ok(()));
            }
            if this.input.is_empty() && !matches!(this.reading, Reading::Block(_)) {
                let before = buffer.filled().len();
                ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
                let read = buffer.filled().len() - before;
                let passes = this.pass(&buffer.filled()[before..]);
                this.input.extend_from_slice(&buffer.filled()[before + passes..]);
                buffer.set_filled(before + passes);
                if passes > 0 || read == 0 {
                    return Poll::Ready(Ok(()));
                }
            }
            if this.advance()? {
                continue;
            }
            let mut room = [MaybeUninit::<u8>::uninit(); READ_BYTES];
            let mut more = ReadBuf::uninit(&mut room);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut more))?;
            if more.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.input.extend_from_slice(more.filled());
        }
    }
}

/// The answer that replaces hyper's for an HTTP/1.1 head that is too long. `None` for all other answers.
fn instead_of(answer: &[u8]) -> Option<Bytes> {
    let (fault, reason) = match answer.get(..13)? {
        b"HTTP/1.1 414 " => (HeadFault::Url, "URI Too Long"),
        b"HTTP/1.1 431 " => (HeadFault::Fields, "Request Header Fields Too Large"),
        _ => return None,
    };
    let text = std::str::from_utf8(answer).ok()?;
    if !text.ends_with("\r\n\r\n") || !text.contains("\r\ncontent-length: 0\r\n") {
        return None;
    }
    let status = refused(fault).status();
    let mut body = keelson_codec::json::to_vec(&to_value(&status).ok()?);
    body.push(b'\n');
    let head = format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\
         cache-control: no-cache, private\r\nx-content-type-options: nosniff\r\n\r\n",
        status.http_code(),
        body.len()
    );
    Some([head.into_bytes(), body].concat().into())
}

impl<S: AsyncWrite + Unpin> LongHeaders<S> {
    /// Writes the answer that replaces hyper's. `None` if hyper's own answer is written.
    fn poll_answer(&mut self, context: &mut Context<'_>, first: &[u8]) -> Option<Poll<io::Result<usize>>> {
        if self.answer.is_none() && matches!(self.reading, Reading::Unframed) {
            self.answer = instead_of(first).map(|answer| (answer, first.len()));
        }
        let (answer, replaced) = self.answer.as_mut()?;
        while !answer.is_empty() {
            match Pin::new(&mut self.inner).poll_write(context, answer) {
                Poll::Ready(Ok(0)) => return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(written)) => answer.advance(written),
                Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
                Poll::Pending => return Some(Poll::Pending),
            }
        }
        let replaced = *replaced;
        self.answer = None;
        self.linger = Some(Linger::new());
        Some(Poll::Ready(Ok(replaced)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LongHeaders<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.poll_answer(context, bytes) {
            Some(answered) => answered,
            None => Pin::new(&mut this.inner).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.poll_answer(context, slices.first().map_or(&[], |slice| slice)) {
            Some(answered) => answered,
            None => Pin::new(&mut this.inner).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_shutdown(context))?;
        match &mut this.linger {
            Some(linger) => linger.poll(context, &mut this.inner),
            None => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
        [&length[..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Returns the bytes that the stream passes on when `bytes` arrive in pieces of `at_a_time`.
    async fn read(bytes: &[u8], at_a_time: usize) -> io::Result<Vec<u8>> {
        let (client, mut server) = tokio::io::duplex(at_a_time);
        let bytes = bytes.to_vec();
        let sending = tokio::spawn(async move { server.write_all(&bytes).await });
        let mut found = Vec::new();
        let read = LongHeaders::new(client).read_to_end(&mut found).await;
        let _ = sending.await;
        read.map(|_| found)
    }

    #[tokio::test]
    async fn short_headers_pass_unchanged() {
        let block = [&[0x82, 0x84, 0x87, 0x00, 1, b'x', 0x7f, 0x80, 0x87, 0x02][..], &vec![b'y'; 33_791]].concat();
        let [begun, rest] = [&block[..20_000], &block[20_000..]];
        let data = frame(0, 0, &[7; 100]);
        let whole = frame(HEADERS, END_HEADERS | END_STREAM, &block);
        let padded = frame(HEADERS, PADDED | PRIORITY, &[&[3][..], &[0; 5], begun, &[0; 3]].concat());
        let parts = [padded, frame(CONTINUATION, END_HEADERS, rest)].concat();
        let sent = [PREFACE, &data, &whole, &data, &parts, &data].concat();
        let expect = [PREFACE, &data, &whole, &data, &frame(HEADERS, END_HEADERS, &block), &data].concat();
        for at_a_time in [1, 7, 1000, 100_000] {
            assert!(read(&sent, at_a_time).await.unwrap() == expect, "{at_a_time}");
        }
        let plain = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        assert_eq!(read(plain, 3).await.unwrap(), plain);
        assert_eq!(read(b"PRI * HTTP/1.1\r\n\r\n", 3).await.unwrap(), b"PRI * HTTP/1.1\r\n\r\n");
    }

    #[tokio::test]
    async fn a_block_without_end_ends_the_connection() {
        let part = frame(CONTINUATION, 0, &[0; 16_384]);
        let sent = [PREFACE, &frame(HEADERS, 0, &[0x82]), &part.repeat(65)].concat();
        assert_eq!(read(&sent, 10_000).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let empty = [PREFACE, &frame(HEADERS, 0, &[0x82]), &frame(CONTINUATION, 0, &[]).repeat(MOST_FRAMES)].concat();
        assert!(read(&empty, 10_000).await.is_err());
        let other = [PREFACE, &frame(HEADERS, 0, &[0x82]), &frame(0, 0, &[0])].concat();
        assert!(read(&other, 10_000).await.is_err());
    }

    #[test]
    fn an_answer_of_hyper_to_a_long_head_gets_a_reason() {
        let other = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let ours = String::from_utf8(instead_of(other).unwrap().to_vec()).unwrap();
        assert!(ours.contains("\"code\":431") && ours.contains("262144 bytes"), "{ours}");
        assert!(instead_of(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").is_none());
        assert!(instead_of(b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 5\r\n\r\n").is_none());
    }
}
