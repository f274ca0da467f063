//! etcd v3 behind the `Store` contract, for any number of servers on one etcd, also beside kube-apiserver.
//!
//! A client of its own: messages by hand, TLS, users, failover, watches that resume. Keys lie where Kubernetes puts them,
//! values are what they are, and nothing here knows an object. `docs/how-to/stores/etcd.md` is the page for operators.
//!
//! Invariants: nothing is acknowledged that etcd has not committed; no write is sent twice; a tail loses, repeats and
//! reorders nothing over broken connections; `current_revision` is a revision that every tail reaches.

mod client;
mod compact;
mod config;
mod connect;
mod error;
mod format;
mod keys;
mod lease;
mod login;
mod member;
mod name;
mod outcome;
mod proto;
mod read;
mod revision;
mod scan;
mod seen;
mod store;
mod transaction;
mod version;
mod watch;

pub use client::{EtcdCounters, EtcdStats};
pub use config::{ConfigError, EtcdConfig, Login, Order, TlsFiles};
pub use error::OpenError;
pub use store::EtcdStore;
