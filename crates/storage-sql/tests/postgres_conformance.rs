//! The engine on PostgreSQL keeps the contract: with the usual settings, and with hardly any room for recent changes, so that
//! tails read from the table. One PostgreSQL serves all cases, each in a database of its own.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod postgres;

use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::conformance::Factory;
use keelson_storage_sql::{PostgresConfig, PostgresStore};

use postgres::database;

/// A store in a database of its own. None where there is no PostgreSQL.
struct OnPostgres {
    config: PostgresConfig,
}

impl OnPostgres {
    fn new() -> Option<Self> {
        Self::remembering(8 * 1024 * 1024)
    }

    fn remembering(recent_bytes: usize) -> Option<Self> {
        let mut config = PostgresConfig::from_url(&database()?).unwrap();
        config.recent_bytes = recent_bytes;
        Some(Self { config })
    }
}

impl Factory for OnPostgres {
    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(self.config.clone()).await.unwrap())
    }
}

/// Ends the test where there is no PostgreSQL; the test kit has said so.
macro_rules! or_return {
    ($factory:expr) => {
        match $factory {
            Some(factory) => factory,
            None => return,
        }
    };
}

mod with_usual_settings {
    keelson_storage::conformance_tests!(or_return!(super::OnPostgres::new()));
}

mod with_a_short_memory {
    keelson_storage::conformance_tests!(or_return!(super::OnPostgres::remembering(2000)));
}
