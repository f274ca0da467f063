//! A stand-in for etcd in tests: it answers `/health` and `/version`, keeps no keys and lends its data directory to keelson.
//!
//! controller-runtime's envtest starts `etcd`, polls its health, and starts `kube-apiserver` on it. keelson stands in for the latter
//! and keeps its objects in a store of its own. It finds that store by [`DIRECTORY_FIELD`] of `/version`, so that an API server that
//! is started again on the same etcd finds its objects.
//!
//! The program depends on the standard library alone, which keeps it below a megabyte in the archive of assets.

mod flags;
mod http;
mod parent;

use std::ffi::OsString;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

pub use flags::{Endpoint, Settings, UsageError};
pub use parent::ends_with_parent;

/// The field of `/version` with the directory in which keelson keeps its objects.
pub const DIRECTORY_FIELD: &str = "keelsonDirectory";

/// The version of etcd whose answers these are.
pub const ETCD_VERSION: &str = "3.6.6";

/// The directory of keelson's store in the data directory of etcd.
const STORE_DIRECTORY: &str = "keelson";

/// The mode of data directories, as etcd's.
const DIRECTORY_MODE: u32 = 0o700;

/// The exit code for a command line that can't be read, as etcd's.
const USAGE_CODE: u8 = 2;

/// Runs the program with these arguments, without the program's name, until a signal ends it.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let settings = match Settings::read(arguments) {
        Ok(settings) => settings,
        Err(UsageError::Help) => return print(&flags::help(), ExitCode::SUCCESS),
        Err(UsageError::Version) => return print(&version_text(), ExitCode::SUCCESS),
        Err(error @ (UsageError::Unknown(_) | UsageError::Value { .. } | UsageError::Argument(_))) => {
            log("error", &error.to_string());
            return ExitCode::from(USAGE_CODE);
        }
    };
    let double = match Double::open(&settings) {
        Ok(double) => double,
        Err(error) => {
            log("fatal", &error);
            return ExitCode::FAILURE;
        }
    };
    for address in double.addresses() {
        log("info", &format!("serving client traffic insecurely address={address}"));
    }
    if settings.exits_with_parent() {
        parent::end_with_parent();
    }
    double.serve()
}

/// A stand-in that listens.
pub struct Double {
    clients: Vec<TcpListener>,
    /// Held so that another program on the same peer port fails as it would beside etcd.
    peers: Vec<TcpListener>,
    directory: PathBuf,
}

impl Double {
    /// Makes the data directory and binds the ports.
    ///
    /// # Errors The directory can't be created or a port can't be bound. The error names the path or the address.
    pub fn open(settings: &Settings) -> Result<Self, String> {
        let data = std::path::absolute(&settings.data_dir)
            .map_err(|error| format!("cannot resolve data directory: {error}"))?;
        let directory = data.join(STORE_DIRECTORY);
        make_directory(&data)?;
        let bind = |endpoints: &[Endpoint]| endpoints.iter().map(bind).collect::<Result<Vec<_>, _>>();
        Ok(Self { clients: bind(&settings.client_urls)?, peers: bind(&settings.peer_urls)?, directory })
    }

    /// The addresses on which clients are answered.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.clients.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Answers until the process ends.
    pub fn serve(self) -> ExitCode {
        let answers = std::sync::Arc::new(http::Answers::new(&self.directory));
        let peers = self.peers.into_iter().map(|listener| std::thread::spawn(move || http::refuse(&listener)));
        let clients = self.clients.into_iter().map(|listener| {
            let answers = answers.clone();
            std::thread::spawn(move || http::serve(&listener, &answers))
        });
        let threads: Vec<_> = peers.chain(clients).collect();
        // They end only with the process.
        let _: Vec<_> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
        ExitCode::FAILURE
    }
}

fn bind(endpoint: &Endpoint) -> Result<TcpListener, String> {
    let Endpoint { host, port } = endpoint;
    let failed = |error: std::io::Error| format!("listen tcp {host}:{port}: bind: {error}");
    let addresses: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs().map_err(failed)?.collect();
    TcpListener::bind(&*addresses).map_err(failed)
}

fn make_directory(path: &Path) -> Result<(), String> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    made.map_err(|error| format!("cannot make data directory {}: {error}", path.display()))
}

fn version_text() -> String {
    format!("etcd Version: {ETCD_VERSION}\nGit SHA: keelson\nGo Version: none\nGo OS/Arch: {}\n", architecture())
}

fn architecture() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}

/// A reader that went away is not a failure of the command.
fn print(text: &str, code: ExitCode) -> ExitCode {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    code
}

/// Writes one line in etcd's form to standard error. A line that can't be written is lost.
fn log(level: &str, message: &str) {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let line = format!("{{\"level\":\"{level}\",\"ts\":{seconds},\"msg\":\"{}\"}}\n", http::escaped(message));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
