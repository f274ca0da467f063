//! A whole API server from its parts: store, cache, registry, controllers and the HTTP edge, started and stopped in
//! the right order. Only this crate knows which engine is behind the store.

mod backup;
mod config;
mod history;
mod metrics;
mod probe;
mod server;

pub use backup::{backup, restore};
mod store;
mod tokens;
pub use config::{Config, StoreConfig};
pub use keelson_registry::RegistryConfig;
pub use server::{RunningServer, Server};
