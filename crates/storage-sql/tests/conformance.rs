//! Runs the conformance suite on SQLite: on disk, in memory, and with almost no space for recent changes, so that tails
//! read from the table.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::conformance::Factory;
use keelson_storage::conformance::model::{Operation, check_operations};
use keelson_storage_sql::{SqliteConfig, SqliteStore};
use proptest::prelude::*;
use tempfile::TempDir;

/// A store in a separate directory.
struct OnDisk {
    directory: TempDir,
    recent_bytes: usize,
}

impl OnDisk {
    /// A store with the default settings.
    fn new() -> Self {
        Self::remembering(8 * 1024 * 1024)
    }

    /// A store that keeps this many bytes of recent changes.
    fn remembering(recent_bytes: usize) -> Self {
        Self { directory: TempDir::new().unwrap(), recent_bytes }
    }
}

impl Factory for OnDisk {
    async fn open(&mut self) -> Arc<dyn Store> {
        let config = SqliteConfig { recent_bytes: self.recent_bytes, ..SqliteConfig::directory(self.directory.path()) };
        Arc::new(SqliteStore::open(config).unwrap())
    }
}

/// A store whose contents are lost when its handle is dropped.
struct InMemory;

impl Factory for InMemory {
    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(SqliteConfig::in_memory()).unwrap())
    }

    fn survives_reopening(&self) -> bool {
        false
    }
}

mod on_disk {
    keelson_storage::conformance_tests!(super::OnDisk::new());
}

mod on_disk_with_a_short_memory {
    keelson_storage::conformance_tests!(super::OnDisk::remembering(2000));
}

mod in_memory {
    keelson_storage::conformance_tests!(super::InMemory);
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(any::<[u8; 3]>(), 0..80)
        .prop_map(|bytes| bytes.into_iter().map(Operation::from_bytes).collect())
}

fn check(mut factory: impl Factory, operations: &[Operation]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(check_operations(&mut factory, operations));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_operations_on_disk_match_the_model(operations in operations(), recent_bytes in 0..4000usize) {
        check(OnDisk::remembering(recent_bytes), &operations);
    }

    #[test]
    fn any_operations_in_memory_match_the_model(operations in operations()) {
        check(InMemory, &operations);
    }
}
