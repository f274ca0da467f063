//! Many workers, each with its own connection, send one kind of request up to a count or a time.
//!
//! Rate and latencies come from the workers' observations. Rows define the requests.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::LocalSet;

use crate::figure::{Observed, percentile};
use crate::wire::{Client, Request};

/// The end of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this many requests.
    Count(usize),
    /// After this time.
    Elapsed(Duration),
}

/// The result of a load.
pub(crate) struct Done {
    pub(crate) requests: usize,
    pub(crate) elapsed: Duration,
    bytes: u64,
    latencies: Vec<Duration>,
}

impl Done {
    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    /// Latencies and bytes, for the table.
    pub(crate) fn seen(&self) -> Observed {
        Observed {
            p50: Some(percentile(&self.latencies, 0.50)),
            p99: Some(percentile(&self.latencies, 0.99)),
            bytes_per_second: Some(self.bytes as f64 / self.elapsed.as_secs_f64()),
            ..Observed::default()
        }
    }
}

/// Sends `request(n)` for n = 0, 1, 2, ... with `in_flight` of them concurrently. The time excludes connecting.
pub(crate) async fn load(
    client: &Client,
    in_flight: usize,
    until: Until,
    request: impl Fn(usize) -> Request + 'static,
) -> Result<Done> {
    let mut connections = Vec::with_capacity(in_flight);
    for _ in 0..in_flight {
        connections.push(client.connect().await?);
    }
    let next = Rc::new(Cell::new(0));
    let request = Rc::new(request);
    let began = Instant::now();
    let more = move |number: usize| match until {
        Until::Count(count) => number < count,
        Until::Elapsed(time) => began.elapsed() < time,
    };
    let workers = LocalSet::new();
    let mut running = Vec::with_capacity(in_flight);
    for mut connection in connections {
        let (next, request) = (Rc::clone(&next), Rc::clone(&request));
        running.push(workers.spawn_local(async move {
            let (mut bytes, mut latencies) = (0, Vec::new());
            loop {
                let number = next.get();
                if !more(number) {
                    return Ok::<_, anyhow::Error>((bytes, latencies));
                }
                next.set(number + 1);
                let reply = connection.send(request(number)).await?;
                bytes += reply.bytes;
                latencies.push(reply.whole);
            }
        }));
    }
    workers.await;
    let mut done = Done { requests: 0, elapsed: began.elapsed(), bytes: 0, latencies: Vec::new() };
    for worker in running {
        let (bytes, latencies) = worker.await??;
        done.bytes += bytes;
        done.latencies.extend(latencies);
    }
    done.requests = done.latencies.len();
    done.latencies.sort_unstable();
    Ok(done)
}
