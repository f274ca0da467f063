//! Quotas that servers share: creates, updates and deletes on three of them, which are killed one after another, never use more than
//! there is at any revision, and what is said to be used is what is there in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_storage::Store;
use keelson_testkit::{ProcessServer, ProcessServerBuilder, Raw};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::SERVERS;
use crate::engines::{Engine, on_engine};
use crate::until;

on_engine!(postgres, postgres: a_quota_is_never_exceeded_whatever_happens_to_the_servers);
on_engine!(etcd, etcd: a_quota_is_never_exceeded_whatever_happens_to_the_servers);

const KILLS: usize = 3;
const WRITERS: usize = 6;
/// How many pods there may be, and how many thousandths of a processor they may ask for.
const PODS: usize = 12;
const CPU: u64 = 3000;
const NAMESPACE: &str = "/api/v1/namespaces/lab";
const STORED: &str = "/registry/pods/lab/";

fn pod(name: &str, cpu: u64) -> Value {
    let requests = json!({ "requests": { "cpu": format!("{cpu}m") } });
    json!({ "metadata": { "name": name }, "spec": { "automountServiceAccountToken": false,
        "containers": [{ "name": "c", "image": "i", "resources": requests }] } })
}

fn server(store: &str, data: &std::path::Path, number: usize) -> ProcessServerBuilder {
    let server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).data_dir(data);
    let server = server.arg("--disable-admission-plugins=ServiceAccount");
    server.arg("--store").arg(store).arg("--server-id").arg(format!("server-{number}"))
}

/// Creates, resizes, ends and deletes pods on whichever server answers.
async fn write(clients: Vec<Raw>, writer: usize, done: Arc<AtomicBool>, made: Arc<AtomicU64>) {
    let mut number = writer;
    while !done.load(Ordering::SeqCst) {
        number += 1;
        let raw = &clients[number % clients.len()];
        let name = format!("p-{writer}-{}", number % 4);
        let path = format!("{NAMESPACE}/pods/{name}");
        let cpu = 100 * (1 + (number as u64 * 7) % 6);
        let resources = json!({ "requests": { "cpu": format!("{cpu}m") } });
        let resized = json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } });
        let strategic = "application/strategic-merge-patch+json";
        let sent = match number % 5 {
            0 => raw.delete(format!("{path}?gracePeriodSeconds=0")),
            1 => raw.patch(format!("{path}/resize"), strategic, &resized),
            _ => raw.post(format!("{NAMESPACE}/pods"), &pod(&name, cpu)),
        };
        if let Ok(answer) = sent.try_send().await
            && answer.status == 201
        {
            made.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn thousandths(cpu: &str) -> u64 {
    cpu.strip_suffix('m').map_or_else(|| cpu.parse::<u64>().unwrap() * 1000, |text| text.parse().unwrap())
}

/// What a stored pod asks for.
fn asked(value: &[u8]) -> u64 {
    let pod: Value = serde_json::from_slice(value).unwrap();
    thousandths(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap())
}

/// The most that there was at any revision: pods, and what they ask for. With it what there is in the end.
async fn most(store: &dyn Store, after: Revision) -> ((usize, u64), (usize, u64)) {
    let newest = store.current_revision().await.unwrap();
    let (mut pods, mut most) = (BTreeMap::new(), (0, 0));
    let (mut tail, mut reached) = (store.tail(after).await.unwrap(), after);
    let sum = |pods: &BTreeMap<String, u64>| (pods.len(), pods.values().sum::<u64>());
    while reached < newest {
        let batch = tail.next().await.unwrap().unwrap();
        reached = batch.watermark;
        for event in batch.events {
            let Some(name) = event.key.as_str().strip_prefix(STORED) else { continue };
            match &event.value {
                Some(value) => pods.insert(name.to_owned(), asked(value)),
                None => pods.remove(name),
            };
            let (count, cpu) = sum(&pods);
            most = (most.0.max(count), most.1.max(cpu));
        }
    }
    (most, sum(&pods))
}

async fn a_quota_is_never_exceeded_whatever_happens_to_the_servers(engine: Engine) {
    let (store, certificates) = (engine.open().await, TempDir::new().unwrap());
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        servers.push(server(engine.url(), certificates.path(), number).start().await);
    }
    let clients: Vec<Raw> = servers.iter().map(|server| server.raw()).collect();
    clients[0].post("/api/v1/namespaces", &json!({ "metadata": { "name": "lab" } })).await.expect(201);
    let hard = json!({ "pods": PODS.to_string(), "requests.cpu": format!("{CPU}m") });
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
    clients[0].post(format!("{NAMESPACE}/resourcequotas"), &quota).await.expect(201);
    let path = format!("{NAMESPACE}/resourcequotas/q");
    let used = |raw: Raw| {
        let path = path.clone();
        async move { raw.get(path).try_send().await.map(|answer| answer.json()["status"]["used"].clone()) }
    };
    until("the quota holds", || async { used(clients[0].clone()).await.is_ok_and(|used| used["pods"] == "0") }).await;
    let begun = store.current_revision().await.unwrap();

    let (done, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write(clients.clone(), writer, done.clone(), made.clone()))).collect();
    for kill in 0..KILLS {
        let before = made.load(Ordering::SeqCst);
        until("pods are made", || async { made.load(Ordering::SeqCst) > before + 10 }).await;
        servers[kill % SERVERS].kill().await;
        servers[kill % SERVERS].restart().await;
    }
    done.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    // What the killed servers left under way has happened, or never will.
    let mut counted = most(&*store, begun).await;
    until("what is used is what is there", || async {
        let (_, (pods, cpu)) = most(&*store, begun).await;
        used(clients[0].clone()).await.is_ok_and(|used| {
            let said = used["requests.cpu"].as_str().map(thousandths);
            used["pods"].as_str() == Some(pods.to_string().as_str()) && said == Some(cpu)
        })
    })
    .await;
    counted = counted.max(most(&*store, begun).await);
    let (pods, cpu) = counted.0;
    assert!(pods <= PODS && cpu <= CPU, "there were {pods} pods at once, and {cpu}m were asked for");
    assert!(pods > PODS / 2 && made.load(Ordering::SeqCst) > 30, "there was something to be had");
}
