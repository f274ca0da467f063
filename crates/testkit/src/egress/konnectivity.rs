//! The gRPC protocol of konnectivity, as its server speaks it with kube-apiserver.
//!
//! Each connection has one stream, and each stream one tunnel.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use http::Response;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{EgressBehaviour, State};

/// The id of the connection of each stream.
const CONNECTION: u64 = 41;

/// Types of packets, and the fields with their contents.
const DIAL_REQ: u64 = 0;
const DIAL_RSP: (u64, u64) = (1, 3);
const CLOSE_REQ: u64 = 2;
const CLOSE_RSP: (u64, u64) = (3, 6);
const DATA: (u64, u64) = (4, 4);

pub(super) async fn serve(mut stream: impl AsyncRead + AsyncWrite + Send + Unpin, state: &Arc<State>) {
    if state.behaviour() == EgressBehaviour::Garbled {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        return;
    }
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut streams = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            // Each connection has one stream.
            Some(_) = streams.join_next() => {
                connection.graceful_shutdown();
                continue;
            }
        };
        let Some(Ok((request, mut respond))) = accepted else { return };
        assert_eq!(request.uri().path(), "/ProxyService/Proxy");
        assert_eq!(request.headers()["content-type"], "application/grpc");
        let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a valid head");
        let Ok(sender) = respond.send_response(head, false) else { return };
        let packets = Packets { body: request.into_body(), received: BytesMut::new() };
        streams.spawn(converse(packets, sender, state.clone()));
    }
}

/// Speaks with the client of one stream.
async fn converse(mut packets: Packets, mut sender: SendStream<Bytes>, state: Arc<State>) {
    let Some((DIAL_REQ, request)) = packets.next(2).await else { panic!("a stream begins with DIAL_REQ") };
    let (address, random) = (request.text(2), request.number(3));
    assert_eq!(request.text(1), "tcp");
    let answer = |error: &str, random: u64| {
        let content = [field(1, error.as_bytes()), number(2, CONNECTION), number(3, random)].concat();
        frame(DIAL_RSP, &content)
    };
    let willing = answer("", random);
    let sent = match state.behaviour() {
        EgressBehaviour::Willing | EgressBehaviour::Garbled => {
            match state.connect(&address).await {
                Ok(server) => {
                    if sender.send_data(willing, false).is_ok() {
                        carry(packets, sender, server).await;
                    }
                }
                Err(why) => {
                    let _ = sender.send_data(answer(&why, random), true);
                }
            }
            return;
        }
        EgressBehaviour::Refusing => sender.send_data(answer("no agent available", random), true),
        EgressBehaviour::Silent => std::future::pending().await,
        EgressBehaviour::Closing => return,
        EgressBehaviour::Endless => {
            // A packet of 2 GiB.
            let _ = sender.send_data(Bytes::from_static(&[0, 0x7f, 0xff, 0xff, 0xff]), false);
            return endless(sender).await;
        }
        EgressBehaviour::Lying => sender.send_data(answer("", random ^ 1), false),
    };
    let _ = sent;
}

async fn endless(mut sender: SendStream<Bytes>) {
    loop {
        sender.reserve_capacity(16 << 10);
        match std::future::poll_fn(|context| sender.poll_capacity(context)).await {
            Some(Ok(available)) if sender.send_data(Bytes::from(vec![0; available]), false).is_ok() => {}
            _ => return,
        }
    }
}

/// Carries the bytes of an open tunnel both ways.
async fn carry(mut packets: Packets, mut sender: SendStream<Bytes>, server: TcpStream) {
    let (mut from, mut to) = server.into_split();
    let mut buffer = vec![0; 8 << 10];
    let closed = frame(CLOSE_RSP, &number(2, CONNECTION));
    loop {
        tokio::select! {
            read = from.read(&mut buffer) => {
                let Ok(count @ 1..) = read else {
                    let _ = sender.send_data(closed, true);
                    return;
                };
                // A packet of another connection, which a client ignores.
                let other = [number(1, CONNECTION + 1), field(3, b"noise")].concat();
                let own = [number(1, CONNECTION), field(3, &buffer[..count])].concat();
                let both = [frame(DATA, &other), frame(DATA, &own)].concat();
                if send(&mut sender, both.into()).await.is_none() {
                    return;
                }
            }
            packet = packets.next(DATA.1) => match packet {
                Some((kind, content)) if kind == DATA.0 => {
                    assert_eq!(content.number(1), CONNECTION);
                    if to.write_all(&content.bytes(3)).await.is_err() {
                        return;
                    }
                }
                Some((CLOSE_REQ, _)) => {
                    let _ = sender.send_data(closed, true);
                    return;
                }
                _ => return,
            },
        }
    }
}

async fn send(sender: &mut SendStream<Bytes>, mut bytes: Bytes) -> Option<()> {
    while !bytes.is_empty() {
        sender.reserve_capacity(bytes.len());
        let available = match sender.capacity() {
            0 => std::future::poll_fn(|context| sender.poll_capacity(context)).await?.ok()?,
            available => available,
        };
        sender.send_data(bytes.split_to(available.min(bytes.len())), false).ok()?;
    }
    Some(())
}

/// The packets of a client.
struct Packets {
    body: RecvStream,
    received: BytesMut,
}

impl Packets {
    /// The type of the next packet, and the content in this field or in the one of its type.
    async fn next(&mut self, content: u64) -> Option<(u64, Fields)> {
        loop {
            if let Some(prefix) = self.received.first_chunk::<5>() {
                assert_eq!(prefix[0], 0, "packets are not compressed");
                let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
                if self.received.len() >= 5 + length {
                    self.received.advance(5);
                    let packet = Fields::read(&self.received.split_to(length));
                    let kind = packet.number(1);
                    let content = if kind == CLOSE_REQ { 5 } else { content };
                    return Some((kind, Fields::read(&packet.bytes(content))));
                }
            }
            let part = self.body.data().await?.ok()?;
            let _ = self.body.flow_control().release_capacity(part.len());
            self.received.extend_from_slice(&part);
        }
    }
}

/// The fields of a message: numbers, and bytes.
#[derive(Default)]
struct Fields(BTreeMap<u64, u64>, BTreeMap<u64, Vec<u8>>);

impl Fields {
    fn read(mut message: &[u8]) -> Self {
        let mut fields = Self::default();
        while !message.is_empty() {
            let tag = varint(&mut message);
            let value = varint(&mut message);
            match tag & 7 {
                0 => {
                    fields.0.insert(tag >> 3, value);
                }
                2 => {
                    let (bytes, rest) = message.split_at(usize::try_from(value).expect("a length"));
                    fields.1.insert(tag >> 3, bytes.to_vec());
                    message = rest;
                }
                kind => panic!("the client sends a field of type {kind}"),
            }
        }
        fields
    }

    fn number(&self, field: u64) -> u64 {
        self.0.get(&field).copied().unwrap_or_default()
    }

    fn bytes(&self, field: u64) -> Vec<u8> {
        self.1.get(&field).cloned().unwrap_or_default()
    }

    fn text(&self, field: u64) -> String {
        String::from_utf8(self.bytes(field)).expect("a text")
    }
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut number = 0;
    for place in 0..10 {
        let (byte, behind) = rest.split_first().expect("a whole number");
        *rest = behind;
        number |= u64::from(byte & 127) << (7 * place);
        if byte & 128 == 0 {
            break;
        }
    }
    number
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        out.push((number & 127) as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number(field: u64, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, field << 3);
    put(&mut out, value);
    out
}

fn field(field: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, field << 3 | 2);
    put(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

fn frame((kind, content_field): (u64, u64), content: &[u8]) -> Bytes {
    let message = [number(1, kind), field(content_field, content)].concat();
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("a small message"));
    frame.extend_from_slice(&message);
    frame.freeze()
}
