//! A private PostgreSQL.
//!
//! The first start makes an empty cluster, and later ones of the same process copy it. PostgreSQL does not run as root: where
//! the tests do, it runs as nobody.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::guard::{Guarded, free_port, with_libraries};
use crate::{named_by, tell};

const VARIABLE: &str = "KEELSON_POSTGRES_BIN";

/// The user `nobody` of every Linux distribution, and its group.
#[cfg(unix)]
const NOBODY: u32 = 65534;

/// The role that owns everything in the cluster.
const USER: &str = "keelson";

/// How often a start is tried: another process may take the port that was free, and the memory of a killed server
/// may take a moment to go.
const TRIES: usize = 20;
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for a replica to be in step.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings of every server: the first two keep it private, the others make it small and quick to start. Durability is as
/// PostgreSQL has it.
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

/// What to start.
#[derive(Debug, Default)]
pub struct PostgresServerBuilder {
    settings: Vec<(String, String)>,
    files: Vec<(String, Vec<u8>)>,
}

impl PostgresServerBuilder {
    /// A setting as in `postgresql.conf`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A file in the data directory, such as a certificate or another `pg_hba.conf`, readable by the server alone.
    #[must_use]
    pub fn file(mut self, name: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), contents.into()));
        self
    }

    /// Starts it and waits until it takes connections. None where this machine can't have a PostgreSQL.
    ///
    /// # Panics
    /// When it does not start; the text ends with what it logged.
    pub fn start(self) -> Option<PostgresServer> {
        let programs = named_by(VARIABLE)?;
        let guarded = Guarded::new("QUIT");
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

/// A running PostgreSQL with an empty database `keelson`, owned by the role `keelson`, which needs no password.
#[derive(Debug)]
pub struct PostgresServer {
    guarded: Guarded,
    programs: PathBuf,
    settings: Vec<(String, String)>,
    port: u16,
}

impl PostgresServer {
    /// Starts one with the usual settings. None where this machine can't have a PostgreSQL.
    pub fn start() -> Option<Self> {
        Self::builder().start()
    }

    /// One with settings of its own.
    pub fn builder() -> PostgresServerBuilder {
        PostgresServerBuilder::default()
    }

    /// The one that all tests of this process share, each in a database of its own. It ends with the process.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<PostgresServer>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// Where its database `keelson` is.
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    /// Where a database of it is.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Its port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The directory of its socket.
    pub fn socket_directory(&self) -> PathBuf {
        self.data_directory().join("sockets")
    }

    /// Its data directory.
    pub fn data_directory(&self) -> PathBuf {
        self.guarded.directory().join("data")
    }

    /// The program of this name that came with the server, with its libraries: `pg_dump`, `pg_basebackup`.
    pub fn program(&self, name: &str) -> Command {
        with_libraries(&self.programs.join(name))
    }

    /// Makes an empty database and returns its URL.
    pub fn create_database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE \"{name}\""));
        self.url_of(name)
    }

    /// Runs statements with `psql` and returns the rows, columns apart by `|`.
    ///
    /// # Panics
    /// When a statement fails.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let mut command = self.program("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.url_of(database));
        String::from_utf8_lossy(&run(command.arg("-c").arg(statements))).trim().to_owned()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.guarded.log()
    }

    /// Another server that follows this one, which from now on waits for it in every commit (synchronous replication).
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn replica(&self) -> Self {
        let replica = self.follower();
        // ORDER: after the copy was made, which must not wait for a replica of its own once it leads.
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("postgres", "SELECT pg_reload_conf()");
        self.until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1", &replica);
        replica
    }

    /// Another server that follows this one, which does not wait for it (asynchronous replication). It has everything so far.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn asynchronous_replica(&self) -> Self {
        let replica = self.follower();
        self.until("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "1", &replica);
        replica
    }

    /// Waits until a replica has everything that this server has, then has it follow no more: what is committed from now
    /// on is lost when it takes over.
    ///
    /// # Panics
    /// When it does not get there.
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
        let guarded = Guarded::new("QUIT");
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

    /// Makes a replica the one that takes writes.
    ///
    /// # Panics
    /// When it does not become that.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t", "{}", self.log());
    }

    /// kill -9 of the server: nothing is flushed, nobody is told.
    pub fn kill(&mut self) {
        self.guarded.kill();
    }

    /// Starts it again on the same data and port, after a [`kill`](Self::kill).
    ///
    /// # Panics
    /// When it does not start.
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
            // The last line of this file says so; a file that a killed server left has another first line.
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
    /// A killed server that was not started again has left a scrap of shared memory, which its file names.
    fn drop(&mut self) {
        let file = fs::read_to_string(self.data_directory().join("postmaster.pid")).unwrap_or_default();
        let memory = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        if let (false, Some(memory)) = (self.guarded.runs(), memory) {
            // Where there is no such program, the scrap stays until the next start of the machine.
            let _ = Command::new("ipcrm").args(["-m", memory]).output();
        }
    }
}

/// An empty cluster, made once in a process. It goes with the process.
fn template(programs: &Path) -> &'static Path {
    static TEMPLATE: OnceLock<(Guarded, PathBuf)> = OnceLock::new();
    let (_, cluster) = TEMPLATE.get_or_init(|| {
        let guarded = Guarded::new("KILL");
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
    // Whose process this is, without asking the C library.
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Lets the server have what is in a directory.
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
    fn a_killed_server_comes_back_on_its_data_and_a_dropped_one_is_gone() {
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
