//! Flags of the commands for the first steps: `doctor`, `demo`, `kubeconfig` and `token`.
//!
//! All but `doctor` are clients of a running server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;

use super::kinds::some_duration;
use super::startup::Output;
use super::users::name;
use super::{Administrator, listen_address};

/// The most pods of a demo, so that a typing error does not fill a disk.
const MOST_PODS: i64 = 1_000_000;

/// Settings of `doctor`.
#[derive(ClapArgs)]
pub(crate) struct Doctor {
    /// The data directory of the server.
    #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
    pub(crate) data_dir: PathBuf,
    /// The address on which the server listens or will listen.
    #[arg(
        long,
        env = "KEELSON_BIND",
        default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443),
        value_parser = listen_address
    )]
    pub(crate) bind: SocketAddr,
    /// The store, as for serve. By default the one noted in the data directory.
    #[arg(long, env = "KEELSON_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Verify every version of every object in the embedded store, however large it is.
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Print one JSON object for each check.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The form of the result of a long command.
#[derive(ClapArgs)]
pub(crate) struct ResultForm {
    /// The form of the result on standard output. The progress on standard error is a bar on a terminal, otherwise JSON lines.
    #[arg(long = "output", value_enum, default_value_t = Output::Text)]
    pub(crate) form: Output,
}

/// Settings of `demo`.
#[derive(ClapArgs)]
pub(crate) struct Demo {
    /// The number of pods.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=MOST_PODS))]
    pub(crate) pods: u32,
    /// Remove the demo instead.
    #[arg(long)]
    pub(crate) remove: bool,
    #[command(flatten)]
    pub(crate) output: ResultForm,
    #[command(flatten)]
    pub(crate) administrator: Administrator,
}

/// Settings of `kubeconfig`.
#[derive(ClapArgs)]
pub(crate) struct PrintKubeconfig {
    /// The URL of the server for clients, such as https://api.example.org:6443; as in the file unless given.
    #[arg(long)]
    pub(crate) server: Option<String>,
    /// The name of cluster, user and context in the file.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Write a file, which must not exist, instead of standard output.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) administrator: Administrator,
}

/// Settings of `token`.
#[derive(ClapArgs)]
pub(crate) struct PrintToken {
    /// The service account, which is created if absent. By default keelson-admin in kube-system, with the role
    /// cluster-admin.
    #[arg(value_parser = name)]
    pub(crate) account: Option<String>,
    /// The namespace of the account.
    #[arg(long, short, requires = "account", default_value = "default")]
    pub(crate) namespace: String,
    /// A cluster role to bind to the account in all namespaces.
    #[arg(long)]
    pub(crate) role: Option<String>,
    /// The lifetime of the token (such as 8h): ten minutes at least.
    #[arg(long, default_value = "1h", value_parser = some_duration)]
    pub(crate) valid_for: Duration,
    /// An audience of the token, instead of the server. May be repeated.
    #[arg(long = "audience")]
    pub(crate) audiences: Vec<String>,
    #[command(flatten)]
    pub(crate) administrator: Administrator,
}
