//! Metrics of a store that a server shares with others.
//!
//! A server with a store of its own says nothing of others.

use keelson_server::StoreConfig;
use keelson_testkit::{EtcdServer, PostgresServer, TestServer};

/// Serves from a store and returns what is said of stores of this name: metrics and numbers.
async fn told(store: &str, name: &str) -> Vec<(String, f64)> {
    let store = StoreConfig::parse(store).unwrap();
    let server = TestServer::builder().configure(|config| config.store = store).start().await;
    let metrics = server.raw().get("/metrics").await.expect(200).text();
    let of_store = metrics.lines().filter(|line| line.starts_with(&format!("keelson_{name}_")));
    of_store.map(|line| line.rsplit_once(' ').unwrap()).map(|(name, n)| (name.to_owned(), n.parse().unwrap())).collect()
}

#[track_caller]
fn check(told: &[(String, f64)], names: &[(&str, bool)]) {
    assert_eq!(told.len(), names.len(), "{told:?}");
    for (name, happened) in names {
        let number = told.iter().find(|(told, _)| told == name).unwrap_or_else(|| panic!("{name}: {told:?}")).1;
        assert_eq!(number >= 1.0, *happened, "{name}: {number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_postgresql_counts_connections_and_commits() {
    let Some(postgres) = PostgresServer::start() else { return };
    let told = told(&postgres.url(), "postgres").await;
    check(
        &told,
        &[
            ("keelson_postgres_connections_total", true),
            ("keelson_postgres_retries_total", false),
            ("keelson_postgres_commits_total", true),
            ("keelson_postgres_transactions_total", true),
            ("keelson_postgres_commits_unknown_total", false),
            ("keelson_postgres_losses_total", false),
            ("keelson_postgres_history_exchanges_total", false),
        ],
    );
    let of = |name: &str| told.iter().find(|(told, _)| told.contains(name)).unwrap().1;
    assert!(of("transactions_total") >= of("commits_total"), "transactions share commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_etcd_counts_watches_and_failovers() {
    let Some(etcd) = EtcdServer::start() else { return };
    let told = told(&format!("etcd://{}", etcd.endpoint()), "etcd").await;
    let (progress, told): (Vec<_>, Vec<_>) =
        told.into_iter().partition(|(name, _)| name.contains("progress") || name.contains("ticks"));
    // Which of these two is needed depends on etcd's version.
    assert_eq!(progress.len(), 2, "{progress:?}");
    check(
        &told,
        &[
            ("keelson_etcd_retries_total", false),
            ("keelson_etcd_failovers_total", false),
            ("keelson_etcd_logins_total", false),
            ("keelson_etcd_watches_opened_total", true),
            ("keelson_etcd_watches_broken_total", false),
        ],
    );
}

#[tokio::test]
async fn a_server_with_a_store_of_its_own_says_nothing_of_others() {
    assert_eq!(told("memory:", "postgres").await, []);
    assert_eq!(told("memory:", "etcd").await, []);
}
