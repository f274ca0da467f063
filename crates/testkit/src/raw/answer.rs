//! Responses of the raw client: complete ones, and streams.
//!
//! Code, headers and bytes are unchanged, and `expect` prints all of them when the code differs.

use std::io::Write as _;

use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use super::PATIENCE;
use super::connection::Connection;

/// A complete response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) what: String,
    /// The status code.
    pub status: u16,
    /// All headers as sent.
    pub headers: HeaderMap,
    /// The body as sent (compressed according to `content-encoding`).
    pub body: Bytes,
}

impl Answer {
    /// A header's value, or the empty text when it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the response if it has this status.
    ///
    /// # Panics
    /// The status differs.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert!(self.status == status, "{}: {} instead of {status}\n{}", self.what, self.status, self.text());
        self
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// It is something else.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{}: {}, no JSON ({error}):\n{}", self.what, self.status, self.text()))
    }
}

/// A response in progress: a watch, or a list that is read slowly on purpose.
#[derive(Debug)]
pub struct Stream {
    what: String,
    /// The status code.
    pub status: u16,
    /// All headers as sent.
    pub headers: HeaderMap,
    body: Incoming,
    pending: BytesMut,
    /// Decompresses the body, if the test requests that.
    gunzip: Option<GzDecoder<Vec<u8>>>,
    /// Dropping the sender would end an HTTP/1.1 connection before the end of its body.
    _connection: Connection,
}

impl Stream {
    pub(super) fn new(what: String, connection: Connection, response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        Self {
            what,
            status,
            headers: head.headers,
            body,
            pending: BytesMut::new(),
            gunzip: None,
            _connection: connection,
        }
    }

    /// The stream with the decompressed text of its body, which must be one gzip member.
    #[must_use]
    pub fn gunzip(self) -> Self {
        Self { gunzip: Some(GzDecoder::new(Vec::new())), ..self }
    }

    /// The next bytes; `None` at a clean end.
    ///
    /// # Errors
    /// The server broke the stream.
    ///
    /// # Panics
    /// Nothing comes for a minute.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        if !self.pending.is_empty() {
            return Ok(Some(self.pending.split().freeze()));
        }
        self.receive().await
    }

    /// The next line as JSON: one watch event. `None` at the end, clean or not.
    ///
    /// # Panics
    /// Nothing comes for a minute, or the line is not JSON.
    pub async fn next_json(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end + 1);
                return Some(serde_json::from_slice(&line).unwrap_or_else(|error| {
                    panic!("{}: a line that is not JSON ({error}): {}", self.what, String::from_utf8_lossy(&line))
                }));
            }
            match self.receive().await {
                Ok(Some(chunk)) => self.pending.extend_from_slice(&chunk),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    async fn receive(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.body.frame());
            match next.await.unwrap_or_else(|_| panic!("{}: nothing came for {PATIENCE:?}", self.what)) {
                None => {
                    if let Some(Err(error)) = self.gunzip.take().map(GzDecoder::finish) {
                        panic!("{}: the gzip member is incomplete: {error}", self.what);
                    }
                    return Ok(None);
                }
                Some(Err(error)) => return Err(error),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    let Some(gunzip) = &mut self.gunzip else { return Ok(Some(data)) };
                    let read = gunzip.write_all(&data).and_then(|()| gunzip.flush());
                    read.unwrap_or_else(|error| panic!("{}: not one gzip member: {error}", self.what));
                    let text = std::mem::take(gunzip.get_mut());
                    if !text.is_empty() {
                        return Ok(Some(text.into()));
                    }
                }
            }
        }
    }
}
