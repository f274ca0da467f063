//! The server side of SPDY/3.1, as in kubelets and container runtimes.
//!
//! The connection inflates the header blocks of clients with the dictionary of the protocol. TCP alone controls the
//! flow, as in Go's implementation.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex, mpsc};

/// The names at the start of the dictionary (draft-mbelshe-httpbis-spdy-00 section 2.6.10.1). Each follows its length.
const NAMES: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host \
    if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
/// The text at the end of the dictionary.
const TEXTS: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 \
    Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept \
    Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=\
    utf-8charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::new();
    for name in NAMES.split_whitespace() {
        let name = name.replace('_', " ");
        dictionary.extend_from_slice(&(name.len() as u32).to_be_bytes());
        dictionary.extend_from_slice(name.as_bytes());
    }
    dictionary.extend_from_slice(TEXTS.as_bytes());
    dictionary
}

type Writing = Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>>;

/// Writes frames.
#[derive(Clone)]
pub(super) struct Writer(Writing);

impl Writer {
    /// Sends bytes of a stream.
    pub(super) async fn data(&self, stream: u32, bytes: &[u8], is_last: bool) -> io::Result<()> {
        let mut frame = stream.to_be_bytes().to_vec();
        frame.push(u8::from(is_last));
        frame.extend_from_slice(&(bytes.len() as u32).to_be_bytes()[1..]);
        frame.extend_from_slice(bytes);
        self.write(&frame).await
    }

    async fn control(&self, kind: u16, content: &[u8]) -> io::Result<()> {
        let mut frame = vec![0x80, 3];
        frame.extend_from_slice(&kind.to_be_bytes());
        frame.extend_from_slice(&(content.len() as u32).to_be_bytes());
        frame.extend_from_slice(content);
        self.write(&frame).await
    }

    async fn write(&self, frame: &[u8]) -> io::Result<()> {
        let mut to = self.0.lock().await;
        to.write_all(frame).await?;
        to.flush().await
    }

    /// Ends the connection.
    pub(super) async fn close(&self) {
        let _ = self.0.lock().await.shutdown().await;
    }
}

/// A stream that the client opened.
pub(super) struct SpdyStream {
    pub(super) id: u32,
    /// The header fields by name.
    pub(super) fields: HashMap<String, String>,
    /// The bytes that the client sends, until it ends the stream.
    pub(super) data: mpsc::UnboundedReceiver<Bytes>,
}

impl SpdyStream {
    /// A header field.
    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Serves a connection. Returns the streams that the client opens, until the connection ends.
pub(super) fn serve(
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> (Writer, mpsc::UnboundedReceiver<SpdyStream>) {
    let (from, to) = tokio::io::split(connection);
    let writer = Writer(Arc::new(Mutex::new(Box::new(to))));
    let (opened, streams) = mpsc::unbounded_channel();
    let replying = writer.clone();
    tokio::spawn(async move {
        let _ = read(from, &replying, &opened).await;
    });
    (writer, streams)
}

async fn read(
    mut from: impl AsyncRead + Unpin,
    writer: &Writer,
    opened: &mpsc::UnboundedSender<SpdyStream>,
) -> io::Result<()> {
    let mut inflater = Decompress::new(true);
    let mut streams: HashMap<u32, mpsc::UnboundedSender<Bytes>> = HashMap::new();
    let mut is_first_reply = true;
    loop {
        let mut head = [0; 8];
        from.read_exact(&mut head).await?;
        let mut content = vec![0; u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize];
        from.read_exact(&mut content).await?;
        let is_last = head[4] & 1 != 0;
        if head[0] & 0x80 == 0 {
            let stream = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            if let Some(known) = streams.get(&stream) {
                // A finished session reads nothing more.
                let _ = known.send(content.into());
            }
            if is_last {
                streams.remove(&stream);
            }
            continue;
        }
        match u16::from_be_bytes([head[2], head[3]]) {
            1 => {
                let id = u32::from_be_bytes(content[..4].try_into().expect("four bytes"));
                let fields = fields(&inflated(&mut inflater, &content[10..])?);
                let (sender, data) = mpsc::unbounded_channel();
                if !is_last {
                    streams.insert(id, sender);
                }
                let mut reply = id.to_be_bytes().to_vec();
                // The reply has no fields: a stored block of zlib, and an empty block that makes the client's inflater
                // flush.
                if std::mem::take(&mut is_first_reply) {
                    reply.extend_from_slice(&[0x78, 1]);
                }
                reply.extend_from_slice(&[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
                writer.control(2, &reply).await?;
                if opened.send(SpdyStream { id, fields, data }).is_err() {
                    return Ok(());
                }
            }
            3 => {
                streams.remove(&u32::from_be_bytes(content[..4].try_into().expect("four bytes")));
            }
            6 if content[3] % 2 == 1 => writer.control(6, &content).await?,
            _ => {}
        }
    }
}

fn inflated(inflater: &mut Decompress, block: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(64 << 10);
    let before = inflater.total_in();
    let first = inflater.decompress_vec(block, &mut out, FlushDecompress::Sync);
    if first.is_err_and(|error| error.needs_dictionary().is_some()) {
        inflater.set_dictionary(&dictionary()).map_err(io::Error::other)?;
        let read = usize::try_from(inflater.total_in() - before).expect("a short block");
        inflater.decompress_vec(&block[read..], &mut out, FlushDecompress::Sync).map_err(io::Error::other)?;
    }
    Ok(out)
}

fn fields(block: &[u8]) -> HashMap<String, String> {
    let mut rest = block;
    let mut number = || {
        let (first, behind) = rest.split_first_chunk::<4>()?;
        rest = behind;
        Some((u32::from_be_bytes(*first) as usize, behind))
    };
    let Some((count, mut rest)) = number() else { return HashMap::new() };
    let mut text = || {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let (text, behind) = behind.split_at_checked(length)?;
        rest = behind;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    (0..count).filter_map(|_| Some((text()?, text()?))).collect()
}
