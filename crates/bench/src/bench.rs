//! The shared state of rows: the server, its data, and whether it has the pods.
//!
//! Rows that need pods create them at first use, so that a single row can run alone.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::Options;
use crate::figure::{Observed, Quantity};
use crate::load::{Until, load};
use crate::pods::Pods;
use crate::process::Process;
use crate::rows::definitions;
use crate::server::{Launch, Server};
use crate::store::BenchStore;
use crate::wire::{Client, Request};

/// The number of concurrent creates while the collection is filled.
const CREATING: usize = 48;
/// The files that servers on one store share, below their data directories.
const SHARED_KEYS: [&str; 4] = ["ca.crt", "ca.key", "sa.key", "sa.pub"];

/// One measurement of all chosen rows.
pub(crate) struct Bench {
    pub(crate) runs: usize,
    /// The number of writes before a start under load.
    pub(crate) writes: usize,
    pub(crate) pods: Rc<Pods>,
    pub(crate) store: BenchStore,
    /// The store of the filled server, after its start.
    filled_store: Option<Option<String>>,
    /// The programs for the rows about the cost of one object.
    pub(crate) costs: Vec<PathBuf>,
    launch: Launch,
    directory: Directory,
    server: Option<Server>,
    filled: Option<(Quantity, Observed)>,
    /// The figures with many definitions of custom resources, after their measurement.
    pub(crate) definitions: Option<definitions::DefinitionFigures>,
}

/// A server that can be started again on its directory.
pub(crate) struct Restartable {
    launch: Launch,
    data: PathBuf,
    store: Option<String>,
}

impl Restartable {
    pub(crate) async fn start(&self) -> Result<Server> {
        self.launch.start(&self.data, self.store.as_deref()).await
    }
}

enum Directory {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Directory {
    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }
}

impl Bench {
    pub(crate) fn prepare(options: &Options, store: BenchStore) -> Result<Self> {
        ensure!(options.runs > 0 && options.pods > 0, "there must be at least one run and one pod");
        let directory = match &options.data_dir {
            Some(path) => {
                std::fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
                ensure!(std::fs::read_dir(path)?.next().is_none(), "{} is not empty", path.display());
                Directory::Given(path.clone())
            }
            // Next to the server's binary. The system's temporary directory may be in memory, where durability costs
            // nothing.
            None => Directory::Temporary(TempDir::with_prefix_in(
                "bench-",
                options.server.parent().unwrap_or(Path::new(".")),
            )?),
        };
        Ok(Self {
            runs: options.runs,
            writes: options.writes,
            pods: Rc::new(Pods::new(options.pods, vec![String::new()])),
            store,
            filled_store: None,
            costs: options.costs.clone(),
            launch: Launch { binary: options.server.clone(), args: options.server_args.clone(), threads: None },
            directory,
            server: None,
            filled: None,
            definitions: None,
        })
    }

    /// The path of the measured program.
    pub(crate) fn binary(&self) -> &Path {
        &self.launch.binary
    }

    /// The directory of all data.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a new server on an empty directory, for a row that measures a start.
    pub(crate) async fn fresh(&self, number: usize) -> Result<Server> {
        Ok(self.restartable(number).await?.0)
    }

    /// Starts a new server with further arguments.
    pub(crate) async fn fresh_with(&self, number: usize, args: &[&str]) -> Result<Server> {
        let data = self.directory.path().join(format!("fresh-{number}"));
        std::fs::create_dir(&data)?;
        let mut launch = self.launch.clone();
        launch.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        launch.start(&data, self.store.url(&format!("fresh-{number}")).as_deref()).await
    }

    /// Starts a new server that can be stopped and started again on its data.
    pub(crate) async fn restartable(&self, number: usize) -> Result<(Server, Restartable)> {
        let name = format!("fresh-{number}");
        let data = self.directory.path().join(&name);
        std::fs::create_dir(&data)?;
        let again = Restartable { launch: self.launch.clone(), data, store: self.store.url(&name) };
        Ok((again.start().await?, again))
    }

    /// Starts `count` servers on one new store. Returns the store's URL and the servers.
    pub(crate) async fn together(&self, name: &str, count: usize) -> Result<(String, Vec<Server>)> {
        ensure!(self.store.is_postgres(), "this row is of servers on a PostgreSQL; --store postgres starts one");
        let url = self.store.url(name).context("it has a URL")?;
        let launch = self.launch.sharing(count);
        let mut servers = Vec::new();
        for number in 0..count {
            let data = self.directory.path().join(format!("{name}-{number}"));
            let keys = data.join("pki");
            std::fs::create_dir_all(&keys)?;
            if number > 0 {
                let first = self.directory.path().join(format!("{name}-0/pki"));
                for file in SHARED_KEYS {
                    std::fs::copy(first.join(file), keys.join(file)).with_context(|| format!("cannot copy {file}"))?;
                }
            }
            servers.push(launch.start(&data, Some(&url)).await?);
        }
        Ok((url, servers))
    }

    /// The server with the collection.
    pub(crate) async fn filled(&mut self) -> Result<&Server> {
        self.fill().await?;
        self.server.as_ref().context("the server was started")
    }

    /// Stops the filled server and starts it again on its data.
    pub(crate) async fn restarted(&mut self) -> Result<&Server> {
        self.fill().await?;
        if let Some(server) = self.server.take() {
            server.stop().await?;
        }
        self.start().await
    }

    /// Fills the collection once and returns the rate.
    pub(crate) async fn fill(&mut self) -> Result<(Quantity, Observed)> {
        if let Some(figure) = &self.filled {
            return Ok(figure.clone());
        }
        eprintln!("filling {} pods", self.pods.count);
        self.start().await?;
        let server = self.server.as_ref().context("the server was started")?;
        let (client, process) = (server.client.clone(), server.process.clone());
        self.pods = Rc::new(populate(&client, self.pods.count).await?);
        let pods = Rc::clone(&self.pods);
        let meter = Meter::start(&process)?;
        let create = move |number| Request::post(pods.collection(number), pods.body(number));
        let done = load(&client, CREATING, Until::Count(self.pods.count), create).await?;
        let figure = (Quantity::Rate(done.rate()), meter.stop(done.seen())?);
        self.filled = Some(figure.clone());
        Ok(figure)
    }

    pub(crate) async fn stop(self) -> Result<()> {
        match self.server {
            Some(server) => server.stop().await,
            None => Ok(()),
        }
    }

    async fn start(&mut self) -> Result<&Server> {
        let data = self.directory.path().join("data");
        std::fs::create_dir_all(&data)?;
        let url = self.filled_store.get_or_insert_with(|| self.store.url("filled"));
        let server = self.launch.start(&data, url.as_deref()).await?;
        Ok(self.server.insert(server))
    }
}

/// CPU time and memory of the server since a point in time.
pub(crate) struct Meter {
    process: Process,
    cpu: std::time::Duration,
    memory: u64,
}

impl Meter {
    pub(crate) fn start(process: &Process) -> Result<Self> {
        process.forget_peak()?;
        Ok(Self { process: process.clone(), cpu: process.cpu()?, memory: process.memory()? })
    }

    /// Adds the server's usage since then.
    pub(crate) fn stop(self, seen: Observed) -> Result<Observed> {
        let peak = self.process.peak_memory()?;
        Ok(Observed {
            cpu: Some(self.process.cpu()?.saturating_sub(self.cpu)),
            peak: Some(peak),
            growth: Some(peak.saturating_sub(self.memory)),
            ..seen
        })
    }
}

/// Creates all dependencies of pods, and returns the pods.
pub(crate) async fn populate(client: &Client, count: usize) -> Result<Pods> {
    create_namespaces(client).await?;
    let owners = create_owners(client).await?;
    sized(client, Pods::new(count, owners)).await
}

/// Creates a namespace and fails if that is refused.
pub(crate) async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let body = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
    client.connect().await?.send(Request::post("/api/v1/namespaces", body)).await?;
    Ok(())
}

async fn create_namespaces(client: &Client) -> Result<()> {
    for name in Pods::namespaces() {
        create_namespace(client, &name).await?;
    }
    Ok(())
}

/// Creates the replica sets of the pods, and returns their uids by pod number.
async fn create_owners(client: &Client) -> Result<Vec<String>> {
    let mut connection = client.connect().await?;
    let mut uids = Vec::new();
    for (collection, body) in Pods::owners() {
        let created = connection.send(Request::post(collection, body)).await?;
        uids.push(created.field("uid").context("a replica set was created without a uid")?);
    }
    Ok(uids)
}

/// The pods, padded to the stored size that the goals assume, independent of the fields that the server drops or adds.
async fn sized(client: &Client, mut pods: Pods) -> Result<Pods> {
    let mut connection = client.connect().await?;
    // The pod for the measurement has a number that no other pod has, and is deleted at once.
    let probe = pods.count;
    connection.send(Request::post(pods.collection(probe), pods.body(probe))).await?;
    let stored = connection.send(Request::get(pods.path(probe))).await?.bytes;
    connection.send(Request::delete(format!("{}?gracePeriodSeconds=0", pods.path(probe)))).await?;
    pods.pad(usize::try_from(stored).unwrap_or(usize::MAX));
    Ok(pods)
}
