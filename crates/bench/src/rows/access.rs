//! Requests that are audited at the level Metadata over those that are not: one server with a policy and a log, one without, in turn.
//!
//! Creates cost the store most, so that it is gets that show what the two events of a request cost.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::turns::{self, Turn};
use crate::bench::{Bench, Meter, populate};
use crate::figure::{Quantity, Seen};
use crate::load::{Done, Until, load};
use crate::pods::Pods;
use crate::server::Server;
use crate::wire::Request;

/// The directories of these rows, beside those of the other rows.
const DIRECTORY: usize = 7_000;
const CREATING: usize = 48;
const READING: usize = 32;
/// Pods that each side of a round creates.
const ROUND: usize = 2_000;
/// How long each side of a round reads.
const READ_TIME: Duration = Duration::from_millis(500);
/// Odd and not a multiple of five, so that all are read before one is again.
const STRIDE: usize = 7_919;

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";

/// Which of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audited {
    Create,
    Get,
}

/// The rate of the audited server over that of the other.
pub(super) async fn figure(bench: &Bench, which: Audited) -> Result<(Quantity, Seen)> {
    let files = TempDir::new().context("making a directory for the policy")?;
    let (policy, log) = (files.path().join("policy.yaml"), files.path().join("audit.log"));
    std::fs::write(&policy, POLICY)?;
    let [policy, log] = [&policy, &log].map(|path| path.display().to_string());
    let args = ["--audit-policy-file", policy.as_str(), "--audit-log-path", log.as_str()];
    let mut servers = Vec::new();
    for (place, turn) in Turn::SERVERS.into_iter().enumerate() {
        let args = if turn == Turn::With { &args[..] } else { &[] };
        let server = bench.fresh_with(DIRECTORY + Turn::SERVERS.len() * which as usize + place, args).await?;
        let pods = Rc::new(populate(&server.client, turns::rounds(bench.runs) * ROUND).await?);
        if which == Audited::Get {
            create(&server, &pods, 0).await?;
        }
        servers.push((server, pods));
    }
    let figure = turns::ratio(bench.runs, async |turn, round| {
        let (server, pods) = &servers[turn.server(round)];
        match which {
            Audited::Create => create(server, pods, round).await,
            Audited::Get => get(server, pods).await,
        }
    });
    let figure = figure.await?;
    for (server, _) in servers {
        server.stop().await?;
    }
    Ok(figure)
}

async fn create(server: &Server, pods: &Rc<Pods>, round: usize) -> Result<(Done, Seen)> {
    let (created, first) = (Rc::clone(pods), round * ROUND);
    let request = move |number| Request::post(created.collection(first + number), created.body(first + number));
    let meter = Meter::start(&server.process)?;
    let done = load(&server.client, CREATING, Until::Count(ROUND), request).await?;
    let seen = meter.stop(done.seen())?;
    Ok((done, seen))
}

async fn get(server: &Server, pods: &Rc<Pods>) -> Result<(Done, Seen)> {
    let read = Rc::clone(pods);
    let request = move |number: usize| Request::get(read.path(number * STRIDE % ROUND));
    let meter = Meter::start(&server.process)?;
    let done = load(&server.client, READING, Until::Elapsed(READ_TIME), request).await?;
    let seen = meter.stop(done.seen())?;
    Ok((done, seen))
}
