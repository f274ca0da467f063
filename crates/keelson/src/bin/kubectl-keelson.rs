//! The plugin `kubectl keelson`, which kubectl finds by its name on the path.
//!
//! All of it is in `keelson-kubectl`.

use std::process::ExitCode;

fn main() -> ExitCode {
    keelson_kubectl::main()
}
