//! The cost and time of connecting, measured between a server and PostgreSQL.
//!
//! A proxy between them counts bytes, and can stop forwarding.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod postgres;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keelson_storage::{CommitError, Store, StoreError};
use keelson_teststores::PostgresServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use postgres::{commit, database, open, put};

/// A proxy before PostgreSQL. It counts bytes, and can freeze a connection during a query.
#[derive(Default)]
struct Wire {
    /// Bytes that came from PostgreSQL.
    received: AtomicUsize,
    /// True if connections freeze when they request the number of their process.
    freezes: AtomicBool,
}

impl Wire {
    /// Starts a proxy for the database of a URL. Returns the URL of the proxy.
    async fn before(url: &str) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = PostgresServer::shared().unwrap().port();
        let wire = Arc::new(Self::default());
        let own = wire.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                tokio::spawn(own.clone().carry(client, server));
            }
        });
        (wire, url.replace(&format!(":{to}/"), &format!(":{port}/")))
    }

    async fn carry(self: Arc<Self>, mut client: TcpStream, mut server: TcpStream) -> std::io::Result<()> {
        let (mut question, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                length = client.read(&mut question) => {
                    let question = &question[..length?];
                    let asks = question.windows(14).any(|word| word == b"pg_backend_pid");
                    while asks && self.freezes.load(Ordering::SeqCst) {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    if question.is_empty() {
                        return Ok(());
                    }
                    server.write_all(question).await?;
                }
                length = server.read(&mut answer) => {
                    let answer = &answer[..length?];
                    if answer.is_empty() {
                        return Ok(());
                    }
                    self.received.fetch_add(answer.len(), Ordering::SeqCst);
                    client.write_all(answer).await?;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_times_out_if_postgresql_freezes_during_the_connect() {
    let Some(url) = database() else { return };
    let (wire, url) = Wire::before(&url).await;
    let store = open(&format!("{url}?connect_timeout=1")).await;
    wire.freezes.store(true, Ordering::SeqCst);
    let refused = tokio::time::timeout(Duration::from_secs(60), store.commit(put("a", "1"))).await.unwrap();
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    wire.freezes.store(false, Ordering::SeqCst);
    let again = async { while store.commit(put("a", "1")).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_is_compared_without_reading_large_values_again() {
    let Some(url) = database() else { return };
    let name = url.rsplit('/').next().unwrap().to_owned();
    let (wire, url) = Wire::before(&url).await;
    let store = open(&url).await;
    for number in 0..6 {
        commit(&store, put("large", &number.to_string().repeat(1 << 20))).await;
    }
    let (received, made) = (wire.received.load(Ordering::SeqCst), store.counters().read().connections);
    let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    PostgresServer::shared().unwrap().sql("postgres", &end);
    store.current_revision().await.unwrap();
    assert!(store.counters().read().connections > made);
    let received = wire.received.load(Ordering::SeqCst) - received;
    assert!(received < 1 << 18, "{received} bytes");
    assert_eq!(store.counters().read().losses, 0);
}
