//! `/version`: the release of Kubernetes that this server implements.
//!
//! Clients compare it with their own version to decide which features they use. The build metadata names keelson. As
//! upstream, an emulated release has fields of its own.

use std::sync::OnceLock;

use keelson_meta::Release;
use keelson_meta::json::{Value, json};

/// The version of the default release.
pub const GIT_VERSION: &str = keelson_meta::KUBERNETES_VERSION;
const MAJOR: &str = "1";

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

/// The document at `/version` of a server with the API of this release. It has all fields that clients may require, but
/// `goVersion` has no meaning here.
pub fn document(release: Release) -> Value {
    described(*BUILD.get().unwrap_or(&Build::UNKNOWN), release)
}

fn described(build: Build, release: Release) -> Value {
    json!({
        "major": MAJOR,
        "minor": Release::DEFAULT.minor().to_string(),
        "emulationMajor": MAJOR,
        "emulationMinor": release.minor().to_string(),
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": release.min_compatibility_minor().to_string(),
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
            let document = described(build, Release::DEFAULT);
            assert_eq!((document["gitCommit"].as_str(), document["buildDate"].as_str()), (Some(commit), Some(date)));
        };
        check(Build { commit: "4c0ffee", date: "2026-11-27T10:00:00Z" }, "4c0ffee", "2026-11-27T10:00:00Z");
        check(Build::UNKNOWN, "", NO_DATE);
    }
}
