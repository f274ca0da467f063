//! Tests of the metrics of a store that several servers share.
//!
//! A server with an embedded store has no metrics of shared stores.

use keelson_server::StoreConfig;
use keelson_testkit::{EtcdServer, PostgresServer, TestServer};
use serde_json::json;

/// Serves from a store, and returns the metrics whose names contain this name, with their values.
async fn metrics_named(store: &str, name: &str) -> Vec<(String, f64)> {
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
    let told = metrics_named(&postgres.url(), "postgres").await;
    check(
        &told,
        &[
            ("keelson_postgres_connections_total", true),
            ("keelson_postgres_retries_total", false),
            ("keelson_postgres_commits_total", true),
            ("keelson_postgres_transactions_total", true),
            ("keelson_postgres_commits_unknown_total", false),
            ("keelson_postgres_losses_total", false),
            ("keelson_postgres_refused_total", false),
            ("keelson_postgres_history_exchanges_total", false),
        ],
    );
    let of = |name: &str| told.iter().find(|(told, _)| told.contains(name)).unwrap().1;
    assert!(of("transactions_total") >= of("commits_total"), "transactions share commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_etcd_counts_watches_and_failovers() {
    let Some(etcd) = EtcdServer::start() else { return };
    let told = metrics_named(&format!("etcd://{}", etcd.endpoint()), "etcd").await;
    let (progress, told): (Vec<_>, Vec<_>) =
        told.into_iter().partition(|(name, _)| name.contains("progress") || name.contains("ticks"));
    // The version of etcd determines which of the two is needed. The second has a deprecated name too.
    assert_eq!(progress.len(), 3, "{progress:?}");
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
    assert_eq!(metrics_named("memory:", "postgres").await, []);
    assert_eq!(metrics_named("memory:", "etcd").await, []);
}

/// Clients know etcd's error text, and deletions must work without space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_without_room_refuses_in_its_own_words_and_takes_deletions() {
    let Some(etcd) = EtcdServer::builder().arg("--quota-backend-bytes=16777216").start() else { return };
    let store = StoreConfig::parse(&format!("etcd://{}", etcd.endpoint())).unwrap();
    let server = TestServer::builder().configure(|config| config.store = store).start().await;
    let raw = server.raw();
    let maps = "/api/v1/namespaces/default/configmaps";
    let large = |number: usize, length: usize| json!({"metadata": {"name": format!("map-{number}")}, "data": {"text": "x".repeat(length)}});
    let labels = json!({"app": "large"});
    let container = json!({"name": "c", "image": "i", "args": ["x".repeat(1_600_000)]});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let deployment = json!({"metadata": {"name": "large"}, "spec": spec});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let too_large = raw.post(deployments, &deployment).await.expect(500).json();
    assert_eq!(too_large["message"], "etcdserver: request is too large", "{too_large}");
    let mut number = 0;
    let refused = loop {
        let answer = raw.post(maps, &large(number, 500_000)).await;
        if answer.status != 201 {
            break answer;
        }
        number += 1;
        assert!(number < 100, "the quota is some objects");
    };
    assert_eq!(refused.header("retry-after"), "");
    let status = refused.expect(500).json();
    assert_eq!(status["message"], "etcdserver: mvcc: database space exceeded", "{status}");
    raw.delete(format!("{maps}/map-0")).await.expect(200);
    raw.get("/readyz").await.expect(200);
    let metrics = raw.get("/metrics").await.expect(200).text();
    assert!(metrics.lines().any(|line| line.starts_with("keelson_store_full 1")), "{metrics}");
}
