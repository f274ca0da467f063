//! The library for aggregated API servers links no engine without its feature, no built-in kinds and no console,
//! according to cargo.
//!
//! A step of `cargo xtask ci` checks that each feature compiles alone.

use std::collections::HashSet;

use anyhow::Result;

use super::Finding;
use crate::run;
use crate::workspace::Workspace;

/// The library.
const LIBRARY: &str = "keelson-apiserver";
/// The features for store engines, each with a crate that only this engine needs.
pub(crate) const ENGINES: [(&str, &str); 3] =
    [("sqlite", "rusqlite"), ("postgres", "tokio-postgres"), ("etcd", "keelson-storage-etcd")];

/// Crates that the library must not link, with the reason.
const NOT_LINKED: [(&str, &str); 3] = [
    ("keelson-builtin", "an aggregated server serves its own kinds"),
    ("keelson-console", "the main server has the console"),
    ("keelson-server", "the library is not a server of built-in kinds"),
];

/// Runs cargo for each selection of features.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for chosen in std::iter::once("").chain(ENGINES.map(|(feature, _)| feature)) {
        let mut command = run::cargo();
        command.current_dir(&workspace.root);
        command.args(["tree", "--locked", "--offline", "--package", LIBRARY, "--edges", "normal", "--prefix", "none"]);
        command.args(["--no-default-features", "--features", chosen]);
        let tree = String::from_utf8(run::output(&mut command)?)?;
        findings.extend(compare(chosen, &tree));
    }
    Ok(findings)
}

/// Compares a dependency tree with the expected crates.
fn compare(chosen: &str, tree: &str) -> Vec<Finding> {
    let pulled: HashSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let mut findings = Vec::new();
    for (feature, needed) in ENGINES {
        let (is_chosen, is_pulled) = (feature == chosen, pulled.contains(needed));
        if is_chosen != is_pulled {
            let verb = if is_pulled { "pulls" } else { "does not pull" };
            findings.push(Finding::fault(LIBRARY, format!("with features {chosen:?} it {verb} {needed}")));
        }
    }
    for (unwanted, why) in NOT_LINKED {
        if pulled.contains(unwanted) {
            findings.push(Finding::fault(LIBRARY, format!("it links {unwanted}: {why}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn an_unrequested_engine_is_refused() {
        let check = |chosen: &str, tree: &str, expected: &[&str]| {
            let found = compare(chosen, tree);
            assert_eq!(found.iter().map(|finding| &*finding.text).collect::<Vec<_>>(), expected);
        };
        check("", "keelson-apiserver v0.1.0\nserde v1.0.0\n", &[]);
        check("sqlite", "keelson-apiserver v0.1.0\nrusqlite v0.1.0 (*)\n", &[]);
        let two = "rusqlite v0.1.0\ntokio-postgres v0.1.0\n";
        check("postgres", two, &["with features \"postgres\" it pulls rusqlite"]);
        check("", "keelson-builtin v0.1.0\n", &["it links keelson-builtin: an aggregated server serves its own kinds"]);
        check("etcd", "", &["with features \"etcd\" it does not pull keelson-storage-etcd"]);
    }
}
