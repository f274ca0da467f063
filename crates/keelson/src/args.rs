//! The command line. Every flag of `serve` also has an environment variable.
//!
//! The parsers here check the form of values. Their meaning and their combinations are checked by the code that uses
//! them.

mod access;
mod audit;
mod config_file;
mod diagnosis;
mod encryption;
mod flow;
mod front_proxy;
mod gateway;
mod kinds;
mod nodes;
#[cfg(test)]
mod reference;
mod serving;
mod startup;
mod store;
mod tokens;
mod tools;
mod topics;
mod upstream;
mod users;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use keelson_meta::{Release, features};
use keelson_server::{AddressRange, PartialRights, PortRange, ServiceRoute};

use crate::build;

pub(crate) use diagnosis::Diagnosis;
pub(crate) use encryption::CopyStores;
pub(crate) use gateway::{Gateway, NamedSource};
pub(crate) use kinds::{List, ListValues, OptionalDuration};
use kinds::{duration_or_never, list, list_of, some_duration, switch};
pub(crate) use startup::{Output, WatchedProcess};
pub(crate) use tools::{Demo, Doctor, PrintKubeconfig, PrintToken, ResultForm};
pub(crate) use users::{Administrator, User, UserCreate, UserList};

/// More threads than processors bring no benefit, and no machine has more processors than this.
const MAX_THREADS: i64 = 4096;

/// A Kubernetes API server for very large collections.
#[derive(Parser)]
#[command(name = "keelson", version = build::version(), propagate_version = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// The command with all that belongs to it.
    pub(crate) fn definition() -> clap::Command {
        kinds::uniform(Self::command())
    }

    /// Parses a command line, which begins with the name of the program.
    ///
    /// # Errors
    /// When it is invalid, or requests help or the version.
    pub(crate) fn read(line: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let definition = Self::definition().mut_subcommand(topics::COMMAND, topics::by_topic);
        let line: Vec<OsString> = line.into_iter().map(Into::into).collect();
        if line.get(1).is_some_and(|word| word == topics::COMMAND) && line.iter().any(|word| word == topics::ALL) {
            return Self::parse_line(definition, ["keelson", topics::COMMAND, "--help"]);
        }
        let definition = definition.mut_subcommand(topics::COMMAND, topics::brief);
        let line = config_file::with_file(line, &definition)?;
        Self::parse_line(definition, line)
    }

    fn parse_line(
        mut command: clap::Command,
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let matches = command.try_get_matches_from_mut(line)?;
        let mut args = Self::from_arg_matches(&matches)?;
        if let (Command::Serve(serve), Some((name, flags))) = (&mut args.command, matches.subcommand()) {
            let command = command.find_subcommand(name);
            serve.diagnosis.shown = command.map(|command| diagnosis::shown(command, flags)).unwrap_or_default();
        }
        Ok(args)
    }

    /// Parses a command line that a program made, and ignores environment variables.
    ///
    /// # Errors
    /// When it is invalid.
    pub(crate) fn read_without_environment(line: Vec<String>) -> Result<Self, clap::Error> {
        Self::parse_line(kinds::without_environment(kinds::uniform(Self::command())), line)
    }

    /// The command `serve`, for the help of its flags.
    pub(crate) fn serve_command() -> clap::Command {
        Serve::augment_args(clap::Command::new("serve"))
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start the server.
    Serve(Box<Serve>),
    /// Stand in front of an existing cluster: mirror its objects, and answer lists, watches and queries from memory with each caller's own
    /// rights. All other requests are passed through.
    Gateway(Box<Gateway>),
    /// Tools for stores and their content.
    #[command(subcommand)]
    Storage(Storage),
    /// Users of the server.
    #[command(subcommand)]
    User(User),
    /// New keys for a rotation, in files that a server does not read yet.
    #[command(subcommand)]
    Keys(Keys),
    /// Print a script for a shell that completes the commands and flags of this one.
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual, a page for each command, into a directory.
    #[command(hide = true)]
    ManPages {
        /// The directory, which must exist.
        directory: PathBuf,
    },
    /// Check a data directory, its store and certificates, the port and the clock. Prints each problem with its remedy,
    /// and exits with 1 if there is one.
    Doctor(Doctor),
    /// Fill a server with a made-up cluster: nodes, namespaces, workloads with their pods and events, and custom
    /// resources. Running the command again completes an interrupted one.
    Demo(Demo),
    /// Check that a server keeps the promises of the Kubernetes API: any server, keelson or another. Exits with 1 where it breaks one.
    Verify(keelson_verify::Verify),
    /// Print the kubeconfig of the administrator.
    Kubeconfig(PrintKubeconfig),
    /// Print a bearer token of a service account, with which a browser signs in at the console.
    Token(PrintToken),
    /// Start a server with the flags of kube-apiserver. A copy of this program with the name kube-apiserver does the
    /// same.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    KubeApiserver(RawArguments),
    /// Start a stand-in for etcd, on which kube-apiserver starts in tests. A copy of this program with the name etcd
    /// does the same.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Etcd(RawArguments),
}

/// The arguments of a program that parses them itself.
#[derive(ClapArgs)]
pub(crate) struct RawArguments {
    /// Flags of that program; --help lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Print a key for the file of serve --token-key-file, which seals the continue tokens of lists.
    TokenSeal,
    /// Write a key that signs the tokens of service accounts, and its public half: STEM.key and STEM.pub.
    ServiceAccount {
        /// The stem of the file names. The files must not exist.
        #[arg(long, value_name = "STEM")]
        out: PathBuf,
    },
    /// Write a certificate authority that can replace the server's own: STEM.key and STEM.crt.
    Authority {
        /// The stem of the file names. The files must not exist.
        #[arg(long, value_name = "STEM")]
        out: PathBuf,
    },
}

/// Settings of the server.
#[derive(ClapArgs)]
pub(crate) struct Serve {
    /// Show all flags, by topic.
    // Handled before the line is parsed.
    #[arg(long)]
    help_all: bool,
    /// A YAML file with flags as fields, such as `bind: 127.0.0.1:6443`. Flags and variables win over it.
    #[arg(long, env = "KEELSON_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// The address to listen on, for HTTP/1.1 and HTTP/2 over TLS; :6443 is every IPv4 address of the host.
    #[arg(
        long,
        env = "KEELSON_BIND",
        default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443),
        value_parser = listen_address
    )]
    pub(crate) bind: SocketAddr,
    /// The directory for the store, certificates, keys and the kubeconfig.
    #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
    pub(crate) data_dir: PathBuf,
    #[command(flatten)]
    pub(crate) startup: startup::Startup,
    /// The store of the objects: sqlite:DIRECTORY (the data directory unless given), memory:, postgres://USER:PASSWORD@HOST/DATABASE
    /// or etcd://HOST:2379. Certificates and the kubeconfig live in the data directory in any case.
    // Parsed later: clap repeats an invalid value in its error, and this one may hold a password.
    #[arg(long, env = "KEELSON_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// A file with the password for PostgreSQL if the URL has none. Without it PGPASSWORD, PGPASSFILE and ~/.pgpass are
    /// used.
    #[arg(long, env = "KEELSON_STORE_PASSWORD_FILE")]
    pub(crate) store_password_file: Option<PathBuf>,
    /// Start although files of the data directory are lost. The embedded store continues with the remaining objects at
    /// a revision above all earlier ones, and lost keys are replaced. Remove the flag once the server has started.
    #[arg(long, env = "KEELSON_ACCEPT_LOSS")]
    pub(crate) accept_loss: bool,
    /// Omit unreadable objects from lists, such as ones encrypted by another server. Without the flag such lists fail.
    #[arg(long, env = "KEELSON_SKIP_UNREADABLE")]
    pub(crate) skip_unreadable: bool,
    /// The history window: the time for which lists continue and watches resume (such as 5m, 90s, 1h30m).
    #[arg(long, env = "KEELSON_HISTORY", default_value = "5m", value_parser = some_duration)]
    pub(crate) history: Duration,
    #[command(flatten)]
    pub(crate) store_room: store::StoreArgs,
    /// The largest object in bytes, with its metadata in the store. On etcd --max-request-bytes of etcd limits it too.
    #[arg(long, env = "KEELSON_MAX_OBJECT_BYTES", default_value_t = 1_572_864, value_parser = clap::value_parser!(u32).range(65_536..))]
    pub(crate) max_object_bytes: u32,
    /// The memory for lately used objects of large collections, which the cache keeps uncompressed (such as 1Gi); a
    /// thirty-second of the machine's memory and at least 64Mi by default. It compresses the others.
    #[arg(long, env = "KEELSON_CACHE_MEMORY", value_parser = store::bytes)]
    pub(crate) cache_memory: Option<u64>,
    /// The interval of comparisons of the cache with the store, which repair differences (such as 10m); 0 for never.
    #[arg(long, env = "KEELSON_CACHE_CHECK_INTERVAL", default_value = "10m", value_parser = duration_or_never)]
    pub(crate) cache_check_interval: OptionalDuration,
    /// The name of this server in its log and metrics; the host name and data directory decide it unless given.
    #[arg(long, env = "KEELSON_SERVER_ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) server_id: Option<String>,
    /// The time after which other servers consider this one stopped and ignore its storage versions: at least five
    /// seconds. A server that was paused for longer refuses writes until it has registered again.
    #[arg(long, env = "KEELSON_IDENTITY_LEASE", default_value = "1h", value_parser = identity_lease)]
    pub(crate) identity_lease: Duration,
    /// Start although other servers on the same store do not accept the client certificates, serving certificates or
    /// service account tokens of this one, or this one theirs.
    #[arg(long, env = "KEELSON_ALLOW_OTHER_KEYS")]
    pub(crate) allow_other_keys: bool,
    /// A directory with the keys that all servers on a store share: ca.crt, ca.key, sa.key and sa.pub. Each start copies them into the
    /// data directory.
    #[arg(long, env = "KEELSON_SHARED_KEYS_DIR", requires = "store")]
    pub(crate) shared_keys_dir: Option<PathBuf>,
    /// One more DNS name or IP address for the serving certificate. May be repeated.
    #[arg(long, env = "KEELSON_TLS_SAN", value_parser = list::<String>)]
    pub(crate) tls_san: Vec<List<String>>,
    /// A serving certificate of your own (PEM, with its chain).
    #[arg(long, env = "KEELSON_TLS_CERT_FILE", requires = "tls_private_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// The private key of --tls-cert-file (PEM).
    #[arg(long, env = "KEELSON_TLS_PRIVATE_KEY_FILE", requires = "tls_cert_file")]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// Accept client certificates from this authority (PEM) as well as from the server's own.
    #[arg(long, env = "KEELSON_CLIENT_CA_FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) front_proxy: front_proxy::FrontProxy,
    #[command(flatten)]
    pub(crate) nodes: nodes::Nodes,
    #[command(flatten)]
    pub(crate) upstream: upstream::Upstream,
    #[command(flatten)]
    pub(crate) serving: serving::ServingArgs,
    /// A file of bearer tokens, one a line: token,user,uid,"group1,group2". It is read again when it changes.
    #[arg(long, env = "KEELSON_TOKEN_AUTH_FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// A file of keys that seal the continue tokens of lists, one per line (openssl rand -base64 32), equal on all servers of a
    /// store. The first one seals, all open. It is read again when it changes. Without one a token shows the name of the next
    /// object.
    #[arg(long, env = "KEELSON_TOKEN_KEY_FILE")]
    pub(crate) token_key_file: Option<PathBuf>,
    /// Accept bootstrap tokens: secrets of the type bootstrap.kubernetes.io/token in kube-system, as kubeadm join uses
    /// them.
    #[arg(long, env = "KEELSON_ENABLE_BOOTSTRAP_TOKEN_AUTH")]
    pub(crate) enable_bootstrap_token_auth: bool,
    /// Serve the console at /console/: a page for browsers, whose files need no credentials.
    #[arg(
        long,
        env = "KEELSON_CONSOLE",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        value_parser = switch
    )]
    pub(crate) console: bool,
    #[command(flatten)]
    pub(crate) access: access::Access,
    /// Admission plugins to enable besides the default ones, by the names of kube-apiserver, in any order.
    #[arg(long, env = "KEELSON_ENABLE_ADMISSION_PLUGINS", value_parser = list::<String>)]
    pub(crate) enable_admission_plugins: Vec<List<String>>,
    /// Admission plugins to disable, such as PodSecurity.
    #[arg(long, env = "KEELSON_DISABLE_ADMISSION_PLUGINS", value_parser = list::<String>)]
    pub(crate) disable_admission_plugins: Vec<List<String>>,
    /// A file with settings of admission plugins (an AdmissionConfiguration): PodSecurity, webhooks, ResourceQuota, PodNodeSelector,
    /// PodTolerationRestriction, ImagePolicyWebhook and EventRateLimit.
    #[arg(long, env = "KEELSON_ADMISSION_CONTROL_CONFIG_FILE")]
    pub(crate) admission_control_config_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) audit: audit::Audit,
    #[command(flatten)]
    pub(crate) encryption: encryption::Encryption,
    /// Feature gates of Kubernetes, such as ContainerStopSignals=true. AllAlpha and AllBeta stand for all of a stage. As by
    /// kube-apiserver, unknown names and other values of locked gates are refused. Gates of features that this server lacks have no
    /// effect. APIListChunking=false ignores limit and continue. StorageVersionAPI is off with --ephemeral unless given here.
    #[arg(long, env = "KEELSON_FEATURE_GATES", value_parser = feature_gates)]
    pub(crate) feature_gates: Vec<List<(String, bool)>>,
    /// The release of Kubernetes whose API is served: 1.37 by default, or 1.36 (kube=1.36). The release decides group versions,
    /// fields, storage versions and feature gates.
    #[arg(long, env = "KEELSON_EMULATED_VERSION", value_parser = emulated_version)]
    pub(crate) emulated_version: Option<Release>,
    /// Resources whose lists are never chunked, because continue tokens show names: secrets, or with its group
    /// roles.rbac.authorization.k8s.io. May be repeated.
    #[arg(long, env = "KEELSON_NO_CHUNKING", value_parser = list::<String>)]
    pub(crate) no_chunking: Vec<List<String>>,
    /// The chunks of lists for users who may list only a selection of objects. With as-others, a continue token shows the
    /// last scanned key. With none, these lists have no chunks. With next-visible, a token shows the next selected key.
    #[arg(long, env = "KEELSON_CHUNKS_FOR_PARTIAL_RIGHTS", default_value = "as-others")]
    pub(crate) chunks_for_partial_rights: PartialRights,
    /// Honour limit at resourceVersion=0 also when no resourceVersionMatch is stated.
    #[arg(long, env = "KEELSON_LIMIT_AT_ANY_VERSION")]
    pub(crate) limit_at_any_version: bool,
    /// Index objects by these paths from the start, so that the first query by one is fast:
    /// pods=spec.nodeName,status.phase. Other paths are indexed after a few queries that use them. May be repeated.
    #[arg(long, value_name = "RESOURCE=PATHS")]
    pub(crate) index: Vec<String>,
    /// Store a resource in another version than the default, such as horizontalpodautoscalers.autoscaling=v1. This is needed as
    /// long as servers run that do not know the default version. kubernetes=1.33 stores all resources as servers of that
    /// release can read them. May be repeated; for one resource the last setting counts.
    #[arg(long, env = "KEELSON_STORAGE_VERSION", value_parser = list::<String>)]
    pub(crate) storage_version: Vec<List<String>>,
    /// A file of storage version settings, one per line. SIGHUP makes the server read it again and use the new
    /// settings.
    #[arg(long, env = "KEELSON_STORAGE_VERSION_FILE")]
    pub(crate) storage_version_file: Option<PathBuf>,
    /// The address at which clients and other servers reach the server. By default the one it listens on, or that of
    /// the host.
    #[arg(long, env = "KEELSON_ADVERTISE_ADDRESS")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// The authority that signs the serving certificates of the other servers on the store (PEM): it lets servers of
    /// different releases or settings forward requests to each other.
    #[arg(long, env = "KEELSON_PEER_CA_FILE")]
    pub(crate) peer_ca_file: Option<PathBuf>,
    /// The address at which other servers reach this one, if it is not the one for clients.
    #[arg(long, env = "KEELSON_PEER_ADVERTISE_IP")]
    pub(crate) peer_advertise_ip: Option<IpAddr>,
    /// The port at which other servers reach this one, if it is not the one for clients.
    #[arg(long, env = "KEELSON_PEER_ADVERTISE_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) peer_advertise_port: Option<u16>,
    /// Versions of built-in groups to serve or not. Examples: resource.k8s.io/v1beta1=true for one version, /v1 for that of the core group,
    /// batch/v1/jobs=false for one resource. All beta versions are api/beta=true (api/alpha, api/ga, api/all likewise). Alpha and beta
    /// versions are off by default, but for internal.apiserver.k8s.io/v1alpha1 and storagemigration.k8s.io/v1beta1. Objects stored in a
    /// version that is off stay. migration.k8s.io/v1alpha1=true serves the versions in which objects of each resource may be stored. May be
    /// repeated.
    #[arg(long, env = "KEELSON_RUNTIME_CONFIG", value_parser = list::<String>)]
    pub(crate) runtime_config: Vec<List<String>>,
    /// The range of the addresses of services, or one of each IP family, the preferred one first.
    #[arg(long, env = "KEELSON_SERVICE_CLUSTER_IP_RANGE", value_parser = list::<AddressRange>, default_value = "10.96.0.0/12")]
    pub(crate) service_cluster_ip_range: Vec<List<AddressRange>>,
    /// The address of a service without endpoints that this server can reach: NAMESPACE/NAME=https://HOST[:PORT]. For
    /// webhooks behind a service if there is no cluster network. May be repeated.
    #[arg(long, env = "KEELSON_SERVICE_ROUTE", value_parser = list::<ServiceRoute>)]
    pub(crate) service_route: Vec<List<ServiceRoute>>,
    /// Call servers other than services through the proxy in HTTPS_PROXY, except those in NO_PROXY.
    #[arg(long, env = "KEELSON_PROXY_FROM_ENVIRONMENT")]
    pub(crate) proxy_from_environment: bool,
    /// The egress proxies of the networks controlplane, cluster and etcd, as for kube-apiserver (an EgressSelectorConfiguration).
    #[arg(long, env = "KEELSON_EGRESS_SELECTOR_CONFIG_FILE")]
    pub(crate) egress_selector_config_file: Option<PathBuf>,
    /// The ports of all nodes that services may take.
    #[arg(long, env = "KEELSON_SERVICE_NODE_PORT_RANGE", default_value = "30000-32767")]
    pub(crate) service_node_port_range: PortRange,
    #[command(flatten)]
    pub(crate) tokens: tokens::TokenArgs,
    /// The private key that signs the tokens of service accounts (PEM; RSA or ECDSA), instead of sa.key in the data directory.
    #[arg(long, env = "KEELSON_SERVICE_ACCOUNT_SIGNING_KEY_FILE")]
    pub(crate) service_account_signing_key_file: Option<PathBuf>,
    /// A file of further keys that verify service account tokens (PEM: public or private keys, certificates), besides
    /// sa.pub in the data directory. May be repeated.
    #[arg(long, env = "KEELSON_SERVICE_ACCOUNT_KEY_FILE", value_parser = list::<PathBuf>)]
    pub(crate) service_account_key_file: Vec<List<PathBuf>>,
    /// Which controllers run in the server: * for all that are on by default, name for one, -name for all but one. The one that
    /// deletes pods of missing nodes is off unless named: pod-garbage-collector-controller.
    #[arg(long, env = "KEELSON_CONTROLLERS", value_parser = list::<String>, default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: Vec<List<String>>,
    #[command(flatten)]
    pub(crate) flow: flow::Flow,
    /// The number of threads that serve requests, and of those that make large lists and load the cache; by default one for each
    /// processor. Fewer suit servers that share a machine.
    #[arg(long, env = "KEELSON_THREADS", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) diagnosis: diagnosis::Diagnosis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Subcommand)]
pub(crate) enum Storage {
    /// Write a consistent copy of the embedded store to a file, and its checksum to FILE.sha256. Works while a server
    /// uses the store.
    Backup {
        /// The file to write; it must not exist.
        file: PathBuf,
        /// The data directory.
        #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
        data_dir: PathBuf,
        #[command(flatten)]
        output: ResultForm,
    },
    /// Create an embedded store from a backup. Compares the checksum in FILE.sha256 if that file exists.
    Restore {
        /// The backup to read.
        file: PathBuf,
        /// The data directory; it must not hold a store yet.
        #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
        data_dir: PathBuf,
        /// The number that is added to revisions, so that no client sees a smaller one than before. It must exceed the number of
        /// writes since the backup.
        #[arg(long, default_value_t = 1_000_000_000)]
        bump_revision: u64,
        #[command(flatten)]
        output: ResultForm,
    },
    /// Verify the embedded store: its log, its pages, and every version of every object. Reports damage and changes
    /// nothing. Works while a server uses the store.
    Check {
        /// The data directory.
        #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
        data_dir: PathBuf,
        #[command(flatten)]
        output: ResultForm,
    },
    /// Copy all objects from one store to another, empty one. Both are named as for serve --store. Stop the servers of
    /// the source first. An interrupted copy continues when the command is repeated.
    Copy(CopyStores),
    /// Show for each resource the storage version of the servers, whether they agree, the number of objects in older
    /// versions, and running migrations. Asks a running server.
    Versions(Versions),
}

/// Settings of `storage versions`.
#[derive(ClapArgs)]
pub(crate) struct Versions {
    /// Wait until all servers agree and no object is stored in an older version, and show the progress.
    #[arg(long)]
    pub(crate) wait: bool,
    /// The longest wait (such as 5m, 90s). No limit by default.
    #[arg(long, requires = "wait", value_parser = some_duration)]
    pub(crate) timeout: Option<Duration>,
    /// The kubeconfig of the server; by default the one in its data directory.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The data directory of the server.
    #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
    pub(crate) data_dir: PathBuf,
}

/// A shorter one would end between two renewals of a server that has much to do.
const SHORTEST_IDENTITY_LEASE: Duration = Duration::from_secs(5);

/// An address and a port; a port alone behind a colon is for every IPv4 address of the host.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    text.parse()
        .map_err(|_| format!("{text:?} is not an address with a port, such as 127.0.0.1:6443, [::]:6443 or :6443"))
}

fn identity_lease(text: &str) -> Result<Duration, String> {
    match some_duration(text)? {
        lease if lease < SHORTEST_IDENTITY_LEASE => Err(format!("{text:?} is less than {SHORTEST_IDENTITY_LEASE:?}")),
        lease => Ok(lease),
    }
}

fn feature_gates(text: &str) -> Result<List<(String, bool)>, String> {
    list_of(text, feature_gate)
}

fn feature_gate(text: &str) -> Result<(String, bool), String> {
    features::setting(text).map_err(|error| error.to_string())
}

fn emulated_version(text: &str) -> Result<Release, String> {
    Release::emulated(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_for_every_address() {
        assert_eq!(listen_address(":6443"), Ok("0.0.0.0:6443".parse().unwrap()));
        assert_eq!(listen_address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        for bad in ["", ":", "6443", "localhost:6443", "127.0.0.1", ":65536"] {
            assert!(listen_address(bad).unwrap_err().contains("127.0.0.1:6443"), "{bad}");
        }
    }

    #[test]
    fn an_identity_lease_has_five_seconds_at_least() {
        assert_eq!(identity_lease("1m"), Ok(Duration::from_mins(1)));
        assert!(identity_lease("4999ms").is_err() && identity_lease("0").is_err());
    }

    fn serve(flags: &str) -> Box<Serve> {
        let line = ["keelson", "serve"].into_iter().chain(flags.split_whitespace());
        match Args::read(line).unwrap_or_else(|error| panic!("{flags}: {error}")).command {
            Command::Serve(serve) => serve,
            _ => panic!("{flags}: it is serve"),
        }
    }

    /// As manifests of kube-apiserver have them.
    #[test]
    fn every_flag_of_a_kind_is_read_alike() {
        for (flags, expect) in [("", false), ("--accept-loss", true), ("--accept-loss=true", true)] {
            assert_eq!(serve(flags).accept_loss, expect, "{flags}");
        }
        assert!(!serve("--accept-loss --accept-loss=false").accept_loss, "the last one counts");
        assert!(!serve("--console=False").console && !serve("--console false").console && serve("--console").console);
        let refused = Args::read(["keelson", "serve", "--accept-loss=maybe"]).err().map(|error| error.to_string());
        assert!(refused.unwrap().contains("neither true nor false"));
        assert!(serve("--disable-admission-plugins=").disable_admission_plugins.joined().is_empty());
        assert!(serve("--controllers=").controllers.joined().is_empty());
        assert_eq!(serve("").controllers.joined(), ["*"]);
        assert_eq!(serve("--controllers *,-a --controllers=b").controllers.joined(), ["*", "-a", "b"]);
        assert_eq!(serve("--tls-san a,b --tls-san=c").tls_san.joined(), ["a", "b", "c"]);
        assert_eq!(serve("--history 1m --history=1m0.5s").history, Duration::from_millis(60_500));
        assert_eq!(serve("--cache-check-interval 0s").cache_check_interval, OptionalDuration(None));
        assert_eq!(
            (serve("--v=4").diagnosis.verbosity, serve("-v 2").diagnosis.verbosity, serve("").diagnosis.verbosity),
            (4, 2, 0)
        );
    }

    #[test]
    fn every_switch_takes_a_value() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments() {
                let is_bare = matches!(arg.get_action(), clap::ArgAction::SetTrue | clap::ArgAction::SetFalse);
                assert!(!is_bare, "--{} of {}", arg.get_id(), command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&kinds::uniform(Args::command()));
    }

    #[test]
    fn the_command_line_is_consistent() {
        kinds::uniform(Args::command()).debug_assert();
    }

    #[test]
    fn an_unknown_gate_names_those_there_are() {
        assert_eq!(feature_gate("APIListChunking=false"), Ok(("APIListChunking".to_owned(), false)));
        assert_eq!(feature_gate("Nope").unwrap_err(), "missing bool value for Nope");
    }
}
