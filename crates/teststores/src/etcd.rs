//! A private etcd, of one member.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use crate::guard::{Guarded, free_port, with_libraries};
use crate::named_by;

const VARIABLE: &str = "KEELSON_ETCD";

/// How often a start is tried: another process may take a port that was free.
const TRIES: usize = 5;
/// Longest wait for an answer of a server that is starting.
const ANSWER: Duration = Duration::from_secs(1);
/// Longest wait for any other answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to start.
#[derive(Debug)]
pub struct EtcdServerBuilder {
    args: Vec<String>,
    scheme: &'static str,
}

impl EtcdServerBuilder {
    /// An argument, as `--max-request-bytes=10485760`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Clients speak TLS to it; the arguments name the certificates.
    #[must_use]
    pub const fn tls(mut self) -> Self {
        self.scheme = "https";
        self
    }

    /// Starts it and waits until it has elected itself. None where this machine can't have an etcd.
    ///
    /// # Panics
    /// When it does not start; the text ends with what it logged.
    pub fn start(self) -> Option<EtcdServer> {
        let program = named_by(VARIABLE)?;
        let Self { args, scheme } = self;
        let guarded = Guarded::new("KILL");
        let ports = [free_port(), free_port(), free_port()];
        let mut server = EtcdServer { guarded, program, args, scheme, ports };
        server.launch(|server| server.ports = [free_port(), free_port(), free_port()]);
        Some(server)
    }
}

/// A running etcd.
#[derive(Debug)]
pub struct EtcdServer {
    guarded: Guarded,
    program: PathBuf,
    args: Vec<String>,
    scheme: &'static str,
    /// For clients, for other members, and for metrics and health without TLS.
    ports: [u16; 3],
}

impl EtcdServer {
    /// Starts one with the usual settings. None where this machine can't have an etcd.
    pub fn start() -> Option<Self> {
        Self::builder().start()
    }

    /// One with arguments of its own.
    pub const fn builder() -> EtcdServerBuilder {
        EtcdServerBuilder { args: Vec::new(), scheme: "http" }
    }

    /// The one that all tests of this process share, each under a prefix of its own. It ends with the process.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: std::sync::OnceLock<Option<EtcdServer>> = std::sync::OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// Where clients reach it, `127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// Its port for clients.
    pub const fn port(&self) -> u16 {
        self.ports[0]
    }

    /// Asks it in JSON, as its gateway for HTTP takes it: `/v3/kv/put` and the like, keys and values in base64. Only
    /// without TLS.
    ///
    /// # Panics
    /// When it does not answer, or refuses.
    pub fn ask(&self, path: &str, body: &str) -> String {
        let ask = || {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let length = body.len();
            write!(stream, "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n{body}")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            std::io::Result::Ok(answer)
        };
        let answer = ask().unwrap_or_else(|error| panic!("etcd does not answer {path}: {error}"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        assert!(head.lines().next().is_some_and(|status| status.contains(" 200 ")), "{path}: {answer}");
        body.to_owned()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.guarded.log()
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.guarded.kill();
    }

    /// Stops its process where it is (SIGSTOP): connections stay open, and nobody answers.
    pub fn pause(&self) {
        self.guarded.signal("STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.guarded.signal("CONT");
    }

    /// Starts it again on the same data and ports, after a [`kill`](Self::kill).
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.launch(|_| ());
    }

    fn launch(&mut self, before_next_try: impl Fn(&mut Self)) {
        let mut failure = String::new();
        for _ in 0..TRIES {
            let [client, peer, health] = self.ports;
            let (client, peer) = (format!("{}://127.0.0.1:{client}", self.scheme), format!("http://127.0.0.1:{peer}"));
            let mut command = with_libraries(&self.program);
            command.arg("--data-dir").arg(self.guarded.directory().join("data"));
            command.args(["--name=test", "--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &format!("test={peer}")]);
            command.args(["--listen-metrics-urls", &format!("http://127.0.0.1:{health}"), "--log-level=warn"]);
            command.args(["--logger=zap"]).args(&self.args);
            match self.guarded.start(&mut command, || is_healthy(health)) {
                Ok(()) => return,
                Err(text) => failure = text,
            }
            before_next_try(self);
        }
        panic!("{failure}");
    }
}

/// Asks whether the member has a leader.
fn is_healthy(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer.contains("\"health\":\"true\""))
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_server_comes_back_on_its_data_and_a_dropped_one_is_gone() {
        let Some(mut server) = EtcdServer::start() else { return };
        let directory = server.guarded.directory().to_owned();
        let health = server.ports[2];
        server.kill();
        assert!(!is_healthy(health));
        server.start_again();
        assert!(is_healthy(health));
        drop(server);
        assert!(!is_healthy(health));
        assert!(!directory.exists());
    }
}
