//! A proxy to a server that loses requests and responses.
//!
//! The proxy forwards bytes between a client and a local server until a marked request passes. Then it drops the
//! response, so that the server acts and the client learns nothing, or it drops the request itself. It knows no
//! protocol: a request is recognized by some bytes in it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The most bytes forwarded at once.
const PIECE: usize = 64 * 1024;

/// A proxy to a server. Its threads end with its connections, and with the process.
#[derive(Clone, Debug)]
pub struct LossyWay {
    port: u16,
    controls: Arc<Controls>,
}

#[derive(Debug, Default)]
struct Controls {
    /// The bytes of requests whose responses are dropped, with everything after them on the same connection.
    eaten: Mutex<Option<Vec<u8>>>,
    /// The bytes of requests that are dropped, with everything after them on the same connection.
    kept: Mutex<Option<Vec<u8>>>,
    /// True after such a request has passed.
    has_kept: AtomicBool,
    /// True to close new connections at once.
    closed: AtomicBool,
    /// Both ends of every connection so far.
    open: Mutex<Vec<TcpStream>>,
}

impl LossyWay {
    /// Starts a proxy to this port of the loopback address.
    ///
    /// # Panics
    /// No port is free.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback address has a free port");
        let own = listener.local_addr().expect("a bound socket has an address").port();
        let controls = Arc::new(Controls::default());
        let way = Self { port: own, controls: controls.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                controls.join(&client, port);
            }
        });
        way
    }

    /// The port for clients.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Drops all responses on a connection from the next request with these bytes on.
    pub fn eat_answer_to(&self, question: impl Into<Vec<u8>>) {
        *self.controls.eaten() = Some(question.into());
    }

    /// Drops the next request with these bytes. Its connection stays open.
    pub fn eat(&self, question: impl Into<Vec<u8>>) {
        self.controls.has_kept.store(false, Ordering::SeqCst);
        *self.controls.held_bytes() = Some(question.into());
    }

    /// Returns true if that request has passed.
    pub fn has_eaten(&self) -> bool {
        self.controls.has_kept.load(Ordering::SeqCst)
    }

    /// Breaks all connections. New ones work.
    pub fn mend(&self) {
        *self.controls.eaten() = None;
        *self.controls.held_bytes() = None;
        self.controls.closed.store(false, Ordering::SeqCst);
        self.controls.break_all();
    }

    /// Breaks all connections and refuses new ones.
    pub fn close(&self) {
        self.controls.closed.store(true, Ordering::SeqCst);
        self.controls.break_all();
    }
}

impl Controls {
    fn join(self: &Arc<Self>, client: &TcpStream, port: u16) {
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        // If the server is unavailable, the connection ends.
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
        let copy = |stream: &TcpStream| stream.try_clone().expect("a socket can be held twice");
        self.open().extend([copy(client), copy(&server)]);
        let eats = Arc::new(AtomicBool::new(false));
        for (from, to, answers) in [(copy(client), copy(&server), false), (copy(&server), copy(client), true)] {
            let _ = (from.set_nodelay(true), to.set_nodelay(true));
            let (controls, eats) = (self.clone(), eats.clone());
            std::thread::spawn(move || controls.carry((from, to), answers, &eats));
        }
    }

    fn carry(&self, (mut from, mut to): (TcpStream, TcpStream), answers: bool, eats: &AtomicBool) {
        let (mut piece, mut keeps) = (vec![0; PIECE], false);
        while let Ok(length @ 1..) = from.read(&mut piece) {
            let piece = &piece[..length];
            if !answers && self.held_bytes().take_if(|kept| holds(piece, kept)).is_some() {
                self.has_kept.store(true, Ordering::SeqCst);
                keeps = true;
            }
            if keeps {
                continue;
            }
            if !answers && self.eaten().as_ref().is_some_and(|eaten| holds(piece, eaten)) {
                // ORDER: before the request is forwarded, so that its response is dropped.
                eats.store(true, Ordering::SeqCst);
            }
            let eaten = answers && eats.load(Ordering::SeqCst);
            if !eaten && to.write_all(piece).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    fn eaten(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.eaten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_bytes(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn break_all(&self) {
        for stream in self.open().drain(..) {
            // A connection may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn holds(piece: &[u8], word: &[u8]) -> bool {
    piece.windows(word.len().max(1)).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(stream: &mut TcpStream, word: &[u8]) {
        stream.write_all(word).expect("the way is open");
    }

    #[test]
    fn requests_arrive_if_the_proxy_drops_their_responses() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let way = LossyWay::to(server.local_addr().expect("it is bound").port());
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, way.port())).expect("it listens");
        let (mut client, (mut end, _)) = (connect(), server.accept().expect("it is passed on"));
        let mut heard = [0; 3];
        way.eat_answer_to(*b"ask");
        say(&mut client, b"ask");
        end.read_exact(&mut heard).expect("the question arrives");
        say(&mut end, b"yes");
        way.mend();
        assert!(!matches!(client.read(&mut heard), Ok(1..)), "the answer is lost with its connection");
        let (mut client, (mut end, _)) = (connect(), server.accept().expect("it is passed on"));
        say(&mut end, b"yes");
        client.read_exact(&mut heard).expect("the next one is whole");
        assert_eq!(&heard, b"yes");
        way.eat(*b"lost");
        say(&mut client, b"lost");
        say(&mut client, b"ask");
        while !way.has_eaten() {
            std::thread::yield_now();
        }
        let (mut client, (mut end, _)) = (connect(), server.accept().expect("it is passed on"));
        say(&mut client, b"ask");
        end.read_exact(&mut heard).expect("another connection is whole");
        way.close();
        assert!(!matches!(connect().read(&mut heard), Ok(1..)));
    }
}
