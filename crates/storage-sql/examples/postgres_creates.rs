//! How many objects a second two servers create together on one PostgreSQL, beside the same rows inserted straight into
//! the same PostgreSQL in batches of 16.
//!
//! `env $(cargo xtask servers) cargo run --release -p keelson-storage-sql --example postgres_creates`. Rounds alternate, since
//! machines are shared and noisy; the last line is of medians.
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
/// Requests in flight, over all servers.
const IN_FLIGHT: usize = 48;
const BATCH: usize = 16;
const ROUND: Duration = Duration::from_secs(4);
const ROUNDS: usize = 5;

/// About as large and as compressible as a pod.
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

async fn through_servers(stores: &[Arc<PostgresStore>], next: &Arc<AtomicU64>) -> f64 {
    let begin = Instant::now();
    let clients = (0..IN_FLIGHT).map(|client| {
        let (store, next) = (stores[client % stores.len()].clone(), next.clone());
        tokio::spawn(async move {
            let namespace = StoreKey::new("/registry/namespaces/default");
            let mut count = 0;
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
    f64::from(total) / begin.elapsed().as_secs_f64()
}

async fn straight(url: &str, next: &Arc<AtomicU64>) -> f64 {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let insert =
        "INSERT INTO straight SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bool[], $5::bytea[])";
    let insert = client.prepare(insert).await.unwrap();
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
    f64::from(total) / begin.elapsed().as_secs_f64()
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
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
    // Each server follows the changes, as its cache does.
    for store in &stores {
        let mut tail = store.tail(store.current_revision().await.unwrap()).await.unwrap();
        tokio::spawn(async move { while tail.next().await.is_some() {} });
    }
    let next = Arc::new(AtomicU64::new(1));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(through_servers(&stores, &next).await);
        theirs.push(straight(&server.url(), &next).await);
        println!("servers {:.0}/s, straight {:.0}/s", ours[ours.len() - 1], theirs[theirs.len() - 1]);
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    println!("{SERVERS} servers together {ours:.0}/s, straight {theirs:.0}/s: ratio {:.2}", ours / theirs);
}
