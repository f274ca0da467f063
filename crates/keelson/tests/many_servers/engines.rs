//! The stores that several servers can share.

use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;

/// A store, and how a server gets its own way to it.
pub(crate) enum Engine {
    /// In this process's memory.
    Memory(MemoryStore),
}

impl Engine {
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::new(store.clone()),
        }
    }
}

/// Makes a test of each function for each engine.
macro_rules! on_every_engine {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($crate::engines::Engine::memory()).await;
                }
            )*
        }
    };
}

pub(crate) use on_every_engine;
