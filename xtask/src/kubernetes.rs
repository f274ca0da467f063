//! `cargo xtask kubernetes`: writes the project's data about Kubernetes from the public sources of a release.
//!
//! The sources are a checkout of kubernetes/kubernetes or of its published parts. `docs/dev/new-release.md` describes
//! the whole procedure.

mod enums;
mod facts;
mod features;
mod go;
mod messages;
mod news;
mod sources;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use self::sources::Sources;
use crate::run;
use crate::workspace::Workspace;

/// Writes the data files, or with `check` compares them with the sources and changes nothing.
///
/// # Errors
/// The sources or a data file cannot be read, or a file cannot be written.
pub(crate) fn kubernetes(workspace: &Workspace, from: &Path, release: &str, check: bool) -> Result<ExitCode> {
    let numbers = release.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let numbers = numbers.with_context(|| format!("{release:?} is not a release such as 1.37"))?;
    let sources = Sources::open(from)?;
    let (schema, protobuf) = (workspace.root.join("crates/schema"), workspace.root.join("crates/protobuf/src"));
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    let kinds = schema.join(format!("build/kinds/v{}.rs", release.replace('.', "_")));
    let served =
        facts::roots(&read(&kinds).context("copy the file of the release before, and declare it in kinds.rs")?);
    let facts = facts::write(&sources, &schema, served.clone(), release)?;
    files.extend(facts.into_iter().map(|(name, text)| (schema.join("facts").join(name), text)));
    // The messages and the gates of the newest release are those of the older ones too.
    if files.iter().any(|(path, _)| path.ends_with("facts/README.md")) {
        let table = protobuf.join("messages.txt");
        files.push((table.clone(), messages::write(&sources, &read(&table)?, release)?));
        let gates = workspace.root.join("crates/meta/src/features.txt");
        match features::write(from, &sources.folder(""), release)? {
            Some(text) => files.push((gates, text)),
            None => println!("the sources do not list the feature gates: crates/meta/src/features.txt stays as it is"),
        }
    }
    news::print(&sources, &served, numbers, &files)?;
    let mut differing = 0;
    for (path, text) in files {
        if read(&path).unwrap_or_default() == text {
            continue;
        }
        differing += 1;
        let shown = path.strip_prefix(&workspace.root).unwrap_or(&path).display();
        if check {
            println!("{shown} differs from the sources of {release}");
        } else {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(&path, text).with_context(|| format!("cannot write {shown}"))?;
            println!("wrote {shown}");
        }
    }
    Ok(run::code(!check || differing == 0))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Replaces the release that follows `words` in a text.
fn with_release(text: &str, words: &str, release: &str) -> String {
    let Some((before, after)) = text.split_once(words) else { return text.to_owned() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let dot = if after.len() > rest.len() && after[..after.len() - rest.len()].ends_with('.') { "." } else { "" };
    format!("{before}{words}{release}{dot}{rest}")
}
