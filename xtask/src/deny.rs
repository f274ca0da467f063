//! `cargo xtask deny`: every compiled crate, on any platform, must have an accepted licence, come from the one trusted
//! registry, and not be banned. Several versions of a crate are reported.
//!
//! `deny.toml` holds the rules, and is also a valid configuration for cargo-deny. The check is implemented here because
//! it must run from a fresh clone with nothing but cargo. It does not check security advisories, which live in a
//! database that changes daily. With cargo-deny installed, `cargo deny check advisories` does.

mod config;
mod spdx;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Package, Workspace};
use config::Config;

/// The default registry in the lockfile: the address of its git index, which builds no longer contact.
const DEFAULT_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn deny(workspace: &Workspace) -> Result<()> {
    let path = workspace.root.join("deny.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = Config::read(&text)?;
    let faults: Vec<String> = workspace.dependencies.iter().flat_map(|p| check(&config, p)).collect();
    for fault in &faults {
        println!("fault: {fault}");
    }
    for (name, versions) in several_versions(&workspace.dependencies) {
        println!("note: {name} is here in {} versions: {}", versions.len(), versions.join(", "));
    }
    if !faults.is_empty() {
        bail!("deny: {} faults in {} crates", faults.len(), workspace.dependencies.len());
    }
    println!("deny: {} crates, licences, sources and bans are as deny.toml wants them", workspace.dependencies.len());
    println!("deny: security advisories are not checked here (their database has to be fetched)");
    Ok(())
}

fn check(config: &Config, package: &Package) -> Vec<String> {
    let Package { name, version, license, source } = package;
    let mut faults = Vec::new();
    match license {
        None => faults.push(format!("{name} {version} states no licence")),
        Some(license) if !spdx::allowed(license, &config.licenses) => {
            faults.push(format!("{name} {version} has licence {license:?}, which deny.toml does not allow"));
        }
        Some(_) => {}
    }
    if source.as_deref() != Some(DEFAULT_REGISTRY) {
        let from = source.as_deref().unwrap_or("a path outside the workspace");
        faults.push(format!("{name} {version} comes from {from}"));
    }
    if config.banned.contains(name) {
        faults.push(format!("{name} {version} is banned by deny.toml"));
    }
    faults
}

fn several_versions(packages: &[Package]) -> BTreeMap<&str, Vec<&str>> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    versions.retain(|_, found| found.len() > 1);
    versions
}

#[cfg(test)]
mod tests {
    use super::{Config, DEFAULT_REGISTRY, Package, check};

    #[test]
    fn licence_source_and_ban_are_each_a_fault() {
        let config = Config { licenses: vec!["MIT".into()], banned: vec!["openssl".into()] };
        let package = |name: &str, license: Option<&str>, source: Option<&str>| Package {
            name: name.into(),
            version: "1.0.0".into(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
        };
        assert!(check(&config, &package("a", Some("MIT"), Some(DEFAULT_REGISTRY))).is_empty());
        assert_eq!(check(&config, &package("a", None, Some(DEFAULT_REGISTRY))).len(), 1);
        assert_eq!(check(&config, &package("a", Some("GPL-3.0"), Some("git+https://example.test/a"))).len(), 2);
        assert_eq!(check(&config, &package("openssl", Some("MIT"), Some(DEFAULT_REGISTRY))).len(), 1);
    }
}
