//! Servers of other makes that stores are tested on: a private PostgreSQL, a private etcd; a way to them
//! that loses answers, a disk that fails, and a key
//! service. And the browser that the console is tested in.
//!
//! Each has a data directory of its own and a free port of the loopback address, and is gone when its handle is dropped or
//! the test process ends, however it ends. A crate of its own, so that the test of a store needs no API server.
//!
//! Which programs are started, the variables `KEELSON_POSTGRES_BIN`, `KEELSON_ETCD`, `KEELSON_ETCD_NEWEST`, `KEELSON_CHROMIUM` and
//! `KEELSON_CHROMEDRIVER` say; `cargo xtask test` sets them. An empty one says that this machine can't have the server: then `start`
//! prints that and returns none, and xtask closes with what was not run.

mod chromium;
mod disk;
mod etcd;
mod guard;
mod kms;
mod postgres;
mod proxy;

pub use chromium::ChromeDriver;
pub use disk::{DiskFault, FragileDisk};
pub use etcd::{EtcdCluster, EtcdServer, EtcdServerBuilder};
pub use kms::KmsDouble;
pub use postgres::{PostgresServer, PostgresServerBuilder};
pub use proxy::LossyWay;

use std::path::PathBuf;

/// What a variable names, or none where it is empty.
///
/// # Panics
/// When it is not set at all.
fn named_by(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).unwrap_or_else(|| {
        panic!(
            "{variable} is not set: run the tests with `cargo xtask test`, which finds or fetches the servers they need"
        )
    });
    if path.is_empty() {
        tell(&format!("NOT RUN: {variable} says that this machine has no such server"));
        return None;
    }
    Some(path.into())
}

#[allow(clippy::print_stderr, reason = "whoever reads a test's output must see that it tested nothing")]
fn tell(text: &str) {
    eprintln!("{text}");
}
