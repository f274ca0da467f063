//! `/version`: the release of Kubernetes that this server implements.
//!
//! Clients compare it with their own version to decide which features they use. The build metadata names keelson.

use std::sync::OnceLock;

use keelson_meta::json::{Value, json};

/// The Kubernetes version of the API. The build metadata after `+` says that the server is not kube-apiserver. A `-`
/// would make it a pre-release when versions are compared.
pub const GIT_VERSION: &str = "v1.36.2+keelson";
const MAJOR: &str = "1";
const MINOR: &str = "36";
/// The oldest minor version whose clients and components work with this server.
const MIN_COMPATIBILITY_MINOR: &str = "35";

/// The date if the program does not know the commit that it was built from.
const NO_DATE: &str = "1970-01-01T00:00:00Z";

static BUILD: OnceLock<Build> = OnceLock::new();

/// The source that the program was built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The commit. Empty if the build did not know it.
    pub commit: &'static str,
    /// The time of the commit in UTC, in the format of RFC 3339. Empty if the build did not know it.
    pub date: &'static str,
}

impl Build {
    const UNKNOWN: Self = Self { commit: "", date: "" };

    /// Sets the build of this process, for `/version` and the metrics. Only the first call has an effect.
    pub fn publish(self) {
        let _first = BUILD.set(self);
    }
}

/// The document at `/version`. It has all fields that clients may require, but `goVersion` has no meaning here.
pub fn document() -> Value {
    described(*BUILD.get().unwrap_or(&Build::UNKNOWN))
}

fn described(build: Build) -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": MIN_COMPATIBILITY_MINOR,
        "gitVersion": GIT_VERSION,
        "gitCommit": build.commit,
        "gitTreeState": "",
        "buildDate": if build.date.is_empty() { NO_DATE } else { build.date },
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// The architecture with Go's name.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_commit_and_its_date() {
        let check = |build, commit: &str, date: &str| {
            let document = described(build);
            assert_eq!((document["gitCommit"].as_str(), document["buildDate"].as_str()), (Some(commit), Some(date)));
        };
        check(Build { commit: "4c0ffee", date: "2026-11-27T10:00:00Z" }, "4c0ffee", "2026-11-27T10:00:00Z");
        check(Build::UNKNOWN, "", NO_DATE);
    }
}
