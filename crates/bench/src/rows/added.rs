//! The memory and the work that an order, an index or the index of searches adds.
//!
//! Memory is that of the process, at rest before and after. For the rate of creates rounds alternate: in one nobody asks, in the other a
//! query comes now and then, which leads on what it is answered from.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::turns::{self, Turn};
use crate::bench::{Bench, Meter};
use crate::figure::{Quantity, Seen};
use crate::load::{Done, Until, load};
use crate::pods::Pods;
use crate::process::Process;
use crate::server::Server;
use crate::wire::{Client, Request};

const PODS: &str = "/api/v1/pods";
/// What has values of its own in most pods, in some, in few.
const PATHS: [&str; 4] =
    ["metadata.uid", "metadata.creationTimestamp", "spec.containers[0].image", "spec.volumes[0].configMap.name"];
/// An index is made when it would have been of use a few times.
const ASKED: usize = 4;
/// How far apart looks at memory are, how much two differ at most at rest, and how often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const AT_REST: u64 = 1 << 20;
const MOST_LOOKS: usize = 30;
const CREATING: usize = 48;
/// Pods that each round creates, numbered from here on: no other row has these.
const ROUND: usize = 1_000;
const FIRST: usize = 10_000_000;
/// How far apart queries are while pods are created.
const QUERY_EVERY: Duration = Duration::from_millis(100);

/// What is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    Order,
    Index,
    Search,
}

impl Added {
    /// Queries that are answered from one each.
    fn queries(self) -> Vec<String> {
        let query = |parameters: String| format!("{PODS}?limit=10&{parameters}");
        match self {
            Self::Order => PATHS.iter().map(|path| query(format!("keelson.io/sortBy={path}"))).collect(),
            Self::Index => PATHS.iter().map(|path| query(format!("keelson.io/filter={path}=='none'"))).collect(),
            Self::Search => vec![query("keelson.io/search=service-001".to_owned())],
        }
    }
}

/// The memory that one takes.
pub(super) async fn memory(bench: &mut Bench, added: Added) -> Result<(Quantity, Seen)> {
    let pods = bench.pods.count;
    // A server that was just started has made none yet.
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
    Ok((Quantity::Memory(each), Seen { peak: Some(server.process.peak_memory()?), note, ..Seen::default() }))
}

/// The memory of a process that changes no more.
async fn at_rest(process: &Process) -> Result<u64> {
    let (mut last, mut rests) = (process.memory()?, 0);
    for _ in 0..MOST_LOOKS {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = process.memory()?;
        rests = if now.abs_diff(last) <= AT_REST { rests + 1 } else { 0 };
        last = now;
        // Allocators give memory back after some seconds.
        if rests == 5 {
            break;
        }
    }
    Ok(last)
}

/// The rate of creates while one is in use over that while nobody asks.
pub(super) async fn create(bench: &mut Bench, added: Added) -> Result<(Quantity, Seen)> {
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

async fn round(server: &Server, pods: &Rc<Pods>, first: usize) -> Result<(Done, Seen)> {
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
