//! Prints the parts of a release that the data files do not contain: new kinds, and validation rules of new fields.
//!
//! A developer has to add them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::facts::Id;
use super::go::Form;
use super::sources::Sources;

/// Groups whose objects are not served: bodies of webhooks, and versions that only exist for old objects.
const NOT_SERVED: [&str; 4] = ["admission", "apidiscovery", "extensions", "imagepolicy"];

/// Prints the kinds that are not served, and the fields by which the new files differ from the existing ones.
///
/// # Errors
/// A source cannot be read.
pub(crate) fn print(sources: &Sources, served: &[Id], release: (u32, u32), files: &[(PathBuf, String)]) -> Result<()> {
    let known: BTreeSet<&Id> = served.iter().collect();
    let groups: BTreeSet<&str> = known.iter().map(|(package, _)| package.as_str()).collect();
    for (package, name) in served {
        if sources.find(package, name)?.is_none() {
            println!(
                "gone: {name} of {package}: take it out of crates/schema/build/kinds, and end its version in its folder of crates/builtin"
            );
        }
    }
    for package in packages(sources)? {
        let declared = sources.package(&package)?;
        for (name, found) in &declared.types {
            if declared.removed.get(name).is_some_and(|removed| *removed <= release) {
                continue;
            }
            let is_kind =
                matches!(&found.form, Form::Struct(_)) && found.markers.iter().any(|marker| marker == "genclient");
            if is_kind && !known.contains(&(package.clone(), name.clone())) {
                let version = if groups.contains(package.as_str()) { "" } else { ", whose version is not served" };
                println!("not served: {name} of {package}{version}");
            }
        }
    }
    for (path, new) in files {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        let (old, new) = (fields(&old), fields(new));
        for (field, is_new) in
            new.difference(&old).map(|field| (field, true)).chain(old.difference(&new).map(|field| (field, false)))
        {
            println!("{} {field}{}", if is_new { "new:" } else { "gone:" }, rules(path, is_new));
        }
    }
    Ok(())
}

/// The files of kubernetes/kubernetes with the rules of a group's new fields.
fn rules(path: &Path, is_new: bool) -> String {
    let group =
        path.file_stem().unwrap_or_default().to_string_lossy().replace("internal_apiserver", "apiserverinternal");
    if !is_new
        || path.extension().is_none_or(|ending| ending != "txt")
        || matches!(&*group, "messages" | "enums" | "meta")
    {
        return String::new();
    }
    format!(" (read pkg/apis/{group}/validation, pkg/apis/{group}/*/defaults.go and pkg/registry/{group})")
}

/// The packages of all versions of the API.
fn packages(sources: &Sources) -> Result<Vec<String>> {
    let mut packages = Vec::new();
    for group in std::fs::read_dir(sources.folder("k8s.io/api"))?.flatten() {
        let name = group.file_name().to_string_lossy().into_owned();
        if NOT_SERVED.contains(&name.as_str()) || name.starts_with('.') || !group.path().is_dir() {
            continue;
        }
        for version in std::fs::read_dir(group.path())?.flatten() {
            let version = version.file_name().to_string_lossy().into_owned();
            if version.starts_with('v') && version[1..].starts_with(|c: char| c.is_ascii_digit()) {
                packages.push(format!("k8s.io/api/{name}/{version}"));
            }
        }
    }
    packages.sort();
    Ok(packages)
}

/// The fields of a file of facts, each with its type: `v1.PodSpec.hostUsers`. Other tables have no such fields.
fn fields(text: &str) -> BTreeSet<String> {
    let (mut fields, mut shown) = (BTreeSet::new(), String::new());
    for line in text.lines() {
        let word = || line.split_whitespace().next().unwrap_or_default().trim_end_matches('?');
        if let Some(name) = line.strip_prefix("type v") {
            shown = format!("v{}", name.split(' ').next().unwrap_or(name));
        } else if line.starts_with("  ") && !shown.is_empty() {
            fields.insert(format!("{shown}.{}", word()));
        }
    }
    fields
}
