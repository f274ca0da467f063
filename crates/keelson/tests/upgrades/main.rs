//! Tests of stores of earlier releases. A store of each earlier format is served as it was recorded, and can be
//! written. A store of an unknown format is not changed.
//!
//! The stores are in `fixtures/`, as ENGINE-FORMAT, each with its record. `KEELSON_FIXTURES=1 cargo xtask test -p
//! keelson --test upgrades` makes those of the current format if they are missing. After a change of the format a test
//! fails and names this command.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod fixture;
mod objects;
mod test_store;

use std::process::Output;
use std::time::Duration;

use keelson_testkit::ProcessServer;
use tempfile::TempDir;

use crate::fixture::Fixture;
use crate::test_store::{Engine, TestStore};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
/// The longest time for a start that must fail.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the tests of an engine. If this machine lacks the engine, they end at once, and the test kit reports it.
macro_rules! on {
    ($module:ident, $engine:expr) => {
        mod $module {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_format_of_today_has_a_fixture() {
                super::the_format_of_today_has_a_fixture($engine).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn stores_of_every_format_are_served_and_written() {
                super::stores_of_every_format_are_served_and_written($engine).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_store_of_a_newer_format_is_refused_and_left_alone() {
                super::a_store_of_a_newer_format_is_refused_and_left_alone($engine).await;
            }
        }
    };
}

on!(sqlite, crate::test_store::Engine::Sqlite);
on!(postgres, crate::test_store::Engine::Postgres);
on!(etcd, crate::test_store::Engine::Etcd);

async fn serve(place: &TestStore) -> ProcessServer {
    ProcessServer::builder(KEELSON)
        .arg("--disable-admission-plugins=ServiceAccount")
        .arg("--store")
        .arg(place.url())
        .start()
        .await
}

async fn the_format_of_today_has_a_fixture(engine: Engine) {
    let Some(place) = TestStore::empty(engine) else { return };
    let mut server = serve(&place).await;
    let raw = server.raw();
    objects::make(&raw).await;
    let record = objects::read(&raw).await;
    assert!(server.terminate().await.success());
    let fixture = Fixture::new(engine, place.format());
    if std::env::var_os("KEELSON_FIXTURES").is_some() && !fixture.is_there() {
        fixture.make(&place, &record);
    }
    assert!(fixture.is_there(), "{} is missing: make it with KEELSON_FIXTURES=1", fixture.name());
}

async fn stores_of_every_format_are_served_and_written(engine: Engine) {
    for fixture in Fixture::all(engine) {
        let Some(place) = TestStore::empty(engine) else { return };
        place.load(&fixture);
        let mut server = serve(&place).await;
        let raw = server.raw();
        let recorded = fixture.record(|| objects::read(&raw)).await;
        // A restored dump and a loaded etcd have new revisions.
        let found = objects::check(&raw, &recorded, engine != Engine::Etcd).await;
        objects::check_writes(&raw, found).await;
        let written = objects::read(&raw).await;
        assert!(server.terminate().await.success());
        server.restart().await;
        assert_eq!(objects::read(&server.raw()).await, written, "{}", fixture.name());
    }
}

async fn a_store_of_a_newer_format_is_refused_and_left_alone(engine: Engine) {
    let fixtures = Fixture::all(engine);
    let (fixture, Some(place)) = (fixtures.last().unwrap(), TestStore::empty(engine)) else { return };
    place.load(fixture);
    let known = place.format();
    place.set_format(known + 1);
    let before = place.contents();
    let Output { status, stderr, .. } = refused(&place.url()).await;
    let text = String::from_utf8_lossy(&stderr);
    let words = format!("has storage format {}, and this keelson knows formats up to {known}", known + 1);
    assert!(!status.success() && text.contains(&words), "{text}");
    assert!(place.contents() == before, "nothing is changed in a store that is refused");
    // With the original number the store works again.
    place.set_format(known);
    serve(&place).await;
}

/// Starts a server that must end by itself, and returns its output.
async fn refused(store: &str) -> Output {
    let data = TempDir::new().unwrap();
    let mut command = tokio::process::Command::new(KEELSON);
    command.args(["serve", "--bind", "127.0.0.1:0", "--store", store, "--data-dir"]).arg(data.path());
    let output = command.kill_on_drop(true).output();
    tokio::time::timeout(PATIENCE, output).await.expect("the server does not start").unwrap()
}
