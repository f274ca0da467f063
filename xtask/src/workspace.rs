//! The workspace according to cargo: its root, target directory, members and resolved dependencies.
//!
//! Only this module reads `cargo metadata`; the checks use its plain values.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::run;

/// The workspace as resolved from the lockfile.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) members: Vec<Member>,
    pub(crate) dependencies: Vec<Package>,
}

/// A crate of this repository.
pub(crate) struct Member {
    pub(crate) name: String,
    /// The workspace crates that it uses, in any kind of dependency.
    pub(crate) uses: Vec<Edge>,
    /// True if the crate may be published.
    pub(crate) is_published: bool,
    /// True if its manifest has a description, which registries require.
    pub(crate) is_described: bool,
}

/// One dependency of a member on another member.
pub(crate) struct Edge {
    pub(crate) on: String,
    /// True for `[dev-dependencies]`.
    pub(crate) dev: bool,
    /// True if the dependency names a version beside the path.
    pub(crate) has_version: bool,
}

/// An external crate.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The SPDX expression of its manifest, if there is one.
    pub(crate) license: Option<String>,
    /// cargo's text for its source; none for a path.
    pub(crate) source: Option<String>,
}

impl Workspace {
    /// Reads `cargo metadata` without changing the lockfile.
    pub(crate) fn load() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the workspace root")?;
        let bytes =
            run::output(run::cargo().current_dir(root).args(["metadata", "--format-version", "1", "--locked"]))?;
        let metadata: Value = serde_json::from_slice(&bytes).context("cargo metadata printed no JSON")?;
        let members: HashSet<&str> = array(&metadata["workspace_members"]).filter_map(Value::as_str).collect();
        let built = built(root)?;
        let packages = || array(&metadata["packages"]);
        let is_member = |p: &Value| p["id"].as_str().is_some_and(|id| members.contains(id));
        let names: HashSet<String> = packages().filter(|p| is_member(p)).map(|p| text(&p["name"])).collect();
        Ok(Self {
            root: root.to_path_buf(),
            target: PathBuf::from(text(&metadata["target_directory"])),
            members: packages().filter(|p| is_member(p)).map(|p| member(p, &names)).collect(),
            dependencies: packages()
                .filter(|p| !is_member(p))
                .map(package)
                .filter(|p| built.contains(&(p.name.clone(), p.version.clone())))
                .collect(),
        })
    }
}

/// Name and version of every crate that some build of the workspace compiles, on any platform.
///
/// `cargo metadata` also lists optional crates that no feature enables, so this uses the dependency tree.
fn built(root: &Path) -> Result<HashSet<(String, String)>> {
    let tree =
        ["tree", "--workspace", "--locked", "--target", "all", "--edges", "all", "--prefix", "none", "--format", "{p}"];
    let output = run::output(run::cargo().current_dir(root).args(tree))?;
    let pair = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    Ok(String::from_utf8_lossy(&output).lines().filter_map(pair).collect())
}

fn member(package: &Value, names: &HashSet<String>) -> Member {
    let uses = array(&package["dependencies"])
        .map(|d| Edge { on: text(&d["name"]), dev: d["kind"] == "dev", has_version: d["req"] != "*" })
        .filter(|edge| names.contains(&edge.on))
        .collect();
    Member {
        name: text(&package["name"]),
        uses,
        // cargo lists the registries; null is any registry.
        is_published: package["publish"].is_null(),
        is_described: package["description"].is_string(),
    }
}

fn package(package: &Value) -> Package {
    Package {
        name: text(&package["name"]),
        version: text(&package["version"]),
        license: package["license"].as_str().map(str::to_owned),
        source: package["source"].as_str().map(str::to_owned),
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
