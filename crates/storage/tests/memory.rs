//! The conformance suite on the in-memory engine.
//!
//! Most tests use this engine, so it must pass like all others.

use std::sync::Arc;

use futures::FutureExt as _;
use keelson_storage::conformance::model::{Operation, check_operations};
use keelson_storage::conformance::{Factory, run};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use proptest::prelude::*;

/// A clone of the store acts as the store after a restart.
#[derive(Default)]
struct InMemory(MemoryStore);

impl Factory for InMemory {
    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }
}

mod conformance {
    keelson_storage::conformance_tests!(super::InMemory::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_runs_as_one_function() {
    run(InMemory::default).await;
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_operations_match_the_model(bytes in proptest::collection::vec(any::<[u8; 3]>(), 0..120)) {
        let operations: Vec<Operation> = bytes.into_iter().map(Operation::from_bytes).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check_operations(&mut InMemory::default(), &operations));
    }
}

#[tokio::test]
async fn history_that_takes_too_many_bytes_asks_to_be_cut() {
    let store = MemoryStore::new().with_history_bytes(1_000_000);
    let put = |number: u8| Transaction::default().put(StoreKey::new("/one"), vec![number; 100_000]);
    for number in 0..11 {
        store.commit(put(number)).await.unwrap();
    }
    assert_eq!(store.history_bytes(), 1_000_000);
    assert!(store.crowded().now_or_never().is_none(), "as much as it may have");
    let newest = store.commit(put(11)).await.unwrap().revisions[0];
    let oldest = store.crowded().await;
    assert!(oldest < newest);
    store.compact(oldest).await.unwrap();
    assert!((600_000..1_000_000).contains(&store.history_bytes()), "{}", store.history_bytes());
    assert!(store.crowded().now_or_never().is_none(), "it is asked for once");
}
