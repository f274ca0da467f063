//! The command line of `keelson verify`: the server, the choice of rules, and the reports.
//!
//! The load of a run is bounded by flags with small defaults, since the server may be in production.

use std::path::PathBuf;

use clap::Args;

/// The most requests at once, and in a second.
const MOST_AT_ONCE: i64 = 64;
const MOST_PER_SECOND: i64 = 10_000;
/// The most operations of the workload.
const MOST_OPERATIONS: i64 = 100_000;

/// Settings of `verify`.
#[derive(Args, Clone, Debug)]
pub struct Verify {
    /// The kubeconfig file; by default KUBECONFIG, or the one in the home directory.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; by default the current one.
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// The URL of the server. Without --kubeconfig, the credentials come only from --token-file and
    /// --certificate-authority.
    #[arg(long)]
    pub(crate) server: Option<String>,
    /// A file with a bearer token, for --server.
    #[arg(long, requires = "server", conflicts_with = "kubeconfig")]
    pub(crate) token_file: Option<PathBuf>,
    /// A file with the certificates of the server's authority, for --server.
    #[arg(long, requires = "server", conflicts_with = "kubeconfig")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Check only rules whose names begin with this text, such as lists or lists.chunks. May be repeated.
    #[arg(long)]
    pub(crate) only: Vec<String>,
    /// Send no writes. Rules that need writes are skipped.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// The most requests at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=MOST_AT_ONCE))]
    pub(crate) at_once: u32,
    /// The most requests in a second.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=MOST_PER_SECOND))]
    pub(crate) rate: u32,
    /// The number of operations of the generated workload.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=MOST_OPERATIONS))]
    pub(crate) operations: u32,
    /// The seed of the generated workload, for a run that sends the same operations again.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write a report in HTML into this file.
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
    /// Write a report in JUnit's XML into this file.
    #[arg(long)]
    pub(crate) junit: Option<PathBuf>,
    /// Print the rules, and check none.
    #[arg(long)]
    pub list: bool,
}

impl Verify {
    /// Returns true if the rule of this name is to be checked.
    pub(crate) fn selects(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|prefix| id.starts_with(prefix.as_str()))
    }

    /// The seed of the workload.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| u64::from(std::process::id()))
    }
}
