//! Runs the conformance suite on PostgreSQL: with the default settings, and with almost no space for recent changes, so
//! that tails read from the table. All cases use one PostgreSQL, each with a separate database.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod postgres;

use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::conformance::Factory;
use keelson_storage_sql::{PostgresConfig, PostgresStore};

use postgres::database;

/// A store in a separate database. None without PostgreSQL.
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

/// Ends the test if there is no PostgreSQL, which the test kit has reported.
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
