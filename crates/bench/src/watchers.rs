//! Many concurrent watches, each on its own connection, whose events are counted and dropped.
//!
//! Events are parsed only as far as counting requires, so that clients cost less than the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::JoinSet;

use crate::wire::{Client, Connection, Request};

/// The maximum wait for expected events.
const PATIENCE: Duration = Duration::from_secs(120);
/// The polling interval of the count.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The number of concurrent handshakes while watches are opened.
const OPENING: usize = 32;

/// Open watches, closed on drop.
pub(crate) struct Watchers {
    events: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl Watchers {
    /// Opens a watch of `path(n)` for each n below `count`.
    pub(crate) async fn open(client: &Client, count: usize, path: impl Fn(usize) -> String) -> Result<Self> {
        let mut watchers = Self { events: Arc::default(), tasks: JoinSet::new() };
        let mut opening = JoinSet::new();
        for number in 0..count {
            if opening.len() >= OPENING {
                let opened = opening.join_next().await.context("a watch is being opened")?;
                watchers.add(opened??);
            }
            let (client, path) = (client.clone(), path(number));
            opening.spawn(async move {
                let mut connection = client.connect().await?;
                let body = connection.open(Request::get(path)).await?;
                Ok::<_, anyhow::Error>((connection, body))
            });
        }
        while let Some(opened) = opening.join_next().await {
            watchers.add(opened??);
        }
        Ok(watchers)
    }

    fn add(&mut self, (connection, mut body): (Connection, Incoming)) {
        let events = Arc::clone(&self.events);
        self.tasks.spawn(async move {
            // The body ends with its connection.
            let _connection = connection;
            while let Some(Ok(frame)) = body.frame().await {
                if let Some(data) = frame.data_ref() {
                    let ends = data.iter().filter(|byte| **byte == b'\n').count();
                    events.fetch_add(ends as u64, Ordering::Relaxed);
                }
            }
        });
    }

    /// Waits until this total number of events has arrived.
    pub(crate) async fn received(&self, expected: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events.load(Ordering::Relaxed);
            if events >= expected {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{events} of {expected} events came within {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
