//! The release and the commit of this program, which the build script sets.
//!
//! Debug builds have no commit, and `--version` omits it.

use std::sync::LazyLock;

use keelson_server::{Build, KUBERNETES_VERSION};

const BUILD: Build = Build { commit: env!("KEELSON_COMMIT"), date: env!("KEELSON_COMMIT_DATE") };
/// The number of characters of the commit hash in `--version`.
const SHORT_COMMIT: usize = 12;

static VERSION: LazyLock<String> = LazyLock::new(|| described(BUILD));

/// The text of `--version`: the release, the Kubernetes release whose API the server has, the commit and its date.
pub(crate) fn version() -> &'static str {
    &VERSION
}

/// The day of the commit; empty in debug builds.
pub(crate) fn day() -> &'static str {
    BUILD.date.split_once('T').map_or("", |(day, _)| day)
}

/// Puts the commit into the `/version` response of the servers in this process.
pub(crate) fn publish() {
    BUILD.publish();
}

fn described(build: Build) -> String {
    let kubernetes = KUBERNETES_VERSION.split('+').next().unwrap_or_default().trim_start_matches('v');
    let mut parts = vec![format!("Kubernetes {kubernetes}")];
    if !build.commit.is_empty() {
        parts.push(format!("commit {}", build.commit.get(..SHORT_COMMIT).unwrap_or(build.commit)));
    }
    if let Some((day, _)) = build.date.split_once('T') {
        parts.push(day.to_owned());
    }
    format!("{} ({})", env!("CARGO_PKG_VERSION"), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_names_release_kubernetes_commit_and_day() {
        let check = |commit, date, expected: &str| assert!(described(Build { commit, date }).ends_with(expected));
        check("48f5183f00112233", "2026-11-27T10:00:00Z", ", commit 48f5183f0011, 2026-11-27)");
        check("", "", " (Kubernetes 1.37.0)");
    }
}
