//! `/version`: which Kubernetes this server behaves like.
//!
//! Clients compare it with their own to decide what they may use, so it names the release whose API this server has; the
//! build metadata behind it says that it is keelson.

use keelson_meta::json::{Value, json};

/// The Kubernetes version that the API follows. The build metadata after `+` says that it is not the reference; a `-`
/// would make it a pre-release for those who compare versions.
pub const GIT_VERSION: &str = "v1.36.2+keelson";
const MAJOR: &str = "1";
const MINOR: &str = "36";
/// The oldest minor version whose clients and components work with this server.
const MIN_COMPATIBILITY_MINOR: &str = "35";

/// The document at `/version`. All fields that clients may require are there; `goVersion` has no meaning here.
pub fn document() -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": MIN_COMPATIBILITY_MINOR,
        "gitVersion": GIT_VERSION,
        "gitCommit": option_env!("KEELSON_GIT_COMMIT").unwrap_or_default(),
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// The architecture in the words of the field.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
