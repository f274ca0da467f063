//! `cargo xtask docs`: checks the pages and builds the documentation site below `docs/`.
//!
//! Links, tables, titles and spelling are checked on every run, without mdBook. The site is built if mdBook is installed. The generated
//! pages are written by tests of the crates that have the data.

mod links;
mod spelling;
mod structure;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// The version of mdBook for the site.
const MDBOOK: &str = "0.5";

/// Tests that compare a generated page with the code, and write it if `KEELSON_UPDATE` is set.
const GENERATORS: &[&[&str]] = &[
    &["test", "--package", "keelson", "--bin", "keelson", "--", "reference"],
    &["test", "--package", "keelson-query", "--lib", "--", "reference"],
    &["test", "--package", "keelson-builtin", "--lib", "--", "document"],
];

/// A page of the repository: its path from the root, with slashes, and its text.
struct Page {
    place: String,
    text: String,
}

pub(crate) fn docs(workspace: &Workspace, write: bool) -> Result<ExitCode> {
    if write {
        for generator in GENERATORS {
            let mut command = run::cargo();
            command.current_dir(&workspace.root).args(*generator).env("KEELSON_UPDATE", "1");
            if !run::shown(&mut command)? {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    check(workspace)?;
    build(workspace)
}

/// Fails on a broken link, a page outside of the table of contents, a broken table, or a misspelt word.
fn check(workspace: &Workspace) -> Result<()> {
    let pages = pages(workspace)?;
    let exists = |place: &str| workspace.root.join(place).exists();
    let mut faults = links::check(&pages, exists);
    faults.extend(structure::check(&pages));
    faults.extend(pages.iter().flat_map(spelling::check));
    faults.iter().for_each(|fault| println!("fault: {fault}"));
    if !faults.is_empty() {
        bail!("docs: {} faults in {} pages", faults.len(), pages.len());
    }
    println!("docs: {} pages, no fault", pages.len());
    Ok(())
}

fn build(workspace: &Workspace) -> Result<ExitCode> {
    let installed = Command::new("mdbook").arg("--version").output().is_ok_and(|output| output.status.success());
    if !installed {
        println!(
            "docs: the site was not built, for want of mdbook: cargo install mdbook --version '^{MDBOOK}' --locked"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = Command::new("mdbook");
    command.arg("build").arg(workspace.root.join("docs"));
    Ok(run::code(run::shown(&mut command)?))
}

/// Every Markdown page at the root and below `docs/` and `.github/`, sorted.
fn pages(workspace: &Workspace) -> Result<Vec<Page>> {
    let mut found = Vec::new();
    let mut pending = vec![workspace.root.clone()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))? {
            let path = entry?.path();
            let place = place(workspace, &path);
            if path.is_dir() && ["docs", ".github"].iter().any(|part| place.split('/').next() == Some(*part)) {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {place}"))?;
                found.push(Page { place, text });
            }
        }
    }
    found.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(found)
}

fn place(workspace: &Workspace, path: &Path) -> String {
    path.strip_prefix(&workspace.root).unwrap_or(path).display().to_string()
}
