//! The memory and work of a sorted index, a field index or a search index.
//!
//! Memory is that of the idle process before and after. The rate of creates is measured in alternating rounds, without
//! queries and with an occasional query that updates the index.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::turns::{self, Turn};
use crate::bench::{Bench, Meter};
use crate::figure::{Observed, Quantity};
use crate::load::{Done, Until, load};
use crate::pods::Pods;
use crate::process::Process;
use crate::server::Server;
use crate::wire::{Client, Request};

const PODS: &str = "/api/v1/pods";
/// Fields with distinct values in most, some and few pods.
const PATHS: [&str; 4] =
    ["metadata.uid", "metadata.creationTimestamp", "spec.containers[0].image", "spec.volumes[0].configMap.name"];
/// The number of queries after which an index is created.
const ASKED: usize = 4;
/// The interval of memory readings, the maximum difference of an idle process, and the maximum number of readings.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const AT_REST: u64 = 1 << 20;
const MOST_LOOKS: usize = 30;
const CREATING: usize = 48;
/// The number of pods that each round creates. No other row uses these numbers.
const ROUND: usize = 1_000;
const FIRST: usize = 10_000_000;
/// The interval of queries while pods are created.
const QUERY_EVERY: Duration = Duration::from_millis(100);

/// The kind of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    Order,
    Index,
    Search,
}

impl Added {
    /// Queries that each use one index.
    fn queries(self) -> Vec<String> {
        let query = |parameters: String| format!("{PODS}?limit=10&{parameters}");
        match self {
            Self::Order => PATHS.iter().map(|path| query(format!("keelson.io/sortBy={path}"))).collect(),
            Self::Index => PATHS.iter().map(|path| query(format!("keelson.io/filter={path}=='none'"))).collect(),
            Self::Search => vec![query("keelson.io/search=service-001".to_owned())],
        }
    }
}

/// The memory of one index.
pub(super) async fn memory(bench: &mut Bench, added: Added) -> Result<(Quantity, Observed)> {
    let pods = bench.pods.count;
    // A restarted server has none.
    let server = bench.restarted().await?;
    let before = at_rest(&server.process).await?;
    let queries = added.queries();
    let mut connection = server.client.connect().await?;
    for query in &queries {
        for _ in 0..ASKED {
            connection.send(Request::get(query)).await?;
        }
    }
    let after = at_rest(&server.process).await?;
    ensure!(after > before, "the memory of the server was {before} bytes before and {after} after");
    let each = (after - before) / queries.len() as u64;
    let note = Some(format!("{} bytes a pod, the mean of {}", each / pods as u64, queries.len()));
    Ok((Quantity::Memory(each), Observed { peak: Some(server.process.peak_memory()?), note, ..Observed::default() }))
}

/// The memory of an idle process.
async fn at_rest(process: &Process) -> Result<u64> {
    let (mut last, mut rests) = (process.memory()?, 0);
    for _ in 0..MOST_LOOKS {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = process.memory()?;
        rests = if now.abs_diff(last) <= AT_REST { rests + 1 } else { 0 };
        last = now;
        // Allocators return memory after some seconds.
        if rests == 5 {
            break;
        }
    }
    Ok(last)
}

/// The rate of creates with an index in use, relative to that without queries.
pub(super) async fn create(bench: &mut Bench, added: Added) -> Result<(Quantity, Observed)> {
    let runs = bench.runs;
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let server = bench.filled().await?;
    let query = added.queries().remove(0);
    let all = 2 * turns::rounds(runs);
    let first = FIRST + added as usize * all * ROUND;
    turns::ratio(runs, async |turn, number| {
        let number = 2 * number + usize::from(turn == Turn::With);
        let creating = round(server, &pods, first + number * ROUND);
        if turn == Turn::Plain {
            return creating.await;
        }
        let mut connection = server.client.connect().await?;
        for _ in 0..ASKED {
            connection.send(Request::get(&query)).await?;
        }
        tokio::select! {
            round = creating => round,
            failed = asking(&server.client, &query) => match failed? {},
        }
    })
    .await
}

async fn round(server: &Server, pods: &Rc<Pods>, first: usize) -> Result<(Done, Observed)> {
    let created = Rc::clone(pods);
    let request = move |number| Request::post(created.collection(first + number), created.body(first + number));
    let meter = Meter::start(&server.process)?;
    let done = load(&server.client, CREATING, Until::Count(ROUND), request).await?;
    let seen = meter.stop(done.seen())?;
    Ok((done, seen))
}

async fn asking(client: &Client, query: &str) -> Result<Infallible> {
    let mut connection = client.connect().await?;
    loop {
        connection.send(Request::get(query)).await?;
        tokio::time::sleep(QUERY_EVERY).await;
    }
}
