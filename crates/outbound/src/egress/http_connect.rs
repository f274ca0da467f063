//! Tunnels by HTTP CONNECT (RFC 9110 section 9.3.6), with the texts of upstream.
//!
//! A response has a size limit, and must end before the first byte of the server.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The most bytes of a proxy's response header.
const HEADER_BYTES: usize = 64 << 10;
/// The most bytes of a proxy's status line in an error.
const STATUS_BYTES: usize = 1 << 10;

/// Requests a tunnel to an address from the proxy behind a stream. The caller limits the time.
///
/// # Errors
/// The proxy refuses, or its response is no response to CONNECT.
pub(super) async fn open(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    proxy: &str,
    address: &str,
) -> Result<(), String> {
    let failed = |why: &str| format!("reading HTTP response from CONNECT to {address} via proxy {proxy} failed: {why}");
    // A kubelet chooses the addresses of its node. They must not end the line.
    if !address.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the address of the server is not a host and a port".to_owned());
    }
    let request = format!("CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| failed(&error.to_string()))?;
    stream.flush().await.map_err(|error| failed(&error.to_string()))?;
    let mut header = Vec::new();
    let end = loop {
        // Blank lines may end with LF alone.
        let from = header.len().saturating_sub(3);
        let read = stream.read_buf(&mut header).await.map_err(|error| failed(&error.to_string()))?;
        if let Some(end) = end_of_header(&header, from) {
            break end;
        }
        if read == 0 {
            return Err(failed("unexpected EOF"));
        }
        if header.len() > HEADER_BYTES {
            return Err(failed(&format!("the header has more than {HEADER_BYTES} bytes")));
        }
    };
    let line = header.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii_end();
    let line = String::from_utf8_lossy(&line[..line.len().min(STATUS_BYTES)]).into_owned();
    let (code, status) = status_of(&line).ok_or_else(|| failed(&format!("malformed HTTP response {line:?}")))?;
    if code != 200 {
        return Err(format!("proxy error from {proxy} while dialing {address}, code {code}: {status}"));
    }
    // The client speaks first in all protocols through a tunnel. Earlier bytes would be those of the proxy.
    match header.len() - end {
        0 => Ok(()),
        early => Err(format!("unexpected {early} bytes of buffered data from CONNECT proxy {proxy:?}")),
    }
}

/// The length of the header, if it is complete.
fn end_of_header(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    (0..rest.len()).find_map(|at| {
        let tail = &rest[at..];
        if tail.starts_with(b"\r\n\r\n") {
            Some(from + at + 4)
        } else if tail.starts_with(b"\n\n") {
            Some(from + at + 2)
        } else {
            None
        }
    })
}

/// The code, and the code with its text, of a status line.
fn status_of(line: &str) -> Option<(u16, &str)> {
    let (version, status) = line.split_once(' ')?;
    let code = status.get(..3)?.parse().ok()?;
    let is_http = version.strip_prefix("HTTP/1.").is_some_and(|minor| matches!(minor, "0" | "1"));
    (is_http && status.get(3..4).is_none_or(|next| next == " ")).then_some((code, status.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn outcome(response: &[u8]) -> Result<(), String> {
        let (mut near, mut far) = tokio::io::duplex(256 << 10);
        far.write_all(response).await.unwrap();
        far.shutdown().await.unwrap();
        open(&mut near, "/p.sock", "10.0.0.1:443").await
    }

    #[tokio::test]
    async fn an_address_can_not_end_the_request_line() {
        let (mut near, mut far) = tokio::io::duplex(1 << 10);
        let address = "[::1]:80 HTTP/1.1\r\nHost: x\r\n\r\nPUT /latest";
        assert_eq!(
            open(&mut near, "p", address).await.unwrap_err(),
            "the address of the server is not a host and a port"
        );
        drop(near);
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).await.unwrap();
        assert!(sent.is_empty());
    }

    #[tokio::test]
    async fn responses_are_read_as_upstream_reads_them() {
        assert_eq!(outcome(b"HTTP/1.1 200 OK\r\n\r\n").await, Ok(()));
        assert_eq!(outcome(b"HTTP/1.0 200 Connection established\nx: y\n\n").await, Ok(()));
        let refused = outcome(b"HTTP/1.1 403 Forbidden\r\nx: y\r\n\r\nno").await;
        assert_eq!(
            refused.unwrap_err(),
            "proxy error from /p.sock while dialing 10.0.0.1:443, code 403: 403 Forbidden"
        );
        let early = outcome(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n").await;
        assert_eq!(early.unwrap_err(), "unexpected 17 bytes of buffered data from CONNECT proxy \"/p.sock\"");
        const FAILED: &str = "reading HTTP response from CONNECT to 10.0.0.1:443 via proxy /p.sock failed: ";
        for (response, why) in [
            (&b""[..], "unexpected EOF"),
            (b"HTTP/1.1 200 OK\r\n", "unexpected EOF"),
            (b"SSH-2.0-x\r\n\r\n", "malformed HTTP response \"SSH-2.0-x\""),
            (b"HTTP/1.1 20\r\n\r\n", "malformed HTTP response \"HTTP/1.1 20\""),
            (b"HTTP/1.1 2000 OK\r\n\r\n", "malformed HTTP response \"HTTP/1.1 2000 OK\""),
            (b"\xff\xfe\r\n\r\n", "malformed HTTP response \"\u{fffd}\u{fffd}\""),
        ] {
            assert_eq!(outcome(response).await.unwrap_err(), format!("{FAILED}{why}"));
        }
        let endless = [b"HTTP/1.1 200 OK\r\n".as_slice(), &b"x: y\r\n".repeat(20_000)].concat();
        assert_eq!(outcome(&endless).await.unwrap_err(), format!("{FAILED}the header has more than 65536 bytes"));
    }
}
