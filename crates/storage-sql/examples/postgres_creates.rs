//! Measures the creates per second of two servers on one PostgreSQL. For comparison, it also inserts the same rows
//! directly in batches of 16.
//!
//! `env $(cargo xtask servers) cargo run --release -p keelson-storage-sql --example postgres_creates`. Rounds of both
//! kinds alternate, since machines are shared and their load varies. The last line has the medians. If `/proc` exists,
//! the output includes the CPU time of PostgreSQL for a row, which varies less.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement talks, and fails by a panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use keelson_storage::{Condition, Store, StoreKey, Transaction};
use keelson_storage_sql::{PostgresConfig, PostgresStore};
use keelson_teststores::PostgresServer;
use tokio_postgres::NoTls;

const SERVERS: usize = 2;
/// The number of concurrent requests of all servers together.
const IN_FLIGHT: usize = 48;
const BATCH: usize = 16;
const ROUND: Duration = Duration::from_secs(4);
const ROUNDS: usize = 5;

/// An object of about the size and compressibility of a pod.
fn object(number: u64) -> Vec<u8> {
    let mut seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut object = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"pod-{number}"}},"env":["#);
    while object.len() < 4900 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        object.push_str(&format!(r#"{{"name":"VARIABLE_{}","value":"{seed:016x}"}},"#, seed % 100));
    }
    object.into_bytes()
}

/// The CPU time that the processes of a PostgreSQL have used so far, in ticks of 10 ms. 0 if it is unknown.
fn ticks(server: &PostgresServer) -> u64 {
    let processes = server.sql("postgres", "SELECT pid FROM pg_stat_activity");
    let of = |process: &str| {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The process name may contain any character, so the fields are counted after it: user and system time are the
        // 12th and 13th.
        let fields: Vec<u64> = text
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse().ok())
            .collect();
        Some(fields.iter().sum::<u64>())
    };
    processes.lines().filter_map(of).sum()
}

/// The result of one side of a round.
struct Side {
    rows_a_second: f64,
    /// The CPU time of PostgreSQL in microseconds.
    cpu_a_row: f64,
}

impl Side {
    fn new(rows: u32, began: Instant, ticks: u64) -> Self {
        let rows = f64::from(rows);
        Self { rows_a_second: rows / began.elapsed().as_secs_f64(), cpu_a_row: ticks as f64 * 10_000.0 / rows }
    }
}

async fn through_servers(server: &PostgresServer, stores: &[Arc<PostgresStore>], next: &Arc<AtomicU64>) -> Side {
    let before = ticks(server);
    let begin = Instant::now();
    let clients = (0..IN_FLIGHT).map(|client| {
        let (store, next) = (stores[client % stores.len()].clone(), next.clone());
        tokio::spawn(async move {
            let namespace = StoreKey::new("/registry/namespaces/default");
            let mut count: u32 = 0;
            while begin.elapsed() < ROUND {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let key = StoreKey::new(format!("/registry/pods/default/pod-{number}"));
                let create = Transaction::default()
                    .when(key.clone(), Condition::Absent)
                    .when(namespace.clone(), Condition::Exists)
                    .put(key, object(number));
                store.commit(create).await.unwrap();
                count += 1;
            }
            count
        })
    });
    let mut total = 0;
    for client in clients.collect::<Vec<_>>() {
        total += client.await.unwrap();
    }
    Side::new(total, begin, ticks(server) - before)
}

async fn straight(server: &PostgresServer, next: &Arc<AtomicU64>) -> Side {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let insert =
        "INSERT INTO straight SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bool[], $5::bytea[])";
    let insert = client.prepare(insert).await.unwrap();
    let before = ticks(server);
    let begin = Instant::now();
    let mut total = 0;
    while begin.elapsed() < ROUND {
        let numbers: Vec<u64> = (0..BATCH).map(|_| next.fetch_add(1, Ordering::Relaxed)).collect();
        let revisions: Vec<i64> = numbers.iter().map(|number| *number as i64).collect();
        let paths: Vec<String> = numbers.iter().map(|number| format!("/registry/pods/default/pod-{number}")).collect();
        let previous = vec![None::<i64>; BATCH];
        let deleted = vec![false; BATCH];
        let values: Vec<Vec<u8>> = numbers.iter().map(|number| object(*number)).collect();
        client.execute(&insert, &[&revisions, &paths, &previous, &deleted, &values]).await.unwrap();
        total += BATCH as u32;
    }
    Side::new(total, begin, ticks(server) - before)
}

fn median(sides: &[Side], figure: impl Fn(&Side) -> f64) -> f64 {
    let mut figures: Vec<f64> = sides.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The number of transactions per commit, over all servers.
fn together(stores: &[Arc<PostgresStore>]) -> f64 {
    let stats = stores.iter().map(|store| store.counters().read());
    let (transactions, groups) = stats.fold((0, 0), |sum, one| (sum.0 + one.transactions, sum.1 + one.groups));
    transactions as f64 / groups as f64
}

#[tokio::main]
async fn main() {
    let server = PostgresServer::builder().setting("shared_buffers", "512MB").setting("max_wal_size", "4GB").start();
    let Some(server) = server else { return };
    let config = PostgresConfig::from_url(&server.url()).unwrap();
    let mut stores = Vec::new();
    for _ in 0..SERVERS {
        stores.push(Arc::new(PostgresStore::open(config.clone()).await.unwrap()));
    }
    server.sql("keelson", "CREATE TABLE straight (LIKE keelson_history INCLUDING ALL)");
    let namespace = Transaction::default().put(StoreKey::new("/registry/namespaces/default"), "{}");
    stores[0].commit(namespace).await.unwrap();
    // Each server has a tail, as for its cache.
    for store in &stores {
        let mut tail = store.tail(store.current_revision().await.unwrap()).await.unwrap();
        tokio::spawn(async move { while tail.next().await.is_some() {} });
    }
    let next = Arc::new(AtomicU64::new(1));
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (side, name) in
            [(through_servers(&server, &stores, &next).await, "servers"), (straight(&server, &next).await, "straight")]
        {
            println!("{name} {:.0}/s, {:.1} us of PostgreSQL's a row", side.rows_a_second, side.cpu_a_row);
            if name == "servers" { &mut ours } else { &mut other }.push(side);
        }
    }
    let rates = (median(&ours, |side| side.rows_a_second), median(&other, |side| side.rows_a_second));
    let costs = (median(&ours, |side| side.cpu_a_row), median(&other, |side| side.cpu_a_row));
    println!("CPU time of PostgreSQL: {:.1} us per create, {:.1} us per inserted row", costs.0, costs.1);
    println!("{:.1} creates per commit", together(&stores));
    println!(
        "{SERVERS} servers together {:.0}/s, plain inserts {:.0}/s: ratio {:.2}",
        rates.0,
        rates.1,
        rates.0 / rates.1
    );
}
