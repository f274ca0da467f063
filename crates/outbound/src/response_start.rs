//! Records the start of a response, for the error text if it is not HTTP.
//!
//! The HTTP library only reports that it can't parse the response. Go's client quotes the faulty text, and so does this
//! module, from the first bytes received after the last sent ones.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use keelson_meta::go_format::quote;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};

use crate::layer::{Layer, LayeredStream};

/// The most recorded bytes: more lines than needed to find the faulty one in most responses.
const KEPT_BYTES: usize = 1 << 10;

/// The start of a response.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseStart(Arc<Mutex<Vec<u8>>>);

impl ResponseStart {
    fn note(&self, bytes: &[u8]) {
        let mut kept = self.0.lock();
        let room = KEPT_BYTES.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
    }

    fn forget(&self) {
        self.0.lock().clear();
    }

    /// The fault of the response, in the words of Go's client; `None` if the recorded bytes do not show it.
    pub(crate) fn fault(&self, is_incomplete: bool) -> Option<String> {
        let kept = self.0.lock();
        if kept.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&kept);
        if is_incomplete {
            return Some(broken("unexpected EOF"));
        }
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        if !first.starts_with("HTTP/") {
            return Some(broken(&format!("malformed HTTP response {}", quote(first))));
        }
        for line in lines.take_while(|line| !line.is_empty()) {
            let Some((name, value)) = line.split_once(':') else {
                return Some(broken(&format!("malformed MIME header: missing colon: {}", quote(line))));
            };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") && value.parse::<u64>().is_err() {
                return Some(broken(&format!("bad Content-Length {}", quote(value))));
            }
        }
        None
    }
}

fn broken(why: &str) -> String {
    format!("net/http: HTTP/1.x transport connection broken: {why}")
}

/// A stream that records the start of each response.
pub(crate) type RecordedStream<S> = LayeredStream<S, ResponseStart>;

impl Layer for ResponseStart {
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(inner).poll_read(context, buffer);
        if read.is_ready() {
            self.note(&buffer.filled()[before..]);
        }
        read
    }

    fn written(&mut self, _: &mut Context<'_>, write: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.forget();
        write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_quoted_as_in_go() {
        let check = |bytes: &[u8], is_incomplete: bool, expected: Option<&str>| {
            let start = ResponseStart::default();
            start.note(bytes);
            assert_eq!(start.fault(is_incomplete), expected.map(broken), "{}", String::from_utf8_lossy(bytes));
        };
        check(b"", true, None);
        check(b"hello\r\n", false, Some("malformed HTTP response \"hello\""));
        check(b"HTTP/1.1 2", true, Some("unexpected EOF"));
        let colon = "malformed MIME header: missing colon: \"no colon here\"";
        check(b"HTTP/1.1 200 OK\r\na: b\r\nno colon here\r\n\r\n", false, Some(colon));
        check(b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n", false, Some("bad Content-Length \"abc\""));
        check(b"HTTP/1.1 200 OK\r\n\r\nno colon", false, None);
    }
}
