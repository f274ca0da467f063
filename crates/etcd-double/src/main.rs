//! The program `etcd` of keelson's envtest assets.
//!
//! All of it is in the library, so that `keelson etcd` is the same program.

use std::process::ExitCode;

fn main() -> ExitCode {
    keelson_etcd_double::run(std::env::args_os().skip(1))
}
