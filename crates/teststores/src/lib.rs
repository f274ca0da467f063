//! External servers for tests: a private PostgreSQL, a private etcd, a proxy that loses responses, a disk with faults,
//! a key service, and a browser for the console.
//!
//! Each has a data directory of its own and a free port of the loopback address. It ends when its handle is dropped or
//! the test process ends in any way. It is a separate crate, so that tests of a store need no API server.
//!
//! The variables `KEELSON_POSTGRES_BIN`, `KEELSON_ETCD`, `KEELSON_ETCD_NEWEST`, `KEELSON_CHROMIUM` and
//! `KEELSON_CHROMEDRIVER` name the programs; `cargo xtask test` sets them. An empty one means that this machine lacks
//! the program: `start` then prints that and returns none, and xtask lists the tests that did not run.

mod chromium;
mod collector;
mod disk;
mod etcd;
mod guard;
mod kms;
mod postgres;
mod proxy;

pub use chromium::ChromeDriver;
pub use collector::{CollectedSpan, CollectorAnswer, CollectorDouble};
pub use disk::{DiskFault, FragileDisk};
pub use etcd::{EtcdCluster, EtcdServer, EtcdServerBuilder};
pub use kms::KmsDouble;
pub use postgres::{PostgresServer, PostgresServerBuilder};
pub use proxy::LossyWay;

use std::path::PathBuf;

/// The path in a variable; `None` if it is empty.
///
/// # Panics
/// It is not set.
fn named_by(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).unwrap_or_else(|| {
        panic!(
            "{variable} is not set: run the tests with `cargo xtask test`, which finds or fetches the servers they need"
        )
    });
    if path.is_empty() {
        tell(&format!("NOT RUN: {variable} is empty, so this machine has no such server"));
        return None;
    }
    Some(path.into())
}

#[allow(clippy::print_stderr, reason = "the output must show that the test did not run")]
fn tell(text: &str) {
    eprintln!("{text}");
}
