//! The network of a simulation: connections between clients and servers, with delay, partition and cut.
//!
//! A connection is two pipes. Each write is a segment that arrives after a delay of its own, but never before the segment
//! ahead of it, as with TCP. Connections overtake each other. A partition in one direction holds its segments until it
//! ends. Time passes for the network only between the turns of the hosts ([`Net::advance`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};
use futures::future::BoxFuture;
use keelson_server::{Accept, Transport};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::dice::Dice;

/// The bytes of one direction of a connection that its reader has not read.
const WINDOW_BYTES: usize = 256 * 1024;
/// The delay of a segment without a fault, in milliseconds.
const DELAY_MS: Range<u64> = 1..25;
/// The port of every server.
const PORT: u16 = 6443;

/// A machine on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Client(usize),
    Server(usize),
}

impl Node {
    /// A number of its own.
    fn number(self) -> u64 {
        match self {
            Self::Client(number) => 1 + 2 * number as u64,
            Self::Server(number) => 2 * number as u64,
        }
    }

    pub(crate) fn address(self) -> SocketAddr {
        let (net, host) = match self {
            Self::Client(number) => (1, number),
            Self::Server(number) => (0, number),
        };
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, net, host as u8 + 1)), PORT)
    }
}

/// The network. Clones are the same network.
#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<State>>);

struct State {
    now: u64,
    seed: u64,
    next_pipe: u64,
    pipes: BTreeMap<u64, Pipe>,
    /// The listening servers.
    ports: BTreeMap<Node, Queue>,
    /// The directions that are cut.
    cuts: BTreeSet<(Node, Node)>,
    /// An additional delay of every segment, in milliseconds.
    slow_ms: u64,
    delivered: u64,
}

/// The connections that a server has not accepted yet.
#[derive(Default)]
struct Queue {
    streams: VecDeque<(Stream, SocketAddr)>,
    waker: Option<Waker>,
}

/// One direction of a connection.
struct Pipe {
    from: Node,
    to: Node,
    /// The segments on their way, with the time of their arrival.
    way: VecDeque<(u64, Segment)>,
    arrived: VecDeque<Bytes>,
    end: Option<End>,
    bytes: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
    is_unread: bool,
    is_unwritten: bool,
}

enum Segment {
    Data(Bytes),
    End(End),
    /// Opens the connection at a server, which answers through the other pipe.
    Open {
        answer: u64,
    },
    /// The connection is open.
    Opened,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
    Refused,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: 0,
            seed,
            next_pipe: 0,
            pipes: BTreeMap::new(),
            ports: BTreeMap::new(),
            cuts: BTreeSet::new(),
            slow_ms: 0,
            delivered: 0,
        })))
    }

    /// Delivers all segments that arrive up to this time, in milliseconds.
    pub(crate) fn advance(&self, now: u64) {
        let mut state = self.0.lock();
        state.now = now;
        let numbers: Vec<u64> = state.pipes.keys().copied().collect();
        for number in numbers {
            state.deliver(number);
        }
        state.pipes.retain(|_, pipe| !(pipe.is_unread && pipe.is_unwritten && pipe.way.is_empty()));
    }

    /// The number of delivered segments.
    pub(crate) fn delivered(&self) -> u64 {
        self.0.lock().delivered
    }

    /// Opens the port of a server.
    pub(crate) fn listen(&self, server: Node) -> Arc<dyn Accept> {
        self.0.lock().ports.insert(server, Queue::default());
        Arc::new(ListeningPort { net: self.clone(), server })
    }

    /// Ends all connections of a server that has died, and closes its port. Its clients learn of it after this time.
    pub(crate) fn down(&self, server: Node, after_ms: u64) {
        let mut state = self.0.lock();
        let unaccepted = state.ports.remove(&server);
        let at = state.now + after_ms;
        for pipe in state.pipes.values_mut() {
            if pipe.from == server {
                pipe.way.retain(|(arrival, _)| *arrival <= at);
                pipe.way.push_back((at, Segment::End(End::Reset)));
                pipe.is_unwritten = true;
            } else if pipe.to == server {
                pipe.way.clear();
                pipe.is_unread = true;
            }
        }
        drop(state);
        drop(unaccepted);
    }

    /// Cuts a direction, or mends it.
    pub(crate) fn cut(&self, from: Node, to: Node, is_cut: bool) {
        let cuts = &mut self.0.lock().cuts;
        if is_cut {
            cuts.insert((from, to))
        } else {
            cuts.remove(&(from, to))
        };
    }

    /// Sets the additional delay of every segment.
    pub(crate) fn slow(&self, milliseconds: u64) {
        self.0.lock().slow_ms = milliseconds;
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// No server listens there.
    pub(crate) async fn connect(&self, client: Node, server: Node) -> io::Result<Stream> {
        let stream = {
            let mut state = self.0.lock();
            let (there, back) = (state.pipe(client, server), state.pipe(server, client));
            state.send(there, Segment::Open { answer: back });
            Stream { net: self.clone(), reads: back, writes: there }
        };
        std::future::poll_fn(|context| {
            let mut state = self.0.lock();
            let Some(pipe) = state.pipes.get_mut(&stream.reads) else { return Poll::Ready(Err(broken(End::Reset))) };
            match pipe.end {
                Some(end) => Poll::Ready(Err(broken(end))),
                // The answer of the server is an empty piece.
                None if pipe.arrived.front().is_some_and(Bytes::is_empty) => {
                    pipe.arrived.pop_front();
                    Poll::Ready(Ok(()))
                }
                None => {
                    pipe.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await?;
        Ok(stream)
    }
}

fn broken(end: End) -> io::Error {
    io::Error::from(match end {
        End::Closed => io::ErrorKind::UnexpectedEof,
        End::Reset => io::ErrorKind::ConnectionReset,
        End::Refused => io::ErrorKind::ConnectionRefused,
    })
}

impl State {
    fn pipe(&mut self, from: Node, to: Node) -> u64 {
        let number = self.next_pipe;
        self.next_pipe += 1;
        let pipe = Pipe {
            from,
            to,
            way: VecDeque::new(),
            arrived: VecDeque::new(),
            end: None,
            bytes: 0,
            reader: None,
            writer: None,
            is_unread: false,
            is_unwritten: false,
        };
        self.pipes.insert(number, pipe);
        number
    }

    fn send(&mut self, number: u64, segment: Segment) {
        let Some(pipe) = self.pipes.get_mut(&number) else { return };
        let place = pipe.from.number() * 64 + pipe.to.number();
        let mut dice = Dice::at(self.seed, "net", self.now, place);
        let at = self.now + dice.within(DELAY_MS) + self.slow_ms;
        let at = pipe.way.back().map_or(at, |(last, _)| at.max(*last));
        pipe.way.push_back((at, segment));
    }

    fn deliver(&mut self, number: u64) {
        loop {
            let (now, cuts) = (self.now, &self.cuts);
            let Some(pipe) = self.pipes.get_mut(&number) else { return };
            if cuts.contains(&(pipe.from, pipe.to)) || pipe.way.front().is_none_or(|(at, _)| *at > now) {
                return;
            }
            let Some((_, segment)) = pipe.way.pop_front() else { return };
            self.delivered += 1;
            if let Segment::Open { answer } = segment {
                self.open(number, answer);
                continue;
            }
            match segment {
                Segment::Data(bytes) => pipe.arrived.push_back(bytes),
                Segment::Opened => pipe.arrived.push_back(Bytes::new()),
                Segment::End(end) => pipe.end = pipe.end.or(Some(end)),
                Segment::Open { .. } => {}
            }
            pipe.reader.take().into_iter().chain(pipe.writer.take()).for_each(Waker::wake);
        }
    }

    /// Opens a connection whose first segment has arrived.
    fn open(&mut self, there: u64, answer: u64) {
        let Some((client, server)) = self.pipes.get(&there).map(|pipe| (pipe.from, pipe.to)) else { return };
        let Some(queue) = self.ports.get_mut(&server) else {
            // The client's own system reports it for both directions.
            if let Some(pipe) = self.pipes.get_mut(&there) {
                (pipe.end, pipe.is_unread) = (Some(End::Refused), true);
            }
            if let Some(pipe) = self.pipes.get_mut(&answer) {
                pipe.is_unwritten = true;
            }
            return self.send(answer, Segment::End(End::Refused));
        };
        let waker = queue.waker.take();
        self.send(answer, Segment::Opened);
        // The stream refers to the network, whose lock is held here, and takes it only when it is used.
        if let Some(net) = NET.with_borrow(Clone::clone)
            && let Some(queue) = self.ports.get_mut(&server)
        {
            queue.streams.push_back((Stream { net, reads: there, writes: answer }, client.address()));
        }
        waker.into_iter().for_each(Waker::wake);
    }
}

thread_local! {
    /// The network of this thread's simulation, for connections that arrive.
    static NET: std::cell::RefCell<Option<Net>> = const { std::cell::RefCell::new(None) };
}

impl Net {
    /// Makes this the network of the thread.
    pub(crate) fn enter(&self) {
        NET.set(Some(self.clone()));
    }
}

struct ListeningPort {
    net: Net,
    server: Node,
}

impl Accept for ListeningPort {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Transport>, SocketAddr)>> {
        Box::pin(std::future::poll_fn(|context| {
            let mut state = self.net.0.lock();
            let Some(queue) = state.ports.get_mut(&self.server) else { return Poll::Ready(Err(broken(End::Closed))) };
            match queue.streams.pop_front() {
                Some((stream, peer)) => Poll::Ready(Ok((Box::new(stream) as Box<dyn Transport>, peer))),
                None => {
                    queue.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn local_addr(&self) -> SocketAddr {
        self.server.address()
    }
}

/// One end of a connection.
pub(crate) struct Stream {
    net: Net,
    reads: u64,
    writes: u64,
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.net.0.lock();
        let Some(pipe) = state.pipes.get_mut(&self.reads) else { return Poll::Ready(Err(broken(End::Reset))) };
        if let Some(piece) = pipe.arrived.front_mut() {
            let count = piece.len().min(buffer.remaining());
            buffer.put_slice(&piece[..count]);
            piece.advance(count);
            if piece.is_empty() {
                pipe.arrived.pop_front();
            }
            pipe.bytes -= count;
            pipe.writer.take().into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
        match pipe.end {
            Some(End::Closed) => Poll::Ready(Ok(())),
            Some(end) => Poll::Ready(Err(broken(end))),
            None => {
                pipe.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.net.0.lock();
        let Some(pipe) = state.pipes.get_mut(&self.writes) else { return Poll::Ready(Err(broken(End::Reset))) };
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if pipe.is_unwritten || pipe.is_unread {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = WINDOW_BYTES.saturating_sub(pipe.bytes);
        if room == 0 {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = bytes.len().min(room);
        pipe.bytes += count;
        state.send(self.writes, Segment::Data(Bytes::copy_from_slice(&bytes[..count])));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.0.lock().close(self.writes);
        Poll::Ready(Ok(()))
    }
}

impl State {
    /// Closes a direction for its writer.
    fn close(&mut self, number: u64) {
        if let Some(pipe) = self.pipes.get_mut(&number)
            && !pipe.is_unwritten
        {
            pipe.is_unwritten = true;
            self.send(number, Segment::End(End::Closed));
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.net.0.lock();
        state.close(self.writes);
        if let Some(pipe) = state.pipes.get_mut(&self.reads) {
            pipe.is_unread = true;
            pipe.writer.take().into_iter().for_each(Waker::wake);
        }
    }
}
