//! The command line of etcd: the flags that matter here, those that are accepted without effect, and the text of `--help`.
//!
//! Names and forms are those of Go's `flag` package: one dash or two, `=value` or a value of its own, a switch without a value.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// The scheme of URLs that can be served.
const SCHEME: &str = "http://";
/// The ports of etcd.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// A flag of etcd.
struct Flag {
    name: &'static str,
    default: &'static str,
    kind: Kind,
    help: &'static str,
}

/// The effect of a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    DataDirectory,
    ClientUrls,
    PeerUrls,
    ExitWithParent,
    /// A value without effect on a stand-in.
    Value,
    /// A switch without effect on a stand-in.
    Switch,
}

const fn flag(name: &'static str, default: &'static str, kind: Kind, help: &'static str) -> Flag {
    Flag { name, default, kind, help }
}

/// The flags, in the order of `--help`.
const FLAGS: [Flag; 29] = [
    flag("name", "default", Kind::Name, "Human-readable name for this member."),
    flag("data-dir", "${name}.etcd", Kind::DataDirectory, "Path to the data directory."),
    flag("wal-dir", "", Kind::Value, "Path to the dedicated wal directory."),
    flag("snapshot-count", "10000", Kind::Value, "Number of committed transactions to trigger a snapshot to disk."),
    flag("heartbeat-interval", "100", Kind::Value, "Time (in milliseconds) of a heartbeat interval."),
    flag("election-timeout", "1000", Kind::Value, "Time (in milliseconds) for an election to timeout."),
    flag("listen-peer-urls", "http://localhost:2380", Kind::PeerUrls, "List of URLs to listen on for peer traffic."),
    flag(
        "listen-client-urls",
        "http://localhost:2379",
        Kind::ClientUrls,
        "List of URLs to listen on for client grpc traffic and http.",
    ),
    flag("listen-client-http-urls", "", Kind::Value, "List of URLs to listen on for http only client traffic."),
    flag("listen-metrics-urls", "", Kind::Value, "List of URLs to listen on for the metrics and health endpoints."),
    flag("max-snapshots", "5", Kind::Value, "Maximum number of snapshot files to retain."),
    flag("max-wals", "5", Kind::Value, "Maximum number of wal files to retain."),
    flag("quota-backend-bytes", "0", Kind::Value, "Raise alarms when backend size exceeds the given quota."),
    flag("max-txn-ops", "128", Kind::Value, "Maximum number of operations permitted in a transaction."),
    flag("max-request-bytes", "1572864", Kind::Value, "Maximum client request size in bytes the server will accept."),
    flag("initial-advertise-peer-urls", "http://localhost:2380", Kind::Value, "List of this member's peer URLs."),
    flag("initial-cluster", "default=http://localhost:2380", Kind::Value, "Initial cluster configuration."),
    flag("initial-cluster-state", "new", Kind::Value, "Initial cluster state ('new' or 'existing')."),
    flag("initial-cluster-token", "etcd-cluster", Kind::Value, "Initial cluster token."),
    flag("advertise-client-urls", "http://localhost:2379", Kind::Value, "List of this member's client URLs."),
    flag("auto-compaction-mode", "periodic", Kind::Value, "Interpret 'auto-compaction-retention'."),
    flag("auto-compaction-retention", "0", Kind::Value, "Auto compaction retention length."),
    flag("log-level", "info", Kind::Value, "Configures log level."),
    flag("log-format", "json", Kind::Value, "Configures log format."),
    flag("log-outputs", "default", Kind::Value, "Specify 'stdout' or 'stderr', or list of comma separated targets."),
    flag("logger", "zap", Kind::Value, "Currently only supports 'zap' for structured logging."),
    flag("enable-pprof", "false", Kind::Switch, "Enable runtime profiling data via HTTP server."),
    flag("unsafe-no-fsync", "false", Kind::Switch, "Disables fsync, unsafe, will cause data loss."),
    flag(
        "exit-with-parent",
        "false",
        Kind::ExitWithParent,
        "Ends when the parent process ends. On for data directories that envtest makes.",
    ),
];

/// An address from a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The name or the address, without brackets.
    pub host: String,
    /// The port; 0 is any free one.
    pub port: u16,
}

/// The settings of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The addresses for clients.
    pub client_urls: Vec<Endpoint>,
    /// The ports for peers. They are bound and never respond.
    pub peer_urls: Vec<Endpoint>,
    /// True to end with the parent process. By default the name of the data directory decides.
    pub exit_with_parent: Option<bool>,
}

/// The reason for which a command line starts no server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageError {
    /// It requests help.
    Help,
    /// It requests the version.
    Version,
    /// When the command line has a flag that etcd does not have.
    Unknown(String),
    /// A flag has a value that can't be used.
    Value {
        /// The flag, without dashes.
        flag: String,
        /// The fault of the value.
        fault: String,
    },
    /// When the command line has an argument that is not a flag.
    Argument(String),
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Help => f.write_str("flag: help requested"),
            Self::Version => f.write_str("version requested"),
            Self::Unknown(name) => write!(f, "flag provided but not defined: -{name}"),
            Self::Value { flag, fault } => write!(f, "invalid value for flag -{flag}: {fault}"),
            Self::Argument(argument) => write!(f, "{argument:?} is not a valid flag"),
        }
    }
}

impl Settings {
    /// Parses a command line without the program name.
    ///
    /// # Errors The command line requests help or the version, or is invalid.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, UsageError> {
        let mut values = [const { None::<String> }; FLAGS.len()];
        let mut arguments = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned());
        while let Some(argument) = arguments.next() {
            let Some(text) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                return Err(UsageError::Argument(argument));
            };
            let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
            match name {
                "help" | "h" => return Err(UsageError::Help),
                "version" => return Err(UsageError::Version),
                _ => {}
            }
            let at = FLAGS.iter().position(|flag| flag.name == name);
            let at = at.ok_or_else(|| UsageError::Unknown(name.to_owned()))?;
            let value = match (value, FLAGS[at].kind) {
                (Some(value), _) => value.to_owned(),
                (None, Kind::Switch | Kind::ExitWithParent) => "true".to_owned(),
                (None, _) => arguments.next().ok_or_else(|| fault(name, "it needs a value"))?,
            };
            values[at] = Some(value);
        }
        Self::from_values(&values)
    }

    /// Returns true where the process ends with its parent.
    pub fn exits_with_parent(&self) -> bool {
        self.exit_with_parent.unwrap_or_else(|| crate::ends_with_parent(&self.data_dir))
    }

    fn from_values(values: &[Option<String>]) -> Result<Self, UsageError> {
        let given = |kind: Kind| {
            let (flag, value) = FLAGS.iter().zip(values).find(|(flag, _)| flag.kind == kind)?;
            value.as_deref().map(|value| (flag.name, value))
        };
        for (flag, value) in FLAGS.iter().zip(values) {
            if let (Kind::Switch | Kind::ExitWithParent, Some(value)) = (flag.kind, value) {
                switch(flag.name, value)?;
            }
        }
        let name = given(Kind::Name).map_or("default", |(_, name)| name);
        let data_dir = match given(Kind::DataDirectory) {
            Some((_, path)) if !path.is_empty() => PathBuf::from(path),
            _ => PathBuf::from(format!("{name}.etcd")),
        };
        let urls = |kind: Kind, port: u16| match given(kind) {
            Some((flag, list)) => endpoints(flag, list, port),
            None => Ok(vec![Endpoint { host: "localhost".to_owned(), port }]),
        };
        let exit_with_parent = given(Kind::ExitWithParent).map(|(flag, value)| switch(flag, value)).transpose()?;
        Ok(Self {
            data_dir,
            client_urls: urls(Kind::ClientUrls, CLIENT_PORT)?,
            peer_urls: urls(Kind::PeerUrls, PEER_PORT)?,
            exit_with_parent,
        })
    }
}

/// The text of `--help`. envtest looks in it for a line that begins with blanks and `--unsafe-no-fsync`.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Usage:\n\n  etcd [flags]\n    Start keelson's stand-in for etcd, which keeps no keys.\n\n  etcd --version\n    \
         Show the version of etcd whose answers it gives.\n\n  etcd -h | --help\n    Show the help information.\n\nFlags:\n",
    );
    for flag in &FLAGS {
        text.push_str(&format!("  --{} '{}'\n    {}\n", flag.name, flag.default, flag.help));
    }
    text
}

fn fault(flag: &str, fault: impl Into<String>) -> UsageError {
    UsageError::Value { flag: flag.to_owned(), fault: fault.into() }
}

fn switch(flag: &str, text: &str) -> Result<bool, UsageError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(fault(flag, format!("{text:?} is neither true nor false"))),
    }
}

fn endpoints(flag: &str, list: &str, port: u16) -> Result<Vec<Endpoint>, UsageError> {
    list.split(',').filter(|url| !url.is_empty()).map(|url| endpoint(flag, url, port)).collect()
}

fn endpoint(flag: &str, url: &str, default_port: u16) -> Result<Endpoint, UsageError> {
    let Some(rest) = url.strip_prefix(SCHEME) else {
        return Err(fault(flag, format!("{url:?} does not begin with {SCHEME}, which is all that is served")));
    };
    let place = rest.trim_end_matches('/');
    let bad = || fault(flag, format!("{url:?} has no host and port"));
    let (host, port) = match place.strip_prefix('[') {
        Some(bracketed) => {
            let (host, port) = bracketed.split_once(']').ok_or_else(bad)?;
            (host, port.strip_prefix(':'))
        }
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| bad()))?;
    if host.is_empty() || host.contains('/') {
        return Err(bad());
    }
    Ok(Endpoint { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Settings, UsageError> {
        Settings::read(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_flags_of_envtest_are_read() {
        let settings = read(
            "--advertise-client-urls=http://127.0.0.1:41 --data-dir=/tmp/k8s_test_framework_1 --listen-client-urls=http://127.0.0.1:41 \
             --listen-peer-urls=http://localhost:0 --unsafe-no-fsync=true",
        )
        .unwrap();
        assert_eq!(settings.client_urls, [Endpoint { host: "127.0.0.1".to_owned(), port: 41 }]);
        assert_eq!(settings.peer_urls, [Endpoint { host: "localhost".to_owned(), port: 0 }]);
        assert!(settings.exits_with_parent());
        assert!(!read("--data-dir /var/lib/etcd").unwrap().exits_with_parent());
    }

    #[test]
    fn every_form_of_a_go_flag_is_read() {
        let expected = read("--name=a").unwrap();
        assert_eq!(expected.data_dir, PathBuf::from("a.etcd"));
        for line in ["-name a", "-name=a", "--name a", "--name=b -name a -unsafe-no-fsync -enable-pprof=F"] {
            assert_eq!(read(line).unwrap(), expected, "{line}");
        }
        let bracketed = read("--listen-client-urls http://[::1]:7,http://localhost/").unwrap().client_urls;
        assert_eq!((bracketed[0].host.as_str(), bracketed[0].port), ("::1", 7));
        assert_eq!((bracketed[1].host.as_str(), bracketed[1].port), ("localhost", 2379));
    }

    #[test]
    fn a_line_that_etcd_refuses_is_refused() {
        let refused = |line: &str| read(line).unwrap_err().to_string();
        assert_eq!(refused("--nosuch=1"), "flag provided but not defined: -nosuch");
        assert!(refused("--unsafe-no-fsync=maybe").contains("neither true nor false"));
        assert!(refused("--listen-client-urls=https://127.0.0.1:1").contains("http://"));
        assert!(refused("--listen-client-urls=http://:1").contains("no host"));
        assert!(refused("--data-dir").contains("needs a value"));
        assert!(refused("start").contains("not a valid flag"));
        assert_eq!((read("--help"), read("-h")), (Err(UsageError::Help), Err(UsageError::Help)));
        assert_eq!(read("--version"), Err(UsageError::Version));
    }

    /// As envtest looks for it.
    #[test]
    fn help_lists_unsafe_no_fsync_at_the_start_of_a_line() {
        assert!(help().lines().any(|line| line.starts_with(' ') && line.trim_start().starts_with("--unsafe-no-fsync")));
    }
}
