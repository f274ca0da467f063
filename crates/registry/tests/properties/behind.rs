//! A server whose cache does not catch up with the store.
//!
//! The server returns errors in time, and never answers a read of the newest state with an old one.

use std::sync::Arc;
use std::time::SystemTime;

use keelson_cache::{Cache, CacheConfig};
use keelson_meta::clock::ManualClock;
use keelson_meta::options::GetOptions;
use keelson_meta::random::SeededRandom;
use keelson_meta::{ApiError, Revision};
use keelson_registry::{Caller, Registry, RegistryConfig};
use keelson_storage::memory::MemoryStore;

use crate::cluster::*;
use crate::model::RequestPath;

/// The cache follows another store than the one that is written, so it never gets there.
async fn server() -> Registry {
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let cache = Cache::start(Arc::new(MemoryStore::new()), specs(), CacheConfig::new(clock.clone())).await.unwrap();
    let store = Arc::new(MemoryStore::starting_at(Revision::new(1000)));
    keelson_builtin::registry(store, cache, clock, Arc::new(SeededRandom::new(1)), RegistryConfig::default())
}

#[track_caller]
fn check_asked_to_come_again(error: &ApiError) {
    assert_eq!((error.code(), error.retry_after()), (503, Some(1)), "{error}");
}

/// A client without a revision gets a request to retry, and not the error of a revision that is too large.
#[test]
fn a_read_without_a_revision_gets_retry_after() {
    run_paused(async {
        let server = server().await;
        check_asked_to_come_again(&list(&server, RequestPath::Everywhere, "").await.err().unwrap());
        check_asked_to_come_again(&list(&server, RequestPath::Everywhere, "limit=1").await.err().unwrap());
        let got = server.get(&pods(&server, Some("q")), "a", &Caller::server(), &GetOptions::default()).await;
        check_asked_to_come_again(&got.err().unwrap());
        let named = list(&server, RequestPath::Everywhere, "resourceVersion=1000").await.err().unwrap();
        assert_eq!(named.code(), 504, "{named}");
    });
}
