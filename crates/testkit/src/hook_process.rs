//! Somebody whom the server calls, in a process of its own: one that can be killed, stopped, and started again at its address.
//!
//! The process is the test program once more, told to run the one test that calls [`hook_process`], which does nothing when it runs
//! among the others: so it costs no program to build. What it is to do comes as lines to its input, what it does goes as
//! lines to its output, and it ends with whoever started it. One that is told to wait answers when it is told something else.

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

/// Longest time that the process is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the address that the process had before is tried.
const BIND_EVERY: Duration = Duration::from_millis(20);
/// The variable that tells the process where it listens and who it is.
const SETTINGS: &str = "KEELSON_TEST_HOOK_PROCESS";
/// What tells its lines from those of the test program.
const MARK: &str = "hook: ";
/// What it does that is told so: it answers nobody until it is told something else, and then as that.
const WAITS: &str = "waits";

/// A hook in a process of its own, which is killed when this is dropped.
pub struct HookProcess {
    test: String,
    variables: Variables,
    identity: HookIdentity,
    addr: SocketAddr,
    child: Child,
    orders: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
}

/// What the process finds in its environment, besides what this program finds in its own.
type Variables = Vec<(&'static str, OsString)>;

impl HookProcess {
    /// Runs a test of this program, by its whole name, as the process: one that calls [`hook_process`].
    ///
    /// # Panics
    /// When it does not listen within a minute.
    pub async fn start(test: &str) -> Self {
        Self::with_variables(test, Vec::new()).await
    }

    /// The same with these variables in its environment.
    ///
    /// # Panics
    /// As [`HookProcess::start`].
    pub async fn with_variables(test: &str, variables: Vec<(&'static str, OsString)>) -> Self {
        Self::named(test, &["127.0.0.1"], variables).await
    }

    /// The same behind a service: its certificate has the name of that, such as `hook.default.svc`.
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

    /// A URL there.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.addr)
    }

    /// The authority that signed its certificate, in base64 as configurations have it.
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(self.identity.ca())
    }

    /// Tells it what to do from now on; it does when this returns.
    ///
    /// # Panics
    /// When it does not say so within a minute.
    pub async fn be(&mut self, mood: &str) {
        self.orders.write_all(format!("{mood}\n").as_bytes()).await.expect("the process reads what it is told");
        while self.line().await != format!("is {mood}") {}
    }

    /// Waits until it has been asked once more since it was told what to do, or since this was last called.
    ///
    /// # Panics
    /// When that does not come within a minute.
    pub async fn asked(&mut self) {
        while self.line().await != "asked" {}
    }

    /// SIGKILL: connections break, and its address refuses new ones.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child of ours can be killed");
    }

    /// Sends it another signal: after `-STOP` it takes connections and does not answer, until `-CONT`.
    ///
    /// # Panics
    /// When that can't be sent.
    pub async fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().await;
        assert!(sent.is_ok_and(|status| status.success()), "cannot send a signal to process {pid}");
        // It is told at once and stops soon.
        while signal == "-STOP" && !is_stopped(&pid) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Starts it again, at its address and with its certificate, after a [`kill`](Self::kill).
    ///
    /// # Panics
    /// When it does not listen within a minute.
    pub async fn restart(&mut self) {
        assert!(self.child.id().is_none(), "the process still runs");
        (self.child, self.orders, self.told) = run(&self.test, &self.variables, self.addr, &self.identity);
        self.listens().await;
    }

    async fn listens(&mut self) {
        let line = self.line().await;
        let addr = line.strip_prefix("listens ").and_then(|addr| addr.parse().ok());
        self.addr = addr.unwrap_or_else(|| panic!("the process said {line:?}"));
    }

    /// The next thing that it says.
    async fn line(&mut self) -> String {
        let next = async {
            loop {
                let line = self.told.next_line().await.expect("its output can be read").expect("it has not ended");
                if let Some(line) = line.strip_prefix(MARK) {
                    return line.to_owned();
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("the process says nothing")
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

/// Is the process, until its input ends, if it was started as one; nothing otherwise. `answer` is given what it is to do, and the
/// request.
///
/// # Panics
/// When it was told nonsense.
pub async fn hook_process(answer: impl Fn(&str, &HookRequest) -> HookReply + Send + Sync + 'static) {
    let Ok(settings) = env::var(SETTINGS) else { return };
    let (addr, identity) = settings.split_once(' ').expect("an address and who it is");
    let identity = HookIdentity::from_text(identity).expect("who it is");
    let (told, mood) = watch::channel(String::new());
    let answer = Arc::new(answer);
    let hook = HookServer::on(bind(addr.parse().expect("an address")).await, identity, move |request| {
        let (mut mood, answer) = (mood.clone(), answer.clone());
        // What it does is what it was told when it was asked.
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

/// Tells who started this process, in a line of its own whatever stands before it.
fn say(what: &str) {
    let mut output = std::io::stdout().lock();
    let said = writeln!(output, "\n{MARK}{what}").and_then(|()| output.flush());
    said.expect("whoever started this process reads what it says");
}

/// Somebody may have the port of the process before for a moment: a connection of another test.
async fn bind(addr: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(addr).await {
            Ok(listener) => return listener,
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => tokio::time::sleep(BIND_EVERY).await,
            Err(error) => panic!("cannot listen on {addr}: {error}"),
        }
    }
}

/// Whether a process stands still, as the system says it (`proc(5)`); where that can't be asked it is taken for granted.
fn is_stopped(pid: &str) -> bool {
    let said = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // The state follows the name of the program, which stands in brackets and may have any others within.
    said.map_or(true, |said| said.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T')))
}
