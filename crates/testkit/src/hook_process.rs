//! A hook server in a separate process, which can be killed, stopped, and restarted at its address.
//!
//! The process is a second run of the test program that executes only the test that calls [`hook_process`]. In a normal
//! run that test does nothing. So no further program has to be built. The process reads orders, one a line, from its
//! input, and writes reports to its output. It ends with its parent. A process in the state `waits` answers after its
//! next order.

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::CertificateParams;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use crate::hook::{HookIdentity, HookReply, HookRequest, HookServer};

/// The longest wait for the process.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between attempts to bind the previous address.
const BIND_EVERY: Duration = Duration::from_millis(20);
/// The environment variable with the process's address and identity.
const SETTINGS: &str = "KEELSON_TEST_HOOK_PROCESS";
/// The prefix of its output lines, which distinguishes them from other output of the test program.
const MARK: &str = "hook: ";
/// The order to hold requests until the next order, which then decides their responses.
const WAITS: &str = "waits";

/// A hook in a separate process. Killed when dropped.
pub struct HookProcess {
    test: String,
    variables: Variables,
    identity: HookIdentity,
    addr: SocketAddr,
    child: Child,
    orders: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
}

/// Additional environment variables of the process.
type Variables = Vec<(&'static str, OsString)>;

impl HookProcess {
    /// Runs the test with this full name as the process. The test must call [`hook_process`].
    ///
    /// # Panics
    /// When the process does not listen within a minute.
    pub async fn start(test: &str) -> Self {
        Self::with_variables(test, Vec::new()).await
    }

    /// Runs the process with these environment variables.
    ///
    /// # Panics
    /// As [`HookProcess::start`].
    pub async fn with_variables(test: &str, variables: Vec<(&'static str, OsString)>) -> Self {
        Self::named(test, &["127.0.0.1"], variables).await
    }

    /// Runs the process behind a service: its certificate has the service's name, such as `hook.default.svc`.
    ///
    /// # Panics
    /// As [`HookProcess::start`].
    pub async fn behind(test: &str, service: &str) -> Self {
        Self::named(test, &["127.0.0.1", service], Vec::new()).await
    }

    async fn named(test: &str, names: &[&str], variables: Variables) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let identity = HookIdentity::fresh(CertificateParams::new(names).expect("names that a certificate can have"));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (child, orders, told) = run(test, &variables, any, &identity);
        let mut process = Self { test: test.to_owned(), variables, identity, addr: any, child, orders, told };
        process.listens().await;
        process
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.addr)
    }

    /// The authority of its certificate, in base64 as in configurations.
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(self.identity.ca())
    }

    /// Sends an order, and waits until it is in force.
    ///
    /// # Panics
    /// When the change is not confirmed within a minute.
    pub async fn be(&mut self, mood: &str) {
        self.orders.write_all(format!("{mood}\n").as_bytes()).await.expect("the process reads its orders");
        while self.line().await != format!("is {mood}") {}
    }

    /// Waits for one more request since the last order, or since the last call of this method.
    ///
    /// # Panics
    /// No request comes within a minute.
    pub async fn asked(&mut self) {
        while self.line().await != "asked" {}
    }

    /// Kills the process (SIGKILL): connections break, and its address refuses new ones.
    ///
    /// # Panics
    /// It can't be killed.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child of ours can be killed");
    }

    /// Sends another signal: after `-STOP` it accepts connections and does not answer, until `-CONT`.
    ///
    /// # Panics
    /// The signal can't be sent.
    pub async fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().await;
        assert!(sent.is_ok_and(|status| status.success()), "cannot send a signal to process {pid}");
        // The process stops a moment after the signal.
        while signal == "-STOP" && !is_stopped(&pid) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Restarts it at its address and with its certificate, after a [`kill`](Self::kill).
    ///
    /// # Panics
    /// When the process does not listen within a minute.
    pub async fn restart(&mut self) {
        assert!(self.child.id().is_none(), "the process still runs");
        (self.child, self.orders, self.told) = run(&self.test, &self.variables, self.addr, &self.identity);
        self.listens().await;
    }

    async fn listens(&mut self) {
        let line = self.line().await;
        let addr = line.strip_prefix("listens ").and_then(|addr| addr.parse().ok());
        self.addr = addr.unwrap_or_else(|| panic!("the process wrote {line:?}"));
    }

    /// The next line of its output.
    async fn line(&mut self) -> String {
        let next = async {
            loop {
                let line = self.told.next_line().await.expect("its output can be read").expect("it has not ended");
                if let Some(line) = line.strip_prefix(MARK) {
                    return line.to_owned();
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("the process writes nothing")
    }
}

fn run(
    test: &str,
    variables: &Variables,
    addr: SocketAddr,
    identity: &HookIdentity,
) -> (Child, ChildStdin, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(env::current_exe().expect("a test is a program"));
    command.args(["--exact", test, "--nocapture"]).env(SETTINGS, format!("{addr} {}", identity.to_text()));
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("the test program can be run");
    let orders = child.stdin.take().expect("it is a pipe");
    let told = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    (child, orders, told)
}

/// Runs the hook if this process was started as one, until its input ends. Otherwise does nothing. `answer` gets the
/// current order and the request.
///
/// # Panics
/// An order is invalid.
pub async fn hook_process(answer: impl Fn(&str, &HookRequest) -> HookReply + Send + Sync + 'static) {
    let Ok(settings) = env::var(SETTINGS) else { return };
    let (addr, identity) = settings.split_once(' ').expect("an address and an identity");
    let identity = HookIdentity::from_text(identity).expect("who it is");
    let (told, mood) = watch::channel(String::new());
    let answer = Arc::new(answer);
    let hook = HookServer::on(bind(addr.parse().expect("an address")).await, identity, move |request| {
        let (mut mood, answer) = (mood.clone(), answer.clone());
        // The order at the time of the request decides.
        let now = mood.borrow_and_update().clone();
        say("asked");
        async move {
            if now != WAITS {
                return answer(&now, &request);
            }
            let later = mood.wait_for(|told| told != WAITS).await.map(|told| told.clone());
            answer(&later.unwrap_or_default(), &request)
        }
    });
    say(&format!("listens {}", hook.addr()));
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(order)) = orders.next_line().await {
        told.send_replace(order.clone());
        say(&format!("is {order}"));
    }
}

/// Writes a report to the parent. It begins a new line, since other output may precede it.
fn say(what: &str) {
    let mut output = std::io::stdout().lock();
    let said = writeln!(output, "\n{MARK}{what}").and_then(|()| output.flush());
    said.expect("the parent process reads the reports");
}

/// Binds the address. It retries, because a connection of another test may use the port for a moment.
async fn bind(addr: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(addr).await {
            Ok(listener) => return listener,
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => tokio::time::sleep(BIND_EVERY).await,
            Err(error) => panic!("cannot listen on {addr}: {error}"),
        }
    }
}

/// Returns true if `proc(5)` reports the process as stopped, or if its state is unknown.
fn is_stopped(pid: &str) -> bool {
    let said = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // The state follows the program's name, which is in brackets and may contain brackets.
    said.map_or(true, |said| said.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T')))
}
