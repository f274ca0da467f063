//! A server as a child process that can't outlive the tests.
//!
//! Beside each server a shell waits for the end of its standard input, which this process holds open. It then ends the
//! server and removes its directory: when the handle is dropped, when a test panics, and when the test process is
//! killed, which runs no destructor.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The longest wait for a start.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between checks of a starting server.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The file with the server's process id while it runs.
const PROCESS_FILE: &str = "running";

/// The shell must cope with dead processes and missing directories.
const SCRIPT: &str = r#"
    trap '' INT TERM HUP
    read -r _
    if [ -s "$1/running" ]; then
        pid=$(cat "$1/running")
        kill -s "$2" "$pid" 2>/dev/null
        tries=0
        while kill -0 "$pid" 2>/dev/null && [ $tries -lt 100 ]; do sleep 0.05; tries=$((tries + 1)); done
        kill -s KILL "$pid" 2>/dev/null
        # What it has started is in its group, where it has one to itself.
        kill -s KILL -- "-$pid" 2>/dev/null
    fi
    rm -rf "$1"
"#;

/// A directory, the server in it, and the shell that guards both.
#[derive(Debug)]
pub(crate) struct GuardedServer {
    directory: PathBuf,
    server: Option<Child>,
    shell: Child,
}

impl GuardedServer {
    /// Creates a guarded directory without a server. `stop` is the signal that ends the server at once.
    pub(crate) fn new(stop: &str) -> Self {
        // The shell removes the directory. A destructor here would run too early, while the server still writes.
        let directory = TempDir::with_prefix("keelson-").expect("a temporary directory can be made").keep();
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard"]).arg(&directory).arg(stop);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = command.spawn().expect("there is a shell");
        Self { directory, server: None, shell }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts the server and waits until `ready` returns true.
    ///
    /// # Errors
    /// The log, when the server ended instead.
    pub(crate) fn start(&mut self, command: &mut Command, ready: impl Fn() -> bool) -> Result<(), String> {
        assert!(self.server.is_none(), "the server still runs");
        let log = File::options().create(true).append(true).open(self.log_file()).expect("the log can be written");
        let errors = log.try_clone().expect("a file can be opened twice");
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let mut server = command.spawn().map_err(|error| format!("cannot start {}: {error}", name_of(command)))?;
        fs::write(self.directory.join(PROCESS_FILE), server.id().to_string()).expect("our directory is writable");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = server.try_wait().expect("a child of ours can be waited for") {
                self.note_end();
                return Err(format!("{} ended ({status}):\n{}", name_of(command), self.log()));
            }
            if ready() {
                self.server = Some(server);
                return Ok(());
            }
            if Instant::now() > deadline {
                // ORDER: stored before the panic, whose unwinding drops the handle.
                self.server = Some(server);
                panic!("{} is not ready after {PATIENCE:?}:\n{}", name_of(command), self.log());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// kill -9 of the server and its child processes at the same moment.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().expect("the server runs");
        let started = started_by(server.id());
        // ORDER: children are stopped before the server ends. A PostgreSQL process whose parent dies stops waiting for
        // the replica, and for a moment shows commits that are not replicated.
        send("STOP", &started);
        server.kill().expect("a child of ours can be killed");
        send("KILL", &started);
        server.wait().expect("a child of ours can be waited for");
        self.note_end();
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, signal: &str) {
        let server = self.server.as_ref().expect("the server runs");
        let sent = Command::new("kill").args(["-s", signal, &server.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "cannot send {signal}");
    }

    pub(crate) const fn runs(&self) -> bool {
        self.server.is_some()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// The process id may be reused from now on.
    fn note_end(&self) {
        fs::remove_file(self.directory.join(PROCESS_FILE)).expect("it was written at the start");
    }
}

impl Drop for GuardedServer {
    fn drop(&mut self) {
        // The end of the pipe triggers the shell. Waits for both, so that nothing is left after a test.
        drop(self.shell.stdin.take());
        let _ = self.server.take().map(|mut server| server.wait());
        let _ = self.shell.wait();
    }
}

/// The running child processes of a process; empty where the system does not report them.
fn started_by(process: u32) -> Vec<String> {
    let told = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    told.split_whitespace().map(str::to_owned).collect()
}

fn send(signal: &str, processes: &[String]) {
    if !processes.is_empty() {
        // Some may have ended by themselves.
        let _ = Command::new("kill").args(["-s", signal]).args(processes).stderr(Stdio::null()).status();
    }
}

/// A currently free port.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback address has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// A command whose program finds its libraries in the tree it was unpacked to. Installed programs are unaffected.
pub(crate) fn with_libraries(program: &Path) -> Command {
    let mut command = Command::new(program);
    let libs = program.ancestors().map(|ancestor| ancestor.join("usr/lib")).find(|lib| lib.is_dir());
    let entries = libs.and_then(|lib| fs::read_dir(lib).ok()).into_iter().flatten().flatten();
    let machines = entries.filter(|entry| entry.file_name().to_string_lossy().contains("-linux-gnu"));
    // One library loads a part of its own from a system directory.
    let directories = machines.flat_map(|entry| [entry.path(), entry.path().join("pulseaudio")]);
    if let Ok(path) = std::env::join_paths(directories) {
        command.env("LD_LIBRARY_PATH", path);
    }
    command
}

fn name_of(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned()
}
