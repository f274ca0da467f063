//! Two servers on one PostgreSQL, compared with direct inserts of the same rows.
//!
//! Rounds alternate, since machines are shared and noisy, and each pair of adjacent rounds gives a ratio. Both sides
//! wait for durability. The servers' side adds TLS, the API and two caches.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio_postgres::NoTls;

use crate::bench::{Bench, populate};
use crate::figure::{Observed, Quantity, median_of};
use crate::load::{Until, load};
use crate::pods::Pods;
use crate::wire::{Client, Request};

const SERVERS: usize = 2;
/// The number of requests in flight at each server, enough to keep it busy while a whole batch waits for the disk.
const IN_FLIGHT: usize = 96;
/// The number of rows in one insert.
const BATCH: usize = 16;
/// The duration of each side of a round.
const CREATING: Duration = Duration::from_secs(4);

/// A table with the same form and indexes, without the other work of a server.
const TABLE: &str =
    "DROP TABLE IF EXISTS bench_straight; CREATE TABLE bench_straight (LIKE keelson_history INCLUDING ALL)";
const INSERT: &str = "INSERT INTO bench_straight (revision, path, deleted, value) \
    SELECT revision, path, false, value FROM unnest($1::bigint[], $2::text[], $3::bytea[]) AS n (revision, path, value)";

/// The kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Objects {
    /// An object with many fields, for which most of the work is in the servers.
    Pods,
    /// An equal size in one field.
    ConfigMaps,
}

impl Objects {
    fn name(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::ConfigMaps => "config_maps",
        }
    }

    /// The path and the body of the create.
    fn created(self, pods: &Pods, number: usize) -> (String, Vec<u8>) {
        match self {
            Self::Pods => (pods.collection(number), pods.body(number)),
            Self::ConfigMaps => (pods.config_maps(number), pods.config_map(number)),
        }
    }
}

/// The rate of creates through the servers relative to direct inserts.
pub(super) async fn create(bench: &mut Bench, objects: Objects) -> Result<(Quantity, Observed)> {
    let (url, servers) = bench.together(objects.name(), SERVERS).await?;
    let clients: Vec<Client> = servers.iter().map(|server| server.client.clone()).collect();
    let pods = std::rc::Rc::new(populate(&clients[0], bench.pods.count).await?);
    let (database, connection) =
        tokio_postgres::connect(&url, NoTls).await.context("connecting to PostgreSQL, without TLS")?;
    let driver = tokio::spawn(connection);
    database.batch_execute(TABLE).await?;
    let (mut created, mut inserted, mut runs) = (0, 0, Vec::new());
    for _ in 0..bench.runs {
        let (rate, next, seen) = through_servers(&clients, objects, &pods, created).await?;
        created = next;
        let straight = straight(&database, objects, &pods, &mut inserted).await?;
        let note = format!("{rate:.0} /s through {SERVERS} servers, {straight:.0} /s straight");
        runs.push((Quantity::Ratio(rate / straight), Observed { note: Some(note), ..seen }));
    }
    database.batch_execute("DROP TABLE bench_straight").await?;
    drop(database);
    driver.await.context("the connection to PostgreSQL")??;
    for server in servers {
        server.stop().await?;
    }
    Ok(median_of(runs))
}

/// Creates per second, the number of the next pod, and the observations of one server's clients.
async fn through_servers(
    clients: &[Client],
    objects: Objects,
    pods: &std::rc::Rc<Pods>,
    first: usize,
) -> Result<(f64, usize, Observed)> {
    let began = Instant::now();
    let loads = clients.iter().enumerate().map(|(server, client)| {
        let pods = pods.clone();
        // Every server has its own numbers.
        let create = move |number: usize| {
            let (path, body) = objects.created(&pods, first + number * SERVERS + server);
            Request::post(path, body)
        };
        load(client, IN_FLIGHT, Until::Elapsed(CREATING), create)
    });
    let done = futures::future::try_join_all(loads).await?;
    let requests: usize = done.iter().map(|done| done.requests).sum();
    let most = done.iter().map(|done| done.requests).max().unwrap_or_default();
    let seen = done.into_iter().next().context("there are servers")?.seen();
    Ok((requests as f64 / began.elapsed().as_secs_f64(), first + most * SERVERS, seen))
}

/// Rows per second.
async fn straight(
    database: &tokio_postgres::Client,
    objects: Objects,
    pods: &Pods,
    inserted: &mut usize,
) -> Result<f64> {
    let insert = database.prepare(INSERT).await?;
    let (began, first) = (Instant::now(), *inserted);
    while began.elapsed() < CREATING {
        let numbers = *inserted..*inserted + BATCH;
        let revisions: Vec<i64> = numbers.clone().map(|number| number as i64).collect();
        let paths: Vec<String> =
            numbers.clone().map(|number| pods.path(number).replace("/api/v1", "/registry")).collect();
        let values: Vec<Vec<u8>> = numbers.map(|number| pods.row(number, objects.created(pods, number).1)).collect();
        database.execute(&insert, &[&revisions, &paths, &values]).await?;
        *inserted += BATCH;
    }
    Ok((*inserted - first) as f64 / began.elapsed().as_secs_f64())
}
