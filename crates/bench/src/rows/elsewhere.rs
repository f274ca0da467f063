//! One more definition of a custom resource in addition to three thousand, until another server's discovery document
//! has it.
//!
//! The other server is polled for the document's tag, and for the document when the tag changes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http_body_util::BodyExt as _;

use super::definitions::{AGGREGATED, CREATING, DEFINED, DEFINITIONS, PATIENCE, REST, definition};
use crate::bench::Bench;
use crate::figure::{Observed, Quantity, percentile};
use crate::load::{Until, load};
use crate::wire::{Connection, Request};

const SERVERS: usize = 2;
/// The number of further definitions, created one after the other, each until the other server shows it.
const MORE: usize = 100;
/// The polling interval of the tag, which is also the error of the measured time.
const ASK_EVERY: Duration = Duration::from_millis(2);

/// The 99th percentile from the create at one server to the document of the other.
pub(super) async fn figure(bench: &Bench) -> Result<(Quantity, Observed)> {
    let (_, servers) = bench.together("elsewhere", SERVERS).await?;
    let first = &servers[0].client;
    load(first, CREATING, Until::Count(DEFINITIONS), |number| Request::post(DEFINED, definition(number))).await?;
    let mut other = servers[1].client.connect().await?;
    until(&mut other, "", DEFINITIONS - 1).await?;
    // Waits until the last definitions are established.
    tokio::time::sleep(REST).await;
    let (mut creating, mut times) = (first.connect().await?, Vec::new());
    for number in DEFINITIONS..DEFINITIONS + MORE {
        let before = tag(&mut other).await?;
        let began = Instant::now();
        creating.send(Request::post(DEFINED, definition(number))).await?;
        until(&mut other, &before, number).await?;
        times.push(began.elapsed());
    }
    for server in servers {
        server.stop().await?;
    }
    times.sort_unstable();
    let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
    Ok((Quantity::Time(p99), Observed { p50: Some(p50), p99: Some(p99), ..Observed::default() }))
}

/// Polls until the document has the resource of this number. The document is only read when its tag has changed.
async fn until(server: &mut Connection, before: &str, number: usize) -> Result<()> {
    let (deadline, mut before) = (Instant::now() + PATIENCE, before.to_owned());
    let resource = format!("\"resource\":\"things{number}\"");
    loop {
        let now = tag(server).await?;
        if now != before {
            let body = server.open(Request::get("/apis").header("accept", AGGREGATED)).await?;
            if String::from_utf8_lossy(&body.collect().await?.to_bytes()).contains(&resource) {
                return Ok(());
            }
            before = now;
        }
        ensure!(Instant::now() < deadline, "things{number} did not appear within {PATIENCE:?}");
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn tag(server: &mut Connection) -> Result<String> {
    server.tag(Request::head("/apis").header("accept", AGGREGATED)).await
}
