//! A cheap client: HTTP/1.1 over TLS, one connection for each worker, bodies counted and dropped.
//!
//! A real client would cost as much as the measured server, on the same machine.

mod connection;
mod credentials;

pub(crate) use connection::{Client, Connection, Reply, Request};
pub(crate) use credentials::Credentials;
