//! etcd v3 as a storage engine, for any number of servers on one etcd, also beside kube-apiserver.
//!
//! This crate has its own client: messages by hand, TLS, users, failover, watches that resume. Keys and values are
//! those of Kubernetes, and the crate does not know objects. `docs/how-to/stores/etcd.md` is for operators.
//!
//! Invariants:
//! - Nothing is acknowledged before etcd has committed it.
//! - No write is sent twice.
//! - Tails lose, repeat and reorder nothing over broken connections.
//! - Every tail reaches the revision of `current_revision`.

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
pub use config::{ConfigError, DialMember, EtcdConfig, Login, MemberStream, Order, TlsFiles};
pub use error::OpenError;
pub use store::EtcdStore;
