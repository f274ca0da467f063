//! Tests of quotas while servers are killed. At no revision is the quota exceeded, whatever the outcome of creates,
//! updates and deletes, and in the end its usage equals the content.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use keelson_meta::Revision;
use keelson_storage::Store;
use keelson_storage_sql::{SqliteConfig, SqliteStore};
use keelson_testkit::{ProcessServer, ProcessServerBuilder, Raw};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::cluster::SERVERS;
use crate::engines::{Engine, on_engine};
use crate::{PATIENCE, items, revision};

on_engine!(postgres, postgres: a_quota_is_never_exceeded_whatever_becomes_of_the_servers);
on_engine!(etcd, etcd: a_quota_is_never_exceeded_whatever_becomes_of_the_servers);

/// The number of kills of each server.
const ROUNDS: usize = 2;
/// The number of pods created between two kills.
const BETWEEN: u64 = 10;
const WRITERS: usize = 6;
/// The limits on pods, and on their requests in thousandths of a CPU.
const PODS: usize = 12;
const CPU: u64 = 3000;
const NAMESPACE: &str = "/api/v1/namespaces/lab";
const STORED: &str = "/registry/pods/lab/";

fn pod(name: &str, cpu: u64) -> Value {
    let requests = json!({ "requests": { "cpu": format!("{cpu}m") } });
    json!({ "metadata": { "name": name }, "spec": { "automountServiceAccountToken": false,
        "containers": [{ "name": "c", "image": "i", "resources": requests }] } })
}

/// A server that counts quotas and keeps history for the whole test.
fn server(data: &Path) -> ProcessServerBuilder {
    let server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).data_dir(data).arg("--history=2h");
    server.args([
        "--controllers=namespace-controller,resourcequota-controller",
        "--disable-admission-plugins=ServiceAccount",
    ])
}

/// The results of the writers since the last read of this value.
#[derive(Default)]
struct WriterResults {
    done: AtomicBool,
    made: AtomicU64,
    answers: Mutex<BTreeMap<String, usize>>,
}

/// Creates, resizes and deletes pods on any server that answers.
async fn write(clients: Vec<Raw>, writer: usize, told: Arc<WriterResults>) {
    let mut number = writer;
    while !told.done.load(Ordering::SeqCst) {
        number += 1;
        let raw = &clients[number % clients.len()];
        let name = format!("p-{writer}-{}", number % 4);
        let path = format!("{NAMESPACE}/pods/{name}");
        let cpu = 100 * (1 + (number as u64 * 7) % 6);
        let resources = json!({ "requests": { "cpu": format!("{cpu}m") } });
        let resized = json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } });
        let strategic = "application/strategic-merge-patch+json";
        let (verb, sent) = match number % 5 {
            0 => ("delete", raw.delete(format!("{path}?gracePeriodSeconds=0"))),
            1 => ("resize", raw.patch(format!("{path}/resize"), strategic, &resized)),
            _ => ("create", raw.post(format!("{NAMESPACE}/pods"), &pod(&name, cpu))),
        };
        let answer = match sent.try_send().await {
            Ok(answer) if answer.status < 300 => {
                told.made.fetch_add(u64::from(verb == "create"), Ordering::SeqCst);
                format!("{verb}: {}", answer.status)
            }
            Ok(answer) => format!("{verb}: {} {}", answer.status, kind_of(answer.json()["message"].as_str())),
            Err(_) => {
                sleep(Duration::from_millis(5)).await;
                format!("{verb}: no answer")
            }
        };
        *told.answers.lock().unwrap().entry(answer).or_default() += 1;
    }
}

/// The message of an error without its variable parts.
fn kind_of(message: Option<&str>) -> String {
    let message = message.unwrap_or_default();
    ["exceeded quota", "not found", "already exists"]
        .into_iter()
        .find(|kind| message.contains(kind))
        .map_or_else(|| message.to_owned(), str::to_owned)
}

fn thousandths(cpu: &str) -> u64 {
    cpu.strip_suffix('m').map_or_else(|| cpu.parse::<u64>().unwrap() * 1000, |text| text.parse().unwrap())
}

/// The CPU request of a pod.
fn cpu_request(pod: &Value) -> u64 {
    thousandths(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap())
}

/// A number of pods, and the sum of their CPU requests.
type Amount = (usize, u64);

/// The largest amount at any revision.
async fn most(store: &dyn Store, after: Revision) -> Amount {
    let newest = store.current_revision().await.unwrap();
    let (mut pods, mut most) = (BTreeMap::new(), (0, 0));
    let (mut tail, mut reached) = (store.tail(after).await.unwrap(), after);
    while reached < newest {
        let batch = tail.next().await.unwrap().unwrap();
        reached = batch.watermark;
        for event in batch.events {
            let Some(name) = event.key.as_str().strip_prefix(STORED) else { continue };
            match &event.value {
                Some(value) => pods.insert(name.to_owned(), cpu_request(&serde_json::from_slice(value).unwrap())),
                None => pods.remove(name),
            };
            most = (most.0.max(pods.len()), most.1.max(pods.values().sum::<u64>()));
        }
    }
    most
}

/// The servers and their clients.
struct Servers {
    processes: Vec<ProcessServer>,
    clients: Vec<Raw>,
    told: Arc<WriterResults>,
}

impl Servers {
    async fn start(servers: impl IntoIterator<Item = ProcessServerBuilder>) -> Self {
        let mut processes = Vec::new();
        for server in servers {
            processes.push(server.start().await);
        }
        let clients = processes.iter().map(|server| server.raw()).collect();
        Self { processes, clients, told: Arc::default() }
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.clients[0].get(format!("{NAMESPACE}/{path}")).try_send().await.ok()?;
        (answer.status == 200).then(|| answer.json())
    }

    /// The usage in the quota's status.
    async fn used(&self) -> Option<Amount> {
        let quota = self.get("resourcequotas/q").await?;
        let used = &quota["status"]["used"];
        Some((used["pods"].as_str()?.parse().unwrap(), thousandths(used["requests.cpu"].as_str()?)))
    }

    /// The usage computed from the pods.
    async fn there(&self) -> Option<Amount> {
        let pods = self.get("pods").await?;
        let pods = items(&pods);
        Some((pods.len(), pods.iter().map(cpu_request).sum()))
    }

    async fn until<F: Future<Output = bool>>(&self, what: &str, holds: impl Fn() -> F) {
        let deadline = Instant::now() + PATIENCE;
        self.told.answers.lock().unwrap().clear();
        while !holds().await {
            if Instant::now() > deadline {
                let (used, there) = (self.used().await, self.there().await);
                let answers = std::mem::take(&mut *self.told.answers.lock().unwrap());
                panic!("{what}: it did not happen. Used: {used:?}, there: {there:?}. Since then: {answers:#?}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Creates the quota. Returns the revision from which on it is enforced.
    async fn begin(&self) -> Revision {
        let raw = &self.clients[0];
        raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "lab" } })).await.expect(201);
        let hard = json!({ "pods": PODS.to_string(), "requests.cpu": format!("{CPU}m") });
        let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
        raw.post(format!("{NAMESPACE}/resourcequotas"), &quota).await.expect(201);
        self.until("the quota holds", || async { self.used().await == Some((0, 0)) }).await;
        Revision::new(revision(&self.get("resourcequotas/q").await.unwrap()))
    }

    /// Kills and restarts the servers one after another while writers run. Ends when the quota's usage equals the
    /// content.
    async fn go_on_under_kills(mut self) {
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write(self.clients.clone(), writer, self.told.clone()))).collect();
        for kill in 0..ROUNDS * self.processes.len().max(2) {
            let before = self.told.made.load(Ordering::SeqCst);
            let made = || async { self.told.made.load(Ordering::SeqCst) > before + BETWEEN };
            self.until("pods are made", made).await;
            let number = kill % self.processes.len();
            self.processes[number].kill().await;
            self.processes[number].restart().await;
        }
        self.told.done.store(true, Ordering::SeqCst);
        join_all(writers).await;
        let is_true = || async {
            let used = self.used().await;
            used.is_some() && used == self.there().await
        };
        self.until("what is used is what is there", is_true).await;
        for server in &mut self.processes {
            server.terminate().await;
        }
    }
}

/// Checks the store's history since a revision.
async fn check(store: &dyn Store, begun: Revision) {
    let (pods, cpu) = most(store, begun).await;
    assert!(pods <= PODS && cpu <= CPU, "there were {pods} pods at once, and {cpu}m were asked for");
    assert!(pods > PODS / 2 || cpu > CPU / 2, "only {pods} pods with {cpu}m were there at once");
}

async fn a_quota_is_never_exceeded_whatever_becomes_of_the_servers(engine: Engine) {
    let (store, certificates) = (engine.open().await, TempDir::new().unwrap());
    let named = |number: usize| {
        let server = server(certificates.path()).arg("--store").arg(engine.url());
        server.arg("--server-id").arg(format!("server-{number}"))
    };
    let servers = Servers::start((0..SERVERS).map(named)).await;
    let begun = servers.begin().await;
    servers.go_on_under_kills().await;
    check(&*store, begun).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_never_exceeded_whatever_becomes_of_a_server_alone() {
    let data = TempDir::new().unwrap();
    let servers = Servers::start([server(data.path())]).await;
    let begun = servers.begin().await;
    servers.go_on_under_kills().await;
    let store = SqliteStore::open(SqliteConfig::directory(data.path())).unwrap();
    check(&store, begun).await;
}
