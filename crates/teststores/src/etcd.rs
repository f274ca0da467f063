//! A private etcd with one or several members.
//!
//! Variables name the binary; without them the tests report that they did not run. It listens on free ports and ends
//! with the test process.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::guard::{GuardedServer, free_port, with_libraries};
use crate::named_by;

/// Names the default etcd of tests: an old one, as in distributions.
const VARIABLE: &str = "KEELSON_ETCD";
/// Names the newest etcd.
const NEWEST: &str = "KEELSON_ETCD_NEWEST";

/// The most attempts to start: another process may take a port that was free.
const TRIES: usize = 5;
/// The longest wait for an answer of a starting server.
const ANSWER: Duration = Duration::from_secs(1);
/// The interval between checks for a leader.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The longest wait for any other answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The settings of an etcd.
#[derive(Clone, Debug)]
pub struct EtcdServerBuilder {
    variable: &'static str,
    args: Vec<String>,
    scheme: &'static str,
}

impl EtcdServerBuilder {
    /// Uses the newest supported etcd instead of the default one.
    #[must_use]
    pub const fn newest(mut self) -> Self {
        self.variable = NEWEST;
        self
    }

    /// Adds an argument such as `--max-request-bytes=10485760`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Uses TLS for clients; the arguments name the certificates.
    #[must_use]
    pub const fn tls(mut self) -> Self {
        self.scheme = "https";
        self
    }

    /// Starts it and waits for its leader. `None` where this machine has no etcd.
    ///
    /// # Panics
    /// When etcd does not start; the text ends with its log.
    pub fn start(self) -> Option<EtcdServer> {
        self.start_members(1)?.pop()
    }

    /// Starts this many members of one etcd and waits for a leader. `None` where this machine has no etcd.
    ///
    /// # Panics
    /// When the members do not start; the text ends with the log of one of them.
    pub fn start_cluster(self, members: usize) -> Option<EtcdCluster> {
        self.start_members(members).map(|members| EtcdCluster { members })
    }

    fn start_members(self, number: usize) -> Option<Vec<EtcdServer>> {
        let program = named_by(self.variable)?;
        let mut failure = String::new();
        for _ in 0..TRIES {
            match self.try_start(&program, number) {
                Ok(members) => return Some(members),
                Err(text) => failure = text,
            }
        }
        panic!("{failure}");
    }

    fn try_start(&self, program: &Path, number: usize) -> Result<Vec<EtcdServer>, String> {
        let ports: Vec<[u16; 3]> = (0..number).map(|_| [free_port(), free_port(), free_port()]).collect();
        let peers: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(place, ports)| format!("{}=http://127.0.0.1:{}", name(place), ports[1]))
            .collect();
        let mut members = Vec::with_capacity(number);
        for (place, ports) in ports.into_iter().enumerate() {
            let (program, scheme, name) = (program.to_owned(), self.scheme, name(place));
            let args = [vec![format!("--initial-cluster={}", peers.join(","))], self.args.clone()].concat();
            let mut member = EtcdServer { guarded: GuardedServer::new("KILL"), program, args, scheme, name, ports };
            // A single one of several members is not healthy yet.
            let is_ready = if number == 1 { is_healthy } else { is_up };
            member.launch(is_ready)?;
            members.push(member);
        }
        let deadline = Instant::now() + PATIENCE;
        while let Some(sick) = members.iter().find(|member| !is_healthy(member.ports[2])) {
            // Another process may have taken a port since it was free, and answered in place of a member.
            if Instant::now() > deadline {
                return Err(format!("the members elect no leader:\n{}", sick.log()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(members)
    }
}

/// The members of one etcd, each a process of its own.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<EtcdServer>,
}

impl EtcdCluster {
    /// Starts three members with default settings. `None` where this machine has no etcd.
    pub fn start() -> Option<Self> {
        EtcdServer::builder().start_cluster(3)
    }

    /// The client addresses, separated by commas.
    pub fn endpoints(&self) -> String {
        let endpoints: Vec<String> = self.members.iter().map(EtcdServer::endpoint).collect();
        endpoints.join(",")
    }

    /// The members, in the order of the endpoints.
    pub fn members(&self) -> &[EtcdServer] {
        &self.members
    }

    /// One member, to be killed or started.
    ///
    /// # Panics
    /// There is no such member.
    pub fn member(&mut self, place: usize) -> &mut EtcdServer {
        &mut self.members[place]
    }

    /// The index of the leader according to the given members; leave out dead and paused ones. Waits until there is
    /// one.
    ///
    /// # Panics
    /// No leader is elected.
    pub fn leader(&self, among: &[usize]) -> usize {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let leads = |place: &&usize| {
                let status = self.members[**place].ask("/v3/maintenance/status", "{}");
                number_of(&status, "leader").is_some_and(|leader| number_of(&status, "member_id") == Some(leader))
            };
            if let Some(leader) = among.iter().find(leads) {
                return *leader;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        panic!("no leader is elected");
    }
}

/// A running etcd, or one of its members.
#[derive(Debug)]
pub struct EtcdServer {
    guarded: GuardedServer,
    program: PathBuf,
    args: Vec<String>,
    scheme: &'static str,
    name: String,
    /// The ports for clients, for other members, and for metrics and health without TLS.
    ports: [u16; 3],
}

impl EtcdServer {
    /// Starts one with default settings. `None` where this machine has no etcd.
    pub fn start() -> Option<Self> {
        Self::builder().start()
    }

    /// A builder for an etcd.
    pub const fn builder() -> EtcdServerBuilder {
        EtcdServerBuilder { variable: VARIABLE, args: Vec::new(), scheme: "http" }
    }

    /// The etcd that all tests of this process share, each under a prefix of its own. Ends with the process.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: std::sync::OnceLock<Option<EtcdServer>> = std::sync::OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// The address for clients, `127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// The port for clients.
    pub const fn port(&self) -> u16 {
        self.ports[0]
    }

    /// Sends a request to its JSON gateway: `/v3/kv/put` and others, with keys and values in base64. Only without TLS.
    ///
    /// # Panics
    /// It does not answer, or refuses.
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

    /// Defragments it and disarms its space alarm. Pages of an unfinished compaction are not freed.
    ///
    /// # Panics
    /// It does not answer, or refuses.
    pub fn make_room(&self) {
        self.ask("/v3/maintenance/defragment", "{}");
        let alarms = self.ask("/v3/maintenance/alarm", r#"{"action":"GET"}"#);
        let member = alarms.split("\"memberID\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let Some(member) = member else { return };
        let disarm = format!(r#"{{"action":"DEACTIVATE","memberID":"{member}","alarm":"NOSPACE"}}"#);
        self.ask("/v3/maintenance/alarm", &disarm);
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.guarded.log()
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.guarded.kill();
    }

    /// Stops its process (SIGSTOP): connections stay open without answers.
    pub fn pause(&self) {
        self.guarded.signal("STOP");
    }

    /// Continues a stopped process.
    pub fn resume(&self) {
        self.guarded.signal("CONT");
    }

    /// Restarts it on the same data and ports, after a [`kill`](Self::kill).
    ///
    /// # Panics
    /// It does not start.
    pub fn start_again(&mut self) {
        if let Err(failure) = self.launch(is_healthy) {
            panic!("{failure}");
        }
    }

    /// Copies its data, after a [`kill`](Self::kill), like a volume snapshot.
    ///
    /// # Panics
    /// The data can't be copied.
    pub fn copy_data(&self) {
        self.copy("data", "copied");
    }

    /// Restores the copy of [`copy_data`](Self::copy_data), after a [`kill`](Self::kill).
    ///
    /// # Panics
    /// There is no copy.
    pub fn put_data_back(&self) {
        self.copy("copied", "data");
    }

    /// Removes all of its data, after a [`kill`](Self::kill). It starts again as an empty etcd with the same cluster
    /// id.
    ///
    /// # Panics
    /// The data can't be removed.
    pub fn remove_data(&self) {
        assert!(!self.guarded.runs(), "it still writes its data");
        std::fs::remove_dir_all(self.guarded.directory().join("data")).expect("its directory is ours");
    }

    fn copy(&self, from: &str, to: &str) {
        assert!(!self.guarded.runs(), "it still writes its data");
        let [from, to] = [from, to].map(|name| self.guarded.directory().join(name));
        if to.exists() {
            std::fs::remove_dir_all(&to).expect("its directory is ours");
        }
        copy_directory(&from, &to).expect("its data can be copied");
    }

    fn launch(&mut self, is_ready: fn(u16) -> bool) -> Result<(), String> {
        let [client, peer, health] = self.ports;
        let (client, peer) = (format!("{}://127.0.0.1:{client}", self.scheme), format!("http://127.0.0.1:{peer}"));
        let mut command = with_libraries(&self.program);
        command.arg("--data-dir").arg(self.guarded.directory().join("data")).args(["--name", &self.name]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--listen-metrics-urls", &format!("http://127.0.0.1:{health}"), "--log-level=warn"]);
        command.args(["--logger=zap"]).args(&self.args);
        self.guarded.start(&mut command, || is_ready(health))
    }
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    // etcd needs a directory that only its user can access.
    std::fs::DirBuilder::new().mode(0o700).create(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_directory(&path, &target)?;
        } else {
            std::fs::copy(path, target)?;
        }
    }
    Ok(())
}

fn name(place: usize) -> String {
    format!("test-{place}")
}

/// The number after a name; etcd's JSON has it in quotes.
fn number_of(json: &str, name: &str) -> Option<u64> {
    let (_, after) = json.split_once(&format!("\"{name}\":\""))?;
    after.split('"').next()?.parse().ok()
}

/// Returns true if the member has a leader.
fn is_healthy(port: u16) -> bool {
    health(port).is_ok_and(|answer| answer.contains("\"health\":\"true\""))
}

/// Returns true if the member runs, with a leader or without.
fn is_up(port: u16) -> bool {
    health(port).is_ok_and(|answer| !answer.is_empty())
}

fn health(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_servers_restart_on_their_data_and_dropped_ones_end() {
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

    #[test]
    fn members_of_a_cluster_elect_another_leader_when_theirs_is_killed() {
        let Some(mut cluster) = EtcdCluster::start() else { return };
        let first = cluster.leader(&[0, 1, 2]);
        cluster.member(first).kill();
        let others: Vec<usize> = (0..3).filter(|place| *place != first).collect();
        assert!(others.contains(&cluster.leader(&others)));
        cluster.member(first).start_again();
        assert!(cluster.members().iter().all(|member| is_healthy(member.ports[2])));
    }
}
