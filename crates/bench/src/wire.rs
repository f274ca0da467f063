//! A cheap client: HTTP/1.1 over TLS, one connection per worker, bodies counted and dropped.
//!
//! A real client would cost as much as the server that is measured, on the same machine.

mod connection;
mod credentials;

pub(crate) use connection::{Client, Connection, Reply, Request};
pub(crate) use credentials::Credentials;
