//! The command line. Every flag of `serve` can be set by an environment variable too.
//!
//! Values are checked here as far as their form goes. What a setting means, and whether it fits the others, is said where it
//! is used.

mod access;
mod audit;
mod front_proxy;
mod store;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use keelson_server::{AddressRange, PartialRights, PortRange, ServiceRoute};

/// More threads than processors are of no use, and no machine has more of these.
const MAX_THREADS: i64 = 4096;

/// A Kubernetes API server for very large collections.
#[derive(Parser)]
#[command(name = "keelson", version, propagate_version = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start the server.
    Serve(Box<Serve>),
    /// Tools for stores, and for what servers keep there.
    #[command(subcommand)]
    Storage(Storage),
    /// People who may use the server.
    #[command(subcommand)]
    User(User),
}

#[derive(Subcommand)]
pub(crate) enum User {
    /// Make a user: have a certificate signed for it, bind a role to it if one is named, and write the kubeconfig that it works
    /// with. Asks a running server.
    Create(UserCreate),
}

/// Settings of `user create`.
#[derive(ClapArgs)]
pub(crate) struct UserCreate {
    /// The name of the user.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: String,
    /// A group that it belongs to. May be repeated.
    #[arg(long = "group")]
    pub(crate) groups: Vec<String>,
    /// The namespace that it works in: the one of its kubeconfig, and of the binding.
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// A cluster role to bind to it, such as view, edit or admin: in the namespace, or in all namespaces if none is given.
    #[arg(long)]
    pub(crate) role: Option<String>,
    /// Bind the role in all namespaces, whatever --namespace says; without either flag the command does so with a warning.
    #[arg(long, requires = "role")]
    pub(crate) all_namespaces: bool,
    /// How long the certificate holds (such as 720h); a year unless given, which is also the longest.
    #[arg(long, value_parser = duration)]
    pub(crate) valid_for: Option<Duration>,
    /// The file to write; NAME.kubeconfig unless given. It must not exist.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// How to reach the server; the kubeconfig that it wrote into its data directory, unless given, or else the one that KUBECONFIG names.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where the user reaches the server, such as https://api.example.org:6443; as this command does, unless given. The command
    /// warns where the server's certificate does not hold for that name (serve --tls-san).
    #[arg(long)]
    pub(crate) server: Option<String>,
    /// The data directory of the server.
    #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
    pub(crate) data_dir: PathBuf,
}

/// Settings of the server.
#[derive(ClapArgs)]
pub(crate) struct Serve {
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
    /// Where to keep objects: sqlite:DIRECTORY (the data directory unless given), memory:, postgres://USER:PASSWORD@HOST/DATABASE
    /// or etcd://HOST:2379. Certificates and the kubeconfig live in the data directory in any case.
    // Read later: what clap can't read it repeats, and this may hold a password.
    #[arg(long, env = "KEELSON_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// A file that holds the password for PostgreSQL, where the URL holds none. Without it PGPASSWORD, PGPASSFILE and ~/.pgpass are looked
    /// at.
    #[arg(long, env = "KEELSON_STORE_PASSWORD_FILE")]
    pub(crate) store_password_file: Option<PathBuf>,
    /// Start although the data directory has lost something. The embedded store continues without it, at a revision above all that were
    /// given out, and keys are made anew. Take the flag away once the server has started.
    #[arg(long, env = "KEELSON_ACCEPT_LOSS")]
    pub(crate) accept_loss: bool,
    /// Leave objects that can't be read out of lists (encrypted by another server, say), rather than fail such lists.
    #[arg(long, env = "KEELSON_SKIP_UNREADABLE")]
    pub(crate) skip_unreadable: bool,
    /// How long the past can be read: continued lists and resumed watches (such as 5m, 90s, 1h30m).
    #[arg(long, env = "KEELSON_HISTORY", default_value = "5m", value_parser = duration)]
    pub(crate) history: Duration,
    #[command(flatten)]
    pub(crate) store_room: store::StoreArgs,
    /// The largest object in bytes, with what the store keeps beside it. A store on etcd takes no more than its own
    /// --max-request-bytes, whatever this says.
    #[arg(long, env = "KEELSON_MAX_OBJECT_BYTES", default_value_t = 1_572_864, value_parser = clap::value_parser!(u32).range(65_536..))]
    pub(crate) max_object_bytes: u32,
    /// How often the cache is compared with the store, and mended where they differ (such as 10m); 0 is never.
    #[arg(long, env = "KEELSON_CACHE_CHECK_INTERVAL", default_value = "10m", value_parser = duration_or_never)]
    pub(crate) cache_check_interval: OrNever,
    /// The name of this server in its log and metrics; the host name and data directory decide it unless given.
    #[arg(long, env = "KEELSON_SERVER_ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) server_id: Option<String>,
    /// How long this server may go unheard of before others take it for gone, with what it has published: five seconds at least.
    /// One that was paused for longer writes nothing until it has registered anew.
    #[arg(long, env = "KEELSON_IDENTITY_LEASE", default_value = "1h", value_parser = identity_lease)]
    pub(crate) identity_lease: Duration,
    /// Start although servers that run on the same store would refuse what this one signs, or the other way round: client
    /// certificates, serving certificates, tokens of service accounts.
    #[arg(long, env = "KEELSON_ALLOW_OTHER_KEYS")]
    pub(crate) allow_other_keys: bool,
    /// One more DNS name or IP address for the serving certificate. May be repeated.
    #[arg(long, env = "KEELSON_TLS_SAN", value_delimiter = ',')]
    pub(crate) tls_san: Vec<String>,
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
    /// A file of bearer tokens, one a line: token,user,uid,"group1,group2". It is read again when it changes.
    #[arg(long, env = "KEELSON_TOKEN_AUTH_FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// A file of keys that seal the continue tokens of lists, one a line (openssl rand -base64 32), the same for all servers on a
    /// store: the first one seals, all open. It is read again when it changes. Without one a token shows the name of the next object.
    #[arg(long, env = "KEELSON_TOKEN_KEY_FILE")]
    pub(crate) token_key_file: Option<PathBuf>,
    /// Take bootstrap tokens, the secrets of the type bootstrap.kubernetes.io/token in kube-system, as kubeadm join uses them.
    #[arg(long, env = "KEELSON_ENABLE_BOOTSTRAP_TOKEN_AUTH")]
    pub(crate) enable_bootstrap_token_auth: bool,
    /// Serve the console at /console/: a page for browsers, whose files anybody may have.
    #[arg(long, env = "KEELSON_CONSOLE", default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) console: bool,
    #[command(flatten)]
    pub(crate) access: access::Access,
    /// Plugins of admission to ask beside those that are asked by default, by upstream's names. The order does not matter.
    #[arg(long, env = "KEELSON_ENABLE_ADMISSION_PLUGINS", value_delimiter = ',')]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Plugins of admission not to ask, such as PodSecurity.
    #[arg(long, env = "KEELSON_DISABLE_ADMISSION_PLUGINS", value_delimiter = ',')]
    pub(crate) disable_admission_plugins: Vec<String>,
    /// A file with settings of plugins of admission (an AdmissionConfiguration): of PodSecurity what holds in namespaces without labels,
    /// and who is exempt.
    #[arg(long, env = "KEELSON_ADMISSION_CONTROL_CONFIG_FILE")]
    pub(crate) admission_control_config_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) audit: audit::Audit,
    /// Feature gates, such as APIListChunking=false.
    #[arg(long, env = "KEELSON_FEATURE_GATES", value_delimiter = ',', value_parser = feature_gate)]
    pub(crate) feature_gates: Vec<(FeatureGate, bool)>,
    /// Resources whose lists are never chunked, because continue tokens show names: secrets, or with its group
    /// roles.rbac.authorization.k8s.io. May be repeated.
    #[arg(long, env = "KEELSON_NO_CHUNKING", value_delimiter = ',')]
    pub(crate) no_chunking: Vec<String>,
    /// How lists are cut for callers who may list what they select and not all of its range: as-others (a continue token shows the key
    /// that was looked at last), none (their lists come whole), or next-visible (it shows the next key that is selected).
    #[arg(long, env = "KEELSON_CHUNKS_FOR_PARTIAL_RIGHTS", default_value = "as-others")]
    pub(crate) chunks_for_partial_rights: PartialRights,
    /// Honour limit at resourceVersion=0 also when no resourceVersionMatch is stated.
    #[arg(long, env = "KEELSON_LIMIT_AT_ANY_VERSION")]
    pub(crate) limit_at_any_version: bool,
    /// Have queries find objects by their values at some paths without a look at all of them, from the first query on:
    /// pods=spec.nodeName,status.phase. Other paths are indexed when queries have asked for them a few times. May be repeated.
    #[arg(long, value_name = "RESOURCE=PATHS")]
    pub(crate) index: Vec<String>,
    /// Store a resource in another version than usual, such as horizontalpodautoscalers.autoscaling=v1, as long as servers
    /// run that do not know the usual one; kubernetes=1.33 stores all resources as servers of that release can read them. May be repeated,
    /// and of settings for one resource the last counts.
    #[arg(long, env = "KEELSON_STORAGE_VERSION", value_delimiter = ',')]
    pub(crate) storage_version: Vec<String>,
    /// A file of such settings, one a line, which is read again at SIGHUP: the server goes over to what it says then.
    #[arg(long, env = "KEELSON_STORAGE_VERSION_FILE")]
    pub(crate) storage_version_file: Option<PathBuf>,
    /// The address at which others reach the server; the one that it listens on, or the host's own, unless given.
    #[arg(long, env = "KEELSON_ADVERTISE_ADDRESS")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// The authority that signs the serving certificates of the other servers on the store (PEM): with it servers of different releases or
    /// settings answer for each other.
    #[arg(long, env = "KEELSON_PEER_CA_FILE")]
    pub(crate) peer_ca_file: Option<PathBuf>,
    /// The address at which other servers reach this one, where clients reach it at another.
    #[arg(long, env = "KEELSON_PEER_ADVERTISE_IP")]
    pub(crate) peer_advertise_ip: Option<IpAddr>,
    /// The port at which other servers reach this one, where clients reach it at another.
    #[arg(long, env = "KEELSON_PEER_ADVERTISE_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) peer_advertise_port: Option<u16>,
    /// Versions of built-in groups to serve or not. resource.k8s.io/v1beta1=true is one version, /v1 that of the core group,
    /// batch/v1/jobs=false one resource, api/beta=true are all beta versions (api/alpha, api/ga, api/all likewise). Alpha and beta versions
    /// are off by default, but for internal.apiserver.k8s.io/v1alpha1 and storagemigration.k8s.io/v1beta1. Objects stored in a version that
    /// is off stay. migration.k8s.io/v1alpha1=true serves the versions in which objects of each resource may be stored. May be repeated.
    #[arg(long, env = "KEELSON_RUNTIME_CONFIG", value_delimiter = ',')]
    pub(crate) runtime_config: Vec<String>,
    /// The range of the addresses of services, or one of each IP family, the preferred one first.
    #[arg(long, env = "KEELSON_SERVICE_CLUSTER_IP_RANGE", value_delimiter = ',', default_value = "10.96.0.0/12")]
    pub(crate) service_cluster_ip_range: Vec<AddressRange>,
    /// Where a service is reached that has no endpoints this server could reach: NAMESPACE/NAME=https://HOST[:PORT]. For webhooks
    /// that are called through a service where there is no cluster network. May be repeated.
    #[arg(long, env = "KEELSON_SERVICE_ROUTE", value_delimiter = ',')]
    pub(crate) service_route: Vec<ServiceRoute>,
    /// Call others than services by the proxy that HTTPS_PROXY names, but for those in NO_PROXY.
    #[arg(long, env = "KEELSON_PROXY_FROM_ENVIRONMENT")]
    pub(crate) proxy_from_environment: bool,
    /// The ports of all nodes that services may take.
    #[arg(long, env = "KEELSON_SERVICE_NODE_PORT_RANGE", default_value = "30000-32767")]
    pub(crate) service_node_port_range: PortRange,
    /// Who the tokens of service accounts say signed them: a URL, which is also the audience of this server.
    #[arg(long, env = "KEELSON_SERVICE_ACCOUNT_ISSUER", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) service_account_issuer: Option<String>,
    /// The private key that signs the tokens of service accounts (PEM; RSA or ECDSA), instead of sa.key in the data directory.
    #[arg(long, env = "KEELSON_SERVICE_ACCOUNT_SIGNING_KEY_FILE")]
    pub(crate) service_account_signing_key_file: Option<PathBuf>,
    /// A file of keys by which tokens of service accounts are verified too (PEM: public or private keys, certificates), beside those of
    /// sa.pub in the data directory. May be repeated.
    #[arg(long, env = "KEELSON_SERVICE_ACCOUNT_KEY_FILE", value_delimiter = ',')]
    pub(crate) service_account_key_file: Vec<PathBuf>,
    /// Which controllers run in the server: * for all that are on by default, name for one, -name for all but one. The one that
    /// deletes pods of missing nodes is off unless named: pod-garbage-collector-controller.
    #[arg(long, env = "KEELSON_CONTROLLERS", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: Vec<String>,
    /// How many threads serve requests, and as many more make large lists and load the cache; one for each processor unless
    /// given. Fewer suit servers that share a machine.
    #[arg(long, env = "KEELSON_THREADS", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    pub(crate) threads: Option<u16>,
    /// The form of the log.
    #[arg(long, env = "KEELSON_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeatureGate {
    /// Lists in chunks (KEP-365).
    ApiListChunking,
    /// Storage versions (KEP-2339).
    StorageVersionApi,
}

#[derive(Subcommand)]
pub(crate) enum Storage {
    /// Write a consistent copy of the embedded store to a file. Works while a server is running on it.
    Backup {
        /// The file to write; it must not exist.
        file: PathBuf,
        /// The data directory.
        #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
        data_dir: PathBuf,
    },
    /// Make a new embedded store out of a backup.
    Restore {
        /// The backup to read.
        file: PathBuf,
        /// The data directory; it must not hold a store yet.
        #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
        data_dir: PathBuf,
        /// How far revisions are raised, so that no client sees a smaller one than before. More than were written since the
        /// backup was taken.
        #[arg(long, default_value_t = 1_000_000_000)]
        bump_revision: u64,
    },
    /// Verify the embedded store: its log, its pages, and every version of every object. Says what is damaged and changes nothing.
    /// Works while a server is running on it.
    Check {
        /// The data directory.
        #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
        data_dir: PathBuf,
    },
    /// Copy all objects from one store to another, empty one: stores are written as for serve --store. Stop the servers of the source
    /// first. An interrupted copy goes on when the command is given again.
    Copy {
        /// The store to read.
        from: String,
        /// The store to write.
        to: String,
        /// Copy a source without objects too. It is taken for a mistyped one otherwise.
        #[arg(long)]
        allow_empty: bool,
    },
    /// Tell of each resource in which version the servers store it, whether they agree, how much lies in the store in an older one, and
    /// what is being written anew. Asks a running server.
    Versions(Versions),
}

/// Settings of `storage versions`.
#[derive(ClapArgs)]
pub(crate) struct Versions {
    /// Wait until all servers agree and nothing is stored in an older version, and show how far that is.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait at the most (such as 5m, 90s); without it there is no end.
    #[arg(long, requires = "wait", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// How to reach the server; the kubeconfig that it wrote into its data directory, unless given.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The data directory of the server.
    #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
    pub(crate) data_dir: PathBuf,
}

/// Reads `5m`, `90s`, `1h30m`, `250ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration; write it like 5m, 90s or 1h30m");
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let scale = match &rest[..unit] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(bad()),
        };
        total += Duration::from_millis(number.checked_mul(scale).ok_or_else(bad)?);
        rest = &rest[unit..];
    }
    if total.is_zero() { Err(bad()) } else { Ok(total) }
}

/// A duration, or none where 0 says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrNever(pub(crate) Option<Duration>);

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
    match duration(text)? {
        lease if lease < SHORTEST_IDENTITY_LEASE => Err(format!("{text:?} is less than {SHORTEST_IDENTITY_LEASE:?}")),
        lease => Ok(lease),
    }
}

fn duration_or_never(text: &str) -> Result<OrNever, String> {
    if text == "0" { Ok(OrNever(None)) } else { duration(text).map(|interval| OrNever(Some(interval))) }
}

fn feature_gate(text: &str) -> Result<(FeatureGate, bool), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not of the form Gate=true"))?;
    let on = value.parse().map_err(|_| format!("{value:?} is neither true nor false"))?;
    match name {
        "APIListChunking" => Ok((FeatureGate::ApiListChunking, on)),
        "StorageVersionAPI" => Ok((FeatureGate::StorageVersionApi, on)),
        _ => Err(format!("there is no feature gate {name:?}; there are: APIListChunking, StorageVersionAPI")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_people_write_them() {
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["", "5", "m", "5 m", "0s", "5d", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_alone_is_for_every_address() {
        assert_eq!(listen_address(":6443"), Ok("0.0.0.0:6443".parse().unwrap()));
        assert_eq!(listen_address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        for bad in ["", ":", "6443", "localhost:6443", "127.0.0.1", ":65536"] {
            assert!(listen_address(bad).unwrap_err().contains("127.0.0.1:6443"), "{bad}");
        }
    }

    #[test]
    fn an_interval_of_0_is_never() {
        assert_eq!(duration_or_never("0"), Ok(OrNever(None)));
        assert_eq!(identity_lease("1m"), Ok(Duration::from_mins(1)));
        assert!(identity_lease("4999ms").is_err());
        assert_eq!(duration_or_never("10m"), Ok(OrNever(Some(Duration::from_mins(10)))));
        assert!(duration_or_never("often").is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }

    #[test]
    fn an_unknown_gate_names_those_there_are() {
        assert_eq!(feature_gate("APIListChunking=false"), Ok((FeatureGate::ApiListChunking, false)));
        assert!(feature_gate("Nope=true").unwrap_err().contains("APIListChunking"));
    }
}
