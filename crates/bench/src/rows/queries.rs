//! Queries of pods, first and deep pages: sorted, counted, grouped, searched, filtered, past and masked.
//!
//! Rows of a repeated query run it once before the measurement. Rows of scans use a new query each time. So do rows of
//! searches, after a first one that builds the index. With concurrent writes, there is a pause with some writes before
//! each query, so that the index has to catch up.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::time::MissedTickBehavior;

use crate::bench::{Bench, Meter};
use crate::figure::{Observed, Quantity, median_of, percentile};
use crate::pods::Pods;
use crate::server::Server;
use crate::wire::{Client, Request};

const PODS: &str = "/api/v1/pods";
/// The number of queries in one run, and of full scans.
const ASKED: usize = 100;
const SCANS: usize = 5;
/// The pause between queries with concurrent writes.
const PAUSE: Duration = Duration::from_millis(20);
/// The number of concurrent writers, and the interval of each: 1,000 writes per second in total.
const WRITERS: usize = 4;
const WRITE_EVERY: Duration = Duration::from_millis(4);
/// Odd and not a multiple of five, so that writes cover the whole collection.
const STRIDE: usize = 7_919;

/// Concurrent writes are numbered across all rows, so that each is a change.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

/// The kind of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryKind {
    SortedPage,
    DeepPage,
    NumberedPage,
    Masked,
    Past,
    Count,
    Groups,
    Search,
    FoundPage,
    Scan,
    ChosenPage,
    Condition,
    ConditionPage,
}

/// The concurrent load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConcurrentLoad {
    Nothing,
    Writes,
}

impl QueryKind {
    /// The query of this number, for a server whose newest revision was `revision` at the start of the row.
    fn path(self, number: usize, revision: &str) -> String {
        let query = match self {
            Self::SortedPage => "limit=100&keelson.io/sortBy=-spec.nodeName".to_owned(),
            Self::DeepPage => "limit=100&keelson.io/page=900&keelson.io/sortBy=-spec.nodeName".to_owned(),
            Self::NumberedPage => "limit=100&keelson.io/page=900".to_owned(),
            Self::Masked => {
                "limit=100&keelson.io/page=900&keelson.io/sortBy=-spec.nodeName&keelson.io/fields=spec.nodeName,status.phase"
                    .to_owned()
            }
            Self::Past => {
                format!("limit=100&keelson.io/page=900&keelson.io/sortBy=-spec.nodeName&keelson.io/at={revision}")
            }
            Self::Count => {
                "limit=1&keelson.io/count=true&labelSelector=sample%3Dyes&fieldSelector=spec.schedulerName%3Ddefault-scheduler"
                    .to_owned()
            }
            Self::Groups => "keelson.io/groupBy=status.phase".to_owned(),
            // Alternates between a word of one pod in a hundred, and a common word with a typing error.
            Self::Search if number.is_multiple_of(2) => format!("limit=100&keelson.io/search=service-{number:03}"),
            Self::Search => format!("limit=100&keelson.io/search=servi{}e", char::from(b'a' + (number % 26) as u8)),
            // All pods have the word.
            Self::FoundPage => "limit=100&keelson.io/page=900&keelson.io/search=bench".to_owned(),
            Self::Scan => format!("limit=100&keelson.io/filter=status.podIP!='{number}'"),
            Self::ChosenPage => "limit=100&keelson.io/page=900&keelson.io/filter=status.podIP!='none'".to_owned(),
            Self::Condition => format!("limit=100&keelson.io/where=object.spec.containers.size()%3C{}", number + 50),
            Self::ConditionPage => {
                "limit=100&keelson.io/page=900&keelson.io/where=object.spec.containers.size()%3C50".to_owned()
            }
        };
        format!("{PODS}?{query}")
    }

    /// Returns true if the query is the same each time, and known after the first.
    const fn is_known(self) -> bool {
        !matches!(self, Self::Search | Self::Scan | Self::Condition)
    }

    const fn is_deep(self) -> bool {
        matches!(
            self,
            Self::DeepPage
                | Self::NumberedPage
                | Self::Masked
                | Self::Past
                | Self::FoundPage
                | Self::ChosenPage
                | Self::ConditionPage
        )
    }
}

/// The time of one query.
pub(super) async fn asked(bench: &mut Bench, asked: QueryKind, beside: ConcurrentLoad) -> Result<(Quantity, Observed)> {
    let count = bench.runs;
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let server = bench.filled().await?;
    let measured = measured(server, asked, beside, (count, pods.count));
    if beside == ConcurrentLoad::Nothing {
        return measured.await;
    }
    let (began, first) = (Instant::now(), WRITTEN.load(Ordering::Relaxed));
    let (value, mut seen) = tokio::select! {
        figure = measured => figure?,
        failed = writing(&server.client, &pods) => match failed? {},
    };
    let writes = (WRITTEN.load(Ordering::Relaxed) - first) as f64 / began.elapsed().as_secs_f64();
    let note = seen.note.map_or_else(String::new, |note| format!("; {note}"));
    seen.note = Some(format!("{writes:.0} writes/s beside{note}"));
    Ok((value, seen))
}

async fn measured(
    server: &Server,
    asked: QueryKind,
    beside: ConcurrentLoad,
    (count, pods): (usize, usize),
) -> Result<(Quantity, Observed)> {
    let mut connection = server.client.connect().await?;
    let newest = connection.send(Request::get(format!("{PODS}?limit=1"))).await?;
    let revision = newest.field("resourceVersion").context("the list has no resourceVersion")?;
    let mut runs = Vec::new();
    if asked == QueryKind::Search {
        connection.send(Request::get(asked.path(0, &revision))).await?;
    }
    let mut number = 0;
    for _ in 0..count {
        if asked.is_known() {
            connection.send(Request::get(asked.path(0, &revision))).await?;
        }
        let meter = Meter::start(&server.process)?;
        let mut times = Vec::new();
        for _ in 0..if asked.is_known() { ASKED } else { SCANS } {
            if beside == ConcurrentLoad::Writes {
                tokio::time::sleep(PAUSE).await;
            }
            number += 1;
            let reply = connection.send(Request::get(asked.path(number, &revision))).await?;
            // A small collection has no page 900.
            let least = if asked.is_deep() && pods < 90_000 { 50 } else { 150 };
            ensure!(reply.bytes >= least, "the answer to {asked:?} has {} bytes only", reply.bytes);
            times.push(reply.whole);
        }
        times.sort_unstable();
        let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
        let seen = meter.stop(Observed { p50: Some(p50), p99: Some(p99), ..Observed::default() })?;
        runs.push((Quantity::Time(p50), seen));
    }
    Ok(median_of(runs))
}

/// Patches pods across the collection at a steady rate until it is dropped.
async fn writing(client: &Client, pods: &Pods) -> Result<Infallible> {
    let writers: [_; WRITERS] = std::array::from_fn(|_| write(client, pods));
    let [one, two, three, four] = writers;
    let (never, _, _, _) = tokio::try_join!(one, two, three, four)?;
    match never {}
}

async fn write(client: &Client, pods: &Pods) -> Result<Infallible> {
    let mut connection = client.connect().await?;
    let mut due = tokio::time::interval(WRITE_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let body = format!("{{\"metadata\":{{\"labels\":{{\"write\":\"q{number}\"}}}}}}");
        let path = pods.path(number * STRIDE % pods.count);
        connection.send(Request::patch(path, "application/merge-patch+json", body)).await?;
    }
}
