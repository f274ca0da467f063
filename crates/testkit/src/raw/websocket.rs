//! A raw websocket: the response to the handshake, and frames with their opcodes.
//!
//! Nothing is automatic: the test itself answers pings and close frames.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{PATIENCE, Raw};

/// The header fields of a handshake with the example key of RFC 6455.
pub const HANDSHAKE: [(&str, &str); 5] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Origin", "https://page.example"),
];

/// The opcode of a text frame.
pub const TEXT_FRAME: u8 = 1;
/// The opcode of a binary frame.
pub const BINARY_FRAME: u8 = 2;
/// The opcode of a close frame.
pub const CLOSE_FRAME: u8 = 8;
/// The opcode of a ping.
pub const PING_FRAME: u8 = 9;
/// The opcode of a pong.
pub const PONG_FRAME: u8 = 10;

/// The response to a handshake, and the connection after it.
#[derive(Debug)]
pub struct Websocket {
    /// The status code; 101 for a websocket.
    pub status: u16,
    head: String,
    /// The body of a refusal.
    pub refusal: String,
    stream: BufReader<TlsStream<TcpStream>>,
}

impl Raw {
    /// Sends `GET path` with these header fields on a new connection, and reads the response.
    ///
    /// # Panics
    /// The connection can't be opened, or there is no response within a minute.
    pub async fn websocket(&self, path: &str, fields: &[(&str, &str)]) -> Websocket {
        let mut stream = BufReader::new(self.connect().await);
        let mut request = format!("GET {path} HTTP/1.1\r\nHost: {}:{}\r\n", self.target.host, self.target.port);
        fields.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{request}\r\n").as_bytes()).await.expect("the request can be sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timely(stream.read_u8()).await.expect("the head of a response"));
        }
        let head = String::from_utf8(head).expect("a head is text");
        let status = head.get(9..12).and_then(|code| code.parse().ok()).expect("a head begins with a code");
        let mut socket = Websocket { status, head, refusal: String::new(), stream };
        let length = socket.header("content-length").parse().unwrap_or(0);
        let mut body = vec![0; length];
        timely(socket.stream.read_exact(&mut body)).await.expect("the body of a refusal");
        socket.refusal = String::from_utf8(body).expect("a refusal is text");
        socket
    }
}

impl Websocket {
    /// A header's value, or the empty text when it is absent.
    pub fn header(&self, name: &str) -> &str {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).next().unwrap_or_default()
    }

    /// The opcode and the payload of the next frame; `None` at the end of the connection.
    ///
    /// # Panics
    /// Nothing comes for a minute, or the frame is not one of a server.
    pub async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let first = timely(self.stream.read_u8()).await.ok()?;
        assert_eq!(first & 0xf0, 0x80, "a whole message without extensions");
        let length = match timely(self.stream.read_u8()).await.ok()? {
            126 => u64::from(timely(self.stream.read_u16()).await.ok()?),
            127 => timely(self.stream.read_u64()).await.ok()?,
            length @ 0..126 => u64::from(length),
            masked => panic!("a server masks nothing: {masked}"),
        };
        let mut payload = vec![0; usize::try_from(length).expect("it fits into memory")];
        timely(self.stream.read_exact(&mut payload)).await.ok()?;
        Some((first & 0x0f, payload))
    }

    /// The next frame, which must be one event in JSON.
    ///
    /// # Panics
    /// It is something else.
    pub async fn next_json(&mut self) -> Value {
        let (opcode, payload) = self.next().await.expect("the watch continues");
        assert_eq!(opcode, TEXT_FRAME, "{}", String::from_utf8_lossy(&payload));
        serde_json::from_slice(&payload).expect("one object in a frame")
    }

    /// Sends a frame of at most 125 bytes, masked with zeros.
    ///
    /// # Panics
    /// The connection is broken.
    pub async fn send(&mut self, opcode: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).expect("the payload is short");
        let frame = [&[0x80 | opcode, 0x80 | length, 0, 0, 0, 0], payload].concat();
        self.stream.write_all(&frame).await.expect("the frame can be sent");
        self.stream.flush().await.expect("the frame can be sent");
    }
}

/// Limits a wait to [`PATIENCE`].
async fn timely<T>(next: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, next).await.unwrap_or_else(|_| panic!("nothing came for {PATIENCE:?}"))
}
