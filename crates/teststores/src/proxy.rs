//! A way to a server on which questions and answers get lost.
//!
//! It stands between a client and a server of this machine and passes bytes on, both ways, until a question comes by whose
//! answer it was told to lose: the server does what it is asked, and nobody hears of it. Or it loses the question itself. No protocol is
//! known here; a question is known by some bytes in it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How many bytes are passed on at once.
const PIECE: usize = 64 * 1024;

/// A way to a server. Its threads end with its connections, and with the process.
#[derive(Clone, Debug)]
pub struct LossyWay {
    port: u16,
    controls: Arc<Controls>,
}

#[derive(Debug, Default)]
struct Controls {
    /// By what the questions are known whose answers are dropped, and all that follow on the same connection.
    eaten: Mutex<Option<Vec<u8>>>,
    /// The bytes of questions that do not arrive, nor anything behind them on the same connection.
    kept: Mutex<Option<Vec<u8>>>,
    /// True if one of these has come by.
    has_kept: AtomicBool,
    /// Whether new connections are closed at once.
    closed: AtomicBool,
    /// Both ends of every connection that was made.
    open: Mutex<Vec<TcpStream>>,
}

impl LossyWay {
    /// A way to this port of the loopback address.
    ///
    /// # Panics
    /// When no port is free.
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

    /// The port of its near end.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// From the next question with these bytes on, nothing is heard any more on its connection.
    pub fn eat_answer_to(&self, question: impl Into<Vec<u8>>) {
        *self.controls.eaten() = Some(question.into());
    }

    /// The next question with these bytes does not arrive, and its connection stays open.
    pub fn eat(&self, question: impl Into<Vec<u8>>) {
        self.controls.has_kept.store(false, Ordering::SeqCst);
        *self.controls.kept() = Some(question.into());
    }

    /// Returns true if that question has come by.
    pub fn has_eaten(&self) -> bool {
        self.controls.has_kept.load(Ordering::SeqCst)
    }

    /// Breaks all connections. Those that are made from now on are whole.
    pub fn mend(&self) {
        *self.controls.eaten() = None;
        *self.controls.kept() = None;
        self.controls.closed.store(false, Ordering::SeqCst);
        self.controls.break_all();
    }

    /// Breaks all connections, and lets none be made.
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
        // A server that is away shows by the end of the connection.
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
            if !answers && self.kept().take_if(|kept| holds(piece, kept)).is_some() {
                self.has_kept.store(true, Ordering::SeqCst);
                keeps = true;
            }
            if keeps {
                continue;
            }
            if !answers && self.eaten().as_ref().is_some_and(|eaten| holds(piece, eaten)) {
                // ORDER: before the question is passed on, so that its answer finds it so.
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

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn break_all(&self) {
        for stream in self.open().drain(..) {
            // One that has ended by itself needs no end.
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
    fn questions_arrive_whose_answers_are_eaten() {
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
