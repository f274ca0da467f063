//! Queries of the pods: sorted pages near and far, counts, groups, searches, and scans that nothing is known for.
//!
//! A row of something that is known asks once before it measures; one of a scan asks something else each time, and so does that of
//! searches, behind the one with which their index is made.

use anyhow::{Result, ensure};

use crate::bench::{Bench, Meter};
use crate::figure::{Quantity, Seen, median_of, percentile};
use crate::wire::Request;

const PODS: &str = "/api/v1/pods";
/// Queries in one run, and of those that look at everything.
const ASKED: usize = 100;
const SCANS: usize = 5;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    SortedPage,
    DeepPage,
    Count,
    Groups,
    Search,
    Scan,
    Condition,
}

impl Asked {
    /// The query of this number.
    fn path(self, number: usize) -> String {
        let query = match self {
            Self::SortedPage => "limit=100&keelson.io/sortBy=-spec.nodeName".to_owned(),
            Self::DeepPage => "limit=100&keelson.io/page=900&keelson.io/sortBy=-spec.nodeName".to_owned(),
            Self::Count => {
                "limit=1&keelson.io/count=true&labelSelector=sample%3Dyes&fieldSelector=spec.schedulerName%3Ddefault-scheduler"
                    .to_owned()
            }
            Self::Groups => "keelson.io/groupBy=status.phase".to_owned(),
            // A word of one pod in a hundred by turns with a typing error of one that all have.
            Self::Search if number.is_multiple_of(2) => format!("limit=100&keelson.io/search=service-{number:03}"),
            Self::Search => format!("limit=100&keelson.io/search=servi{}e", char::from(b'a' + (number % 26) as u8)),
            Self::Scan => format!("limit=100&keelson.io/filter=status.podIP!='{number}'"),
            Self::Condition => format!("limit=100&keelson.io/where=object.spec.containers.size()%3C{}", number + 50),
        };
        format!("{PODS}?{query}")
    }

    const fn is_known(self) -> bool {
        matches!(self, Self::SortedPage | Self::DeepPage | Self::Count | Self::Groups)
    }
}

/// The time of one query.
pub(super) async fn asked(bench: &mut Bench, asked: Asked) -> Result<(Quantity, Seen)> {
    let (count, pods) = (bench.runs, bench.pods.count);
    let server = bench.filled().await?;
    let mut connection = server.client.connect().await?;
    let mut runs = Vec::new();
    if asked == Asked::Search {
        connection.send(Request::get(asked.path(0))).await?;
    }
    let mut number = 0;
    for _ in 0..count {
        if asked.is_known() {
            connection.send(Request::get(asked.path(0))).await?;
        }
        let meter = Meter::start(&server.process)?;
        let mut times = Vec::new();
        for _ in 0..if asked.is_known() { ASKED } else { SCANS } {
            number += 1;
            let reply = connection.send(Request::get(asked.path(number))).await?;
            // Of a small collection there is no page 900.
            let least = if asked == Asked::DeepPage && pods < 90_000 { 50 } else { 150 };
            ensure!(reply.bytes >= least, "the answer to {asked:?} has {} bytes only", reply.bytes);
            times.push(reply.whole);
        }
        times.sort_unstable();
        let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
        let seen = meter.stop(Seen { p50: Some(p50), p99: Some(p99), ..Seen::default() })?;
        runs.push((Quantity::Time(p50), seen));
    }
    Ok(median_of(runs))
}
