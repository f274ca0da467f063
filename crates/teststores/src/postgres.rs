//! A private PostgreSQL.
//!
//! The first start creates an empty cluster, and later ones in the process copy it. PostgreSQL refuses to run as root,
//! so tests under root run it as an unprivileged user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::guard::{GuardedServer, free_port, with_libraries};
use crate::{named_by, tell};

const VARIABLE: &str = "KEELSON_POSTGRES_BIN";

/// The id of the user `nobody` and its group in every Linux distribution.
#[cfg(unix)]
const NOBODY: u32 = 65534;

/// The role that owns everything in the cluster.
const USER: &str = "keelson";

/// The most attempts to start, and their interval. Another process may take a port that was free, and the shared memory
/// of a killed server may take a moment to go.
const TRIES: usize = 20;
const TRY_EVERY: Duration = Duration::from_millis(100);
/// The longest wait for a replica to catch up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The settings of every server: the first two keep it private, the others make it small and fast to start. Durability
/// has PostgreSQL's defaults.
const SETTINGS: [(&str, &str); 8] = [
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", "sockets"),
    ("dynamic_shared_memory_type", "mmap"),
    ("shared_buffers", "64MB"),
    ("max_connections", "200"),
    ("jit", "off"),
    ("log_min_messages", "warning"),
    ("autovacuum_naptime", "10s"),
];

/// The settings of a server.
#[derive(Debug, Default)]
pub struct PostgresServerBuilder {
    settings: Vec<(String, String)>,
    files: Vec<(String, Vec<u8>)>,
}

impl PostgresServerBuilder {
    /// Sets an option of `postgresql.conf`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a file to the data directory, such as a certificate or another `pg_hba.conf`, readable by the server only.
    #[must_use]
    pub fn file(mut self, name: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), contents.into()));
        self
    }

    /// Starts it and waits until it accepts connections. `None` where this machine has no PostgreSQL.
    ///
    /// # Panics
    /// When PostgreSQL does not start; the text ends with its log.
    pub fn start(self) -> Option<PostgresServer> {
        let programs = named_by(VARIABLE)?;
        let guarded = GuardedServer::new("QUIT");
        let data = guarded.directory().join("data");
        let template = template(&programs);
        run(Command::new("cp").arg("-R").arg(template).arg(&data));
        fs::create_dir(data.join("sockets")).expect("our directory is writable");
        for (name, contents) in &self.files {
            write_private(&data.join(name), contents);
        }
        give_away(guarded.directory());
        let mut server = PostgresServer { guarded, programs, settings: self.settings, port: free_port() };
        server.launch(|server| server.port = free_port());
        server.sql("postgres", &format!("CREATE DATABASE {USER}"));
        Some(server)
    }
}

/// A running PostgreSQL with an empty database `keelson`, owned by the role `keelson` without a password.
#[derive(Debug)]
pub struct PostgresServer {
    guarded: GuardedServer,
    programs: PathBuf,
    settings: Vec<(String, String)>,
    port: u16,
}

impl PostgresServer {
    /// Starts one with default settings. `None` where this machine has no PostgreSQL.
    pub fn start() -> Option<Self> {
        Self::builder().start()
    }

    /// A builder for a server.
    pub fn builder() -> PostgresServerBuilder {
        PostgresServerBuilder::default()
    }

    /// The server that all tests of this process share, each with a database of its own. Ends with the process.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<PostgresServer>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// The URL of its database `keelson`.
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    /// The URL of a database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The directory of its socket.
    pub fn socket_directory(&self) -> PathBuf {
        self.data_directory().join("sockets")
    }

    /// The data directory.
    pub fn data_directory(&self) -> PathBuf {
        self.guarded.directory().join("data")
    }

    /// A program of the server's installation, with its libraries: `pg_dump`, `pg_basebackup`.
    pub fn program(&self, name: &str) -> Command {
        with_libraries(&self.programs.join(name))
    }

    /// Creates an empty database and returns its URL.
    pub fn create_database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE \"{name}\""));
        self.url_of(name)
    }

    /// Runs statements with `psql` and returns the rows, with columns separated by `|`.
    ///
    /// # Panics
    /// A statement fails.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let mut command = self.program("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.url_of(database));
        String::from_utf8_lossy(&run(command.arg("-c").arg(statements))).trim().to_owned()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.guarded.log()
    }

    /// Creates a replica that this server from now on waits for in every commit (synchronous replication).
    ///
    /// # Panics
    /// It can't be created.
    pub fn replica(&self) -> Self {
        let replica = self.follower();
        // ORDER: after the copy, which would otherwise wait for a replica of its own once promoted.
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("postgres", "SELECT pg_reload_conf()");
        self.until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1", &replica);
        replica
    }

    /// Creates a replica that this server does not wait for (asynchronous replication). It has all data so far.
    ///
    /// # Panics
    /// It can't be created.
    pub fn asynchronous_replica(&self) -> Self {
        let replica = self.follower();
        self.until("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "1", &replica);
        replica
    }

    /// Waits until a replica has caught up, then stops its replication: later commits are lost when it takes over.
    ///
    /// # Panics
    /// It does not catch up.
    pub fn leave_behind(&self, replica: &Self) {
        let behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn IS DISTINCT FROM pg_current_wal_lsn()";
        self.until(behind, "0", replica);
        replica.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''");
        replica.sql("postgres", "SELECT pg_reload_conf()");
        self.until("SELECT count(*) FROM pg_stat_replication", "0", replica);
    }

    fn until(&self, question: &str, answer: &str, replica: &Self) {
        let deadline = Instant::now() + PATIENCE;
        while self.sql("postgres", question) != answer {
            assert!(Instant::now() < deadline, "{question} is not {answer}:\n{}", replica.log());
            std::thread::sleep(TRY_EVERY);
        }
    }

    fn follower(&self) -> Self {
        let guarded = GuardedServer::new("QUIT");
        give_away(guarded.directory());
        let data = guarded.directory().join("data");
        let mut copy = self.program("pg_basebackup");
        copy.arg("-D").arg(&data).arg("-d").arg(self.url_of("postgres"));
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]).current_dir(guarded.directory());
        unprivileged(&mut copy);
        run(&mut copy);
        let (programs, settings) = (self.programs.clone(), self.settings.clone());
        let mut replica = Self { guarded, programs, settings, port: free_port() };
        replica.launch(|replica| replica.port = free_port());
        replica
    }

    /// Promotes a replica to accept writes.
    ///
    /// # Panics
    /// It is not promoted.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t", "{}", self.log());
    }

    /// kill -9 of the server: nothing is flushed or closed.
    pub fn kill(&mut self) {
        self.guarded.kill();
    }

    /// Restarts it on the same data and port, after a [`kill`](Self::kill).
    ///
    /// # Panics
    /// It does not start.
    pub fn start_again(&mut self) {
        self.launch(|_| ());
    }

    fn launch(&mut self, before_next_try: impl Fn(&mut Self)) {
        let mut failure = String::new();
        for _ in 0..TRIES {
            let data = self.data_directory();
            let mut command = self.program("postgres");
            command.arg("-D").arg(&data).arg("-p").arg(self.port.to_string()).current_dir(&data);
            let own = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            for (name, value) in SETTINGS.into_iter().chain(own) {
                command.arg("-c").arg(format!("{name}={value}"));
            }
            unprivileged(&mut command);
            // The last line of this file shows readiness. The file of a killed server has another first line.
            let pid_file = data.join("postmaster.pid");
            let _ = fs::remove_file(&pid_file);
            let is_ready = || {
                let text = fs::read_to_string(&pid_file).unwrap_or_default();
                text.lines().nth(7).is_some_and(|line| line.trim_end() == "ready")
            };
            match self.guarded.start(&mut command, is_ready) {
                Ok(()) => return,
                Err(text) => failure = text,
            }
            std::thread::sleep(TRY_EVERY);
            before_next_try(self);
        }
        panic!("{failure}");
    }
}

impl Drop for PostgresServer {
    /// A killed server that was not restarted leaves shared memory, which its file names.
    fn drop(&mut self) {
        let file = fs::read_to_string(self.data_directory().join("postmaster.pid")).unwrap_or_default();
        let memory = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        if let (false, Some(memory)) = (self.guarded.runs(), memory) {
            // Without this program, the shared memory stays until the next boot.
            let _ = Command::new("ipcrm").args(["-m", memory]).output();
        }
    }
}

/// An empty cluster, created once per process and removed with it.
fn template(programs: &Path) -> &'static Path {
    static TEMPLATE: OnceLock<(GuardedServer, PathBuf)> = OnceLock::new();
    let (_, cluster) = TEMPLATE.get_or_init(|| {
        let guarded = GuardedServer::new("KILL");
        give_away(guarded.directory());
        let cluster = guarded.directory().join("cluster");
        let mut command = with_libraries(&programs.join("initdb"));
        command.arg("-D").arg(&cluster).args(["-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        command.args(["--no-sync", "--no-instructions"]).current_dir(guarded.directory());
        unprivileged(&mut command);
        run(&mut command);
        (guarded, cluster)
    });
    cluster
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {}: {error}", command.get_program().display()));
    if !output.status.success() {
        tell(&String::from_utf8_lossy(&output.stderr));
        panic!("{} failed: {}", command.get_program().display(), String::from_utf8_lossy(&output.stderr));
    }
    output.stdout
}

fn write_private(path: &Path, contents: &[u8]) {
    fs::write(path, contents).expect("our directory is writable");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
    }
}

#[cfg(unix)]
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // The owner of this process, without a call to the C library.
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Makes the server the owner of a directory.
#[cfg(unix)]
fn give_away(directory: &Path) {
    if is_root() {
        run(Command::new("chown").arg("-R").arg(format!("{NOBODY}:{NOBODY}")).arg(directory));
    }
}

#[cfg(unix)]
fn unprivileged(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
}

#[cfg(not(unix))]
fn give_away(_directory: &Path) {}

#[cfg(not(unix))]
fn unprivileged(_command: &mut Command) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_servers_restart_on_their_data_and_dropped_ones_end() {
        let Some(mut server) = PostgresServer::start() else { return };
        let directory = server.guarded.directory().to_owned();
        server.sql("keelson", "CREATE TABLE t (n int); INSERT INTO t VALUES (7)");
        server.kill();
        server.start_again();
        assert_eq!(server.sql("keelson", "SELECT n FROM t"), "7");
        let address = format!("127.0.0.1:{}", server.port());
        drop(server);
        assert!(std::net::TcpStream::connect(address).is_err());
        assert!(!directory.exists());
    }
}
