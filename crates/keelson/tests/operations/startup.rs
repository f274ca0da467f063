//! Tests of a server that another program starts and stops: the program learns the server's address, and the server
//! ends with it.
//!
//! The tests use what such a program has: standard output, a file, the port, the process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use keelson_testkit::Endpoint;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

/// The timeout for a start or a stop.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
const EPHEMERAL: [&str; 6] = ["serve", "--ephemeral", "--bind", "127.0.0.1:0", "--output", "json"];

/// A server that has printed its address.
struct StartedServer {
    child: Child,
    output: BufReader<ChildStdout>,
    line: Value,
}

impl StartedServer {
    async fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, output.read_line(&mut line)).await;
        read.expect("it is ready in time").unwrap();
        let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        Self { child, output, line }
    }

    fn text(&self, field: &str) -> &str {
        self.line[field].as_str().unwrap_or_else(|| panic!("{field} in {}", self.line))
    }

    async fn endpoint(&self) -> Endpoint {
        Endpoint::from_kubeconfig(self.text("kubeconfig")).await.unwrap()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Returns true while a process runs. A zombie counts as ended.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

async fn signal(signal: &str, pid: u64) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().await.unwrap();
    assert!(sent.success(), "kill {signal} {pid}");
}

#[tokio::test]
async fn the_ready_file_and_json_line_name_the_url_and_are_removed() {
    let directory = TempDir::new().unwrap();
    let ready = directory.path().join("ready");
    std::fs::write(&ready, "https://earlier\n").unwrap();
    let mut command = Command::new(KEELSON);
    command
        .args(EPHEMERAL)
        .arg("--ready-file")
        .arg(&ready)
        .current_dir(directory.path())
        .env("TMPDIR", directory.path());
    let mut started = StartedServer::spawn(&mut command).await;

    // ORDER: the file exists before the line is printed.
    assert_eq!(std::fs::read_to_string(&ready).unwrap(), format!("{}\n", started.text("url")));
    assert_eq!(started.line["pid"], started.child.id().unwrap());
    assert_eq!(started.text("version"), env!("CARGO_PKG_VERSION"));
    let kubeconfig = PathBuf::from(started.text("kubeconfig"));
    assert!(kubeconfig.starts_with(directory.path()), "{}", kubeconfig.display());
    let server = started.endpoint().await;
    assert_eq!(server.url(), started.text("url"));
    server.raw().get("/readyz").await.expect(200);

    signal("-TERM", started.line["pid"].as_u64().unwrap()).await;
    let status = tokio::time::timeout(PATIENCE, started.child.wait()).await.expect("it ends").unwrap();
    assert!(status.success(), "{status}");
    let mut rest = String::new();
    started.output.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "", "nothing else is on standard output");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The parent is killed, so it can send its child no signal.
#[tokio::test]
async fn a_server_ends_with_its_parent() {
    let directory = TempDir::new().unwrap();
    for flag in ["--exit-with-parent", "--exit-with-parent=$$"] {
        let mut shell = Command::new("sh");
        let line = EPHEMERAL.join(" ");
        shell.arg("-c").arg(format!("{KEELSON} {line} {flag} & wait")).env("TMPDIR", directory.path());
        let started = StartedServer::spawn(&mut shell).await;
        let pid = started.line["pid"].as_u64().unwrap();
        let parent = u64::from(started.child.id().unwrap());
        assert!(pid != parent && runs(pid), "{flag}");
        started.endpoint().await.raw().get("/livez").await.expect(200);
        signal("-KILL", parent).await;
        until("it outlives its parent", || !runs(pid)).await;
        until("its files are removed", || std::fs::read_dir(directory.path()).unwrap().next().is_none()).await;
    }
}

#[tokio::test]
async fn a_server_does_not_start_after_its_parent_ended() {
    let mut gone = Command::new("true").spawn().unwrap();
    let pid = gone.id().unwrap();
    gone.wait().await.unwrap();
    let mut command = Command::new(KEELSON);
    command.args(EPHEMERAL).arg(format!("--exit-with-parent={pid}")).stdin(Stdio::null());
    let ended = tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends by itself").unwrap();
    assert!(ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
}

#[tokio::test]
async fn settings_that_contradict_each_other_are_refused() {
    let refused = async |flags: &[&str]| {
        let output = Command::new(KEELSON).args(EPHEMERAL).args(flags).stdin(Stdio::null()).output().await.unwrap();
        assert!(!output.status.success(), "{flags:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--store", "memory:"]).await.contains("--ephemeral"));
    assert!(refused(&["--data-dir", "x"]).await.contains("--ephemeral"));
    let directory = TempDir::new().unwrap();
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n").unwrap();
    let audit = ["--audit-policy-file", policy.to_str().unwrap(), "--audit-log-path", "-"];
    assert!(refused(&audit).await.contains("--output json"));
    assert!(refused(&["--ready-file", "/nonexistent/ready"]).await.contains("/nonexistent/ready"));
    assert!(!Path::new("keelson-data").exists());
}

/// Clients only keep watches open. The fastest of three stops counts, since the machine may be busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_watches_do_not_delay_shutdown() {
    let mut fastest = PATIENCE;
    for _ in 0..3 {
        let mut started = StartedServer::spawn(Command::new(KEELSON).args(EPHEMERAL)).await;
        let server = started.endpoint().await;
        let mut watches = Vec::new();
        for client in [server.raw(), server.raw().http2()] {
            let mut stream = client.get("/api/v1/namespaces?watch=1&resourceVersion=0").stream().await;
            assert!(stream.next_json().await.is_some());
            watches.push((client, stream));
        }
        let begun = Instant::now();
        signal("-TERM", started.line["pid"].as_u64().unwrap()).await;
        let status = tokio::time::timeout(PATIENCE, started.child.wait()).await.expect("it ends").unwrap();
        assert!(status.success(), "{status}");
        fastest = fastest.min(begun.elapsed());
        drop(watches);
    }
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
}
