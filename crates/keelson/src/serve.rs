//! `keelson serve`: turns flags into a running server and stops it at a signal.
//!
//! The first signal lets requests in flight end. So does the end of the parent process, if `--exit-with-parent` is set.
//! A server that fails stops in the same way. If that takes too long, the process is ended.

mod announcement;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail, ensure};
use keelson_meta::FeatureGates;
use keelson_server::{
    AdmissionConfiguration, AdmissionPlugins, Config, Diagnostics, Profiler, Proxy, RegistryConfig, RunningServer,
    STACK_BYTES, Server, ServiceRanges, SpanLayer, StoreConfig, Switches, TokenKeyFiles, Traces, TracingConfiguration,
    catalogue_of,
};
use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::announcement::Announcement;
use crate::args::{Diagnosis, ListValues as _, Output, Serve};
use crate::descriptors;
use crate::forks::Forks;
use crate::log::{self, Verbosity};
use crate::memory;
use crate::parent::Parent;
use crate::profiling::ProcessProfiler;
use crate::ready_file::ReadyFile;
use crate::shared_keys;
use crate::storage_versions::StorageVersions;

/// The time that a failed server has to stop in order, and that a stopped one has to end its remaining work, before the
/// process is ended.
pub(crate) const LAST_GRACE: Duration = Duration::from_secs(10);

/// The time that idle clients have to close their connections to an ephemeral server. They run on this machine, and
/// their test has ended.
pub(crate) const EPHEMERAL_PARTING: Duration = Duration::from_millis(30);

/// The gate of chunked lists.
const CHUNKING: &str = "APIListChunking";
/// The gate of storage versions.
const STORAGE_VERSIONS: &str = "StorageVersionAPI";

/// The smallest number of renewals within a lease.
const RENEWALS_IN_A_LEASE: u32 = 3;

/// Runs the server until SIGINT or SIGTERM, the end of the watched process, or a failure of the server.
pub(crate) fn run(args: Serve) -> anyhow::Result<()> {
    run_noting(args, &[])
}

/// Runs a server that replaces another program. It first logs `notes`: settings of that program that have no effect
/// here.
pub(crate) fn run_noting(args: Serve, notes: &[String]) -> anyhow::Result<()> {
    let (spans, traces) = traces(&args)?.unzip();
    let verbosity = log::start(args.diagnosis.log_format, args.diagnosis.verbosity, spans);
    for note in notes {
        tracing::info!("{note}");
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.thread_stack_size(STACK_BYTES);
    if let Some(threads) = args.threads {
        runtime.worker_threads(threads.into());
    }
    let runtime = runtime.enable_all().build().context("starting threads")?;
    let served = runtime.block_on(serve(args, traces, verbosity));
    // Abandoned work that cannot be interrupted must not delay the end of the process.
    runtime.shutdown_timeout(LAST_GRACE);
    served
}

/// The directory for keys and the kubeconfig.
struct DataDirectory {
    path: PathBuf,
    /// The drop of this value removes the temporary directory.
    _temporary: Option<TempDir>,
}

impl DataDirectory {
    fn from_args(args: &Serve) -> anyhow::Result<Self> {
        if args.startup.ephemeral {
            let made = tempfile::Builder::new().prefix("keelson-").tempdir();
            let temporary = made.context("making a temporary directory")?;
            return Ok(Self { path: temporary.path().to_owned(), _temporary: Some(temporary) });
        }
        let path = std::path::absolute(&args.data_dir).context("finding the data directory")?;
        Ok(Self { path, _temporary: None })
    }
}

async fn serve(args: Serve, traces: Option<Traces>, verbosity: Verbosity) -> anyhow::Result<()> {
    // ORDER: before the start. The start writes entries to the store that only an orderly stop removes.
    let mut signals = Signals::listen(Parent::from_watched(args.startup.exit_with_parent)?)?;
    let directory = DataDirectory::from_args(&args)?;
    let data_dir = directory.path.clone();
    let mut announcement = Announcement {
        output: args.startup.output,
        ready_file: args.startup.ready_file.clone(),
        data_dir: data_dir.clone(),
        console: false,
        beside_audit: false,
        ephemeral: args.startup.ephemeral,
        fork_socket: None,
    };
    // ORDER: of the ephemeral server alone. A fork comes with the rights of the administrator.
    let max_forks = if args.startup.ephemeral { usize::from(args.startup.max_forks) } else { 0 };
    if let Some(path) = &announcement.ready_file {
        ReadyFile::clear(path).with_context(|| format!("removing the earlier --ready-file {}", path.display()))?;
    }
    if let Some(shared) = &args.shared_keys_dir {
        shared_keys::install(shared, &data_dir).context("--shared-keys-dir")?;
    }
    let flags = args.storage_version.clone().joined();
    let release = args.emulated_version.unwrap_or_default();
    let versions = StorageVersions::new(args.storage_version_file.clone(), flags, release);
    let mut config = config(args, verbosity, &versions, &data_dir)?;
    config.traces = traces;
    let room = descriptors::raise();
    announcement.console = config.console;
    announcement.beside_audit = config.audit.writes_to_standard_output();
    ensure!(
        announcement.output != Output::Json || !announcement.beside_audit,
        "standard output can't have both the line of --output json and the events of --audit-log-path -"
    );
    config.connections = config.connections.min(room.clients);
    config.outbound_connections = config.outbound_connections.min(room.others);
    config.flow.watches = memory::watches().unwrap_or(config.flow.watches);
    let Some(server) = start(config, &mut signals).await? else { return Ok(()) };
    let forks =
        server.fork_origin().filter(|_| max_forks > 0).and_then(|origin| Forks::open(origin, &data_dir, max_forks));
    announcement.fork_socket = forks.as_ref().map(|forks| forks.path().to_owned());
    let (mut fault, unannounced) = until_stop(&server, &announcement, &versions, &mut signals, forks.as_ref()).await?;
    if fault.is_none() && unannounced.is_none() {
        fault = drained(&server, &mut signals).await;
    }
    if let Some(forks) = forks {
        tokio::join!(forks.end(), server.shutdown());
    } else {
        server.shutdown().await;
    }
    match (fault, unannounced) {
        (Some(why), _) => bail!(why),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(()),
    }
}

/// Runs the server until it has to stop. Returns the fault that ends it, or the error of the announcement.
async fn until_stop(
    server: &RunningServer,
    announcement: &Announcement,
    versions: &StorageVersions,
    signals: &mut Signals,
    forks: Option<&Forks>,
) -> anyhow::Result<(Option<String>, Option<anyhow::Error>)> {
    let forking = async {
        match forks {
            Some(forks) => forks.serve().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.received() => Ok((None, None)),
        announced = announcement.make(server) => Ok((None, announced.err())),
        failed = versions.follow(server) => match failed? {},
        never = forking => match never {},
        why = server.replaced() => Ok((Some(why), None)),
        failure = server.failed() => {
            end_soon(failure.to_string());
            Ok((Some(failure.to_string()), None))
        }
    }
}

/// Runs the phases of a shutdown. Returns the fault of a server that fails meanwhile.
async fn drained(server: &RunningServer, signals: &mut Signals) -> Option<String> {
    tokio::select! {
        () = server.drain() => None,
        () = signals.received() => {
            tracing::info!("a second request to stop ends the phases of the shutdown");
            None
        }
        why = server.replaced() => Some(why),
        failure = server.failed() => {
            end_soon(failure.to_string());
            Some(failure.to_string())
        }
    }
}

/// Starts the server; `None` if a signal arrives before the server is started.
async fn start(config: Config, signals: &mut Signals) -> anyhow::Result<Option<RunningServer>> {
    let token = CancellationToken::new();
    let mut starting = pin!(Server::start_unless(config, token.clone().cancelled_owned()));
    tokio::select! {
        started = &mut starting => return started,
        () = signals.received() => token.cancel(),
    }
    // The start has written nothing yet, or is about to register the server, and the shutdown then removes that
    // registration.
    match tokio::time::timeout(LAST_GRACE, starting).await.context("the start could not be broken off in time")?? {
        Some(server) => server.shutdown().await,
        None => tracing::info!("stopped before the server was ready"),
    }
    Ok(None)
}

/// The requests to stop: signals, and the end of the watched process.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    parent: Parent,
}

impl Signals {
    pub(crate) fn listen(parent: Parent) -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        Ok(Self { terminate, interrupt, parent })
    }

    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = self.parent.ended() => tracing::info!("the process that --exit-with-parent watches has ended"),
        }
    }
}

/// Ends the process if an orderly stop takes too long: the other tasks may wait for the one that failed.
///
/// The exit uses a separate thread, since the threads of the runtime may be blocked. A store survives it as it survives
/// `kill -9`.
pub(crate) fn end_soon(why: String) {
    std::thread::spawn(move || {
        std::thread::sleep(LAST_GRACE);
        crate::complain(&anyhow::anyhow!("{why}; the server did not stop within {LAST_GRACE:?} and is killed"));
        std::process::exit(1);
    });
}

fn registry_config(args: &Serve, versions: &StorageVersions) -> anyhow::Result<RegistryConfig> {
    let mut registry = RegistryConfig {
        limit_at_any_version: args.limit_at_any_version,
        partial_rights: args.chunks_for_partial_rights,
        skip_unreadable: args.skip_unreadable,
        ..RegistryConfig::default()
    };
    read_gates(args, &mut registry).context("reading --feature-gates")?;
    for setting in &args.index {
        registry.index(setting).map_err(anyhow::Error::msg).context("reading --index")?;
    }
    versions.read_into(&mut registry)?;
    let ignored = registry
        .serve(catalogue_of(registry.release()), &args.runtime_config.clone().joined())
        .map_err(anyhow::Error::msg)
        .context("reading --runtime-config")?;
    if !ignored.is_empty() {
        tracing::warn!(
            versions = ignored.join(","),
            "--runtime-config names versions of which this server has no resources"
        );
    }
    registry.service_ranges =
        ServiceRanges::new(args.service_cluster_ip_range.clone().joined(), args.service_node_port_range)
            .map_err(anyhow::Error::msg)
            .context("reading --service-cluster-ip-range")?;
    Ok(registry)
}

/// Sets the emulated release and the feature gates. `APIListChunking` is a gate of this server alone, since upstream has
/// removed it.
fn read_gates(args: &Serve, registry: &mut RegistryConfig) -> anyhow::Result<()> {
    registry.emulate(args.emulated_version.unwrap_or_default());
    let (own, gates): (Vec<_>, Vec<_>) =
        args.feature_gates.clone().joined().into_iter().partition(|(name, _)| name == CHUNKING);
    if let Some((_, on)) = own.last() {
        registry.chunking = *on;
    }
    for warning in registry.gates.set(&gates)? {
        tracing::warn!("{warning}");
    }
    // The API coordinates servers on one store, which an ephemeral server never shares. Its about 100 writes would take a
    // quarter of the start.
    let is_set = gates.iter().any(|(name, _)| name == STORAGE_VERSIONS);
    registry.storage_version_api = registry.gates.is_on(STORAGE_VERSIONS) && (is_set || !args.startup.ephemeral);
    Ok(())
}

fn config(
    args: Serve,
    verbosity: Verbosity,
    versions: &StorageVersions,
    data_dir: &std::path::Path,
) -> anyhow::Result<Config> {
    // SIZE: one list of settings.
    let registry = registry_config(&args, versions)?;
    let store = match args.store.as_deref() {
        None if args.startup.ephemeral => StoreConfig::Memory,
        Some(url) => StoreConfig::parse(url).context("reading --store")?,
        None => StoreConfig::Sqlite(data_dir.to_owned()),
    };
    let store = store.with_password(args.store_password_file.as_deref()).context("reading --store-password-file")?;
    let mut config = Config {
        bind: args.bind,
        store,
        data_dir: Some(data_dir.to_owned()),
        history: args.history,
        accept_loss: args.accept_loss,
        store_room: args.store_room.into_room(args.startup.unsafe_no_fsync),
        max_object_bytes: args.max_object_bytes as usize,
        cache_check_interval: args.cache_check_interval.0,
        registry,
        ..Config::default()
    };
    config.packing.plain_bytes = args.cache_memory.or_else(memory::plain_objects).unwrap_or(config.packing.plain_bytes);
    if args.startup.ephemeral {
        config.parting = EPHEMERAL_PARTING;
    }
    for name in &args.no_chunking.joined() {
        config.never_chunk(catalogue_of(config.registry.release()), name).context("--no-chunking")?;
    }
    config.advertise_address = args.advertise_address;
    config.token_file = args.token_auth_file;
    config.token_key_file = args.token_key_file;
    config.bootstrap_tokens = args.enable_bootstrap_token_auth;
    config.flow = args.flow.limits(config.flow)?;
    config.console = args.console;
    args.access.read_into(&mut config)?;
    config.admission =
        AdmissionPlugins::new(args.enable_admission_plugins.joined(), args.disable_admission_plugins.joined())
            .map_err(anyhow::Error::msg)?;
    if let Some(path) = &args.admission_control_config_file {
        config.admission_configuration = AdmissionConfiguration::from_file(path, &config.admission)
            .map_err(anyhow::Error::msg)
            .context("--admission-control-config-file")?;
    }
    config.peer_ca_file = args.peer_ca_file;
    config.peer_advertise_ip = args.peer_advertise_ip;
    config.peer_advertise_port = args.peer_advertise_port;
    if args.proxy_from_environment {
        config.proxy = Proxy::from_environment().map_err(anyhow::Error::msg).context("reading HTTPS_PROXY")?;
    }
    if let Some(file) = &args.config {
        tracing::info!(file = %file.display(), "flags of a file are in effect");
    }
    if let Some(file) = &args.egress_selector_config_file {
        config.egress =
            keelson_server::read_egress(file, &config.random).context("reading --egress-selector-config-file")?;
    }
    config.service_routes = args.service_route.joined().into_iter().collect();
    args.tokens.read_into(&mut config)?;
    config.controllers = Switches::parse(args.controllers.joined().iter().map(String::as_str))
        .map_err(anyhow::Error::msg)
        .context("reading --controllers")?;
    config.server_id = args.server_id.unwrap_or_else(|| Config::derived_server_id(data_dir));
    config.identity_interval = config.identity_interval.min(args.identity_lease / RENEWALS_IN_A_LEASE);
    config.identity_duration = args.identity_lease;
    config.allow_other_keys = args.allow_other_keys;
    config.pki.accept_loss = args.accept_loss;
    config.pki.no_fsync = args.startup.ephemeral || args.startup.unsafe_no_fsync;
    config.pki.extra_names = args.tls_san.joined();
    // Clients of the advertised address need a certificate for it.
    let advertised = config.advertise_address.filter(|address| !address.is_unspecified());
    config.pki.extra_names.extend(advertised.map(|address| address.to_string()));
    config.pki.serving = args.tls_cert_file.zip(args.tls_private_key_file);
    config.pki.client_ca = args.client_ca_file;
    config.pki.service_account = TokenKeyFiles {
        signing: args.service_account_signing_key_file,
        verifying: args.service_account_key_file.joined(),
    };
    config.pki.front_proxy = args.front_proxy.into_options();
    config.nodes = args.nodes.into_options();
    args.upstream.read_into(&mut config)?;
    args.serving.read_into(&mut config)?;
    config.audit = args.audit.into_config();
    config.encryption = args.encryption.into_config(&config.registry.gates);
    config.diagnostics = diagnostics(args.diagnosis, &config.registry.gates, verbosity);
    Ok(config)
}

/// The layer for spans and their export, if the flags have a configuration.
fn traces(args: &Serve) -> anyhow::Result<Option<(SpanLayer, Traces)>> {
    let Some(file) = &args.diagnosis.tracing_config_file else { return Ok(None) };
    let configuration = TracingConfiguration::load(file)?;
    Ok(Some(Traces::new(configuration, Config::default().random)))
}

/// The sources of pages for diagnosis that the flags and the feature gates enable.
fn diagnostics(diagnosis: Diagnosis, gates: &FeatureGates, verbosity: Verbosity) -> Diagnostics {
    let profiling = diagnosis.profiling;
    let profiler = || Arc::new(ProcessProfiler) as Arc<dyn Profiler>;
    Diagnostics {
        flags: gates.is_on("ComponentFlagz").then(|| Arc::new(diagnosis.shown)),
        started: gates.is_on("ComponentStatusz").then(SystemTime::now),
        verbosity: profiling.then(|| Arc::new(verbosity) as _),
        profiler: profiling.then(profiler),
    }
}
