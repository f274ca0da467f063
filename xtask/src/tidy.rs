//! `cargo xtask tidy`: project rules that no compiler checks.
//!
//! Each rule is a module with a pure function from text to findings; this one walks the files and prints. Findings are
//! faults, which fail the run, or notes.

mod builtin;
mod edges;
pub(crate) mod engines;
mod heads;
mod kinds;
mod prose;
mod published;
mod sizes;
mod stems;
mod tasks;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;

/// Directories that are not checked.
const SKIPPED: [&str; 3] = ["target", ".git", "node_modules"];

/// A finding of a rule, with its place.
struct Finding {
    place: String,
    text: String,
    fault: bool,
}

impl Finding {
    fn fault(place: impl fmt::Display, text: impl Into<String>) -> Self {
        Self { place: place.to_string(), text: text.into(), fault: true }
    }

    fn note(place: impl fmt::Display, text: impl Into<String>) -> Self {
        Self { place: place.to_string(), text: text.into(), fault: false }
    }
}

pub(crate) fn tidy(workspace: &Workspace) -> Result<()> {
    let mut findings = edges::check(&workspace.members);
    findings.extend(published::check(&workspace.members));
    findings.extend(engines::check(workspace)?);
    findings.extend(prose::exceptions());
    let mut sources = Vec::new();
    let mut names = kinds::Names::default();
    for path in files_below(&workspace.root)? {
        let Ok(text) = std::fs::read_to_string(&path) else { continue }; // not text: nothing to check
        let place = path.strip_prefix(&workspace.root).unwrap_or(&path).display().to_string();
        findings.extend(words::check(&place, &text));
        findings.extend(prose::check(&place, &text));
        if path.extension().is_some_and(|e| e == "rs") {
            names.read(&place, &text);
            sources.push((place, text));
        }
    }
    findings.extend(stems::check(sources.iter().map(|(place, _)| place.as_str())));
    for (place, text) in &sources {
        findings.extend(misplaced(place));
        findings.extend(builtin::check(place, text));
        findings.extend(heads::check(place, text));
        findings.extend(kinds::check(place, text, &names));
        findings.extend(sizes::check(place, text));
        findings.extend(tasks::check(place, text));
    }
    report(&findings, sources.len())
}

/// The single layout of modules: `foo.rs` is beside the directory of its parts. Test programs use cargo's layout for
/// shared modules.
fn misplaced(place: &str) -> Option<Finding> {
    let parent = place.strip_suffix("/mod.rs").filter(|_| place.contains("/src/"))?;
    Some(Finding::fault(place, format!("a module with parts is called {parent}.rs, beside their directory")))
}

/// The production lines of a file, numbered from 1: without tests, examples, benchmarks, items compiled only for tests,
/// and comment lines.
fn production<'t>(place: &str, text: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
    let of_program = place.starts_with("crates/") && place.contains("/src/") && !place.contains("/tests");
    let mut for_tests = ForTests::default();
    let lines = text.lines().enumerate().filter(move |(_, line)| !for_tests.takes(line));
    lines
        .filter(move |(_, line)| of_program && !line.trim_start().starts_with("//"))
        .map(|(index, line)| (index + 1, line))
}

/// Tracks which lines of a file belong to an item below `#[cfg(test)]`.
#[derive(Default)]
enum ForTests {
    #[default]
    Outside,
    /// After the attribute and before its item. Has the indentation of the attribute.
    Announced(usize),
    /// Inside of an item that ends with a brace at this indentation.
    Inside(usize),
}

impl ForTests {
    fn takes(&mut self, line: &str) -> bool {
        let item = line.trim_start();
        let indent = line.len() - item.len();
        match *self {
            Self::Outside if item.starts_with("#[cfg(test)]") => *self = Self::Announced(indent),
            Self::Outside => return false,
            Self::Announced(_) if item.starts_with("#[") || item.starts_with("//") => {}
            // An item of one line: a module in a file of its own, a field, an import.
            Self::Announced(_) if item.ends_with([';', ',', '}']) => *self = Self::Outside,
            Self::Announced(start) => *self = Self::Inside(start),
            Self::Inside(start) if indent == start && item.starts_with('}') => *self = Self::Outside,
            Self::Inside(_) => {}
        }
        true
    }
}

fn report(findings: &[Finding], files: usize) -> Result<()> {
    for finding in findings {
        println!("{}: {}: {}", if finding.fault { "fault" } else { "note" }, finding.place, finding.text);
    }
    match findings.iter().filter(|f| f.fault).count() {
        0 => {
            println!("tidy: {files} files, no fault");
            Ok(())
        }
        faults => bail!("tidy: {faults} faults in {files} files"),
    }
}

fn files_below(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.iter().any(|s| entry.file_name() == *s) {
                pending.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{misplaced, production};

    #[test]
    fn a_module_stands_beside_the_directory_of_its_parts() {
        assert!(misplaced("crates/a/src/b/mod.rs").is_some());
        assert!(misplaced("crates/a/src/b.rs").is_none());
        assert!(misplaced("crates/a/tests/common/mod.rs").is_none());
    }

    #[test]
    fn tests_and_comments_are_not_part_of_the_program() {
        let text = "//! Head.\nfn a() {}\n    // why\n#[cfg(test)]\nmod tests {}\n";
        let lines: Vec<_> = production("crates/a/src/a.rs", text).collect();
        assert_eq!(lines, [(2, "fn a() {}")]);
        for place in
            ["crates/a/tests/a.rs", "crates/a/src/tests.rs", "crates/a/src/tests/b.rs", "crates/a/examples/b.rs"]
        {
            assert_eq!(production(place, text).count(), 0, "{place}");
        }
    }

    #[test]
    fn test_code_is_not_checked_as_program_code() {
        let text = "mod a;\n#[cfg(test)]\nmod tests;\nfn one() {\n    // Said.\n    two();\n}\nimpl One {\n    #[cfg(test)]\n    #[must_use]\n    \
                    fn three(\n        &self,\n    ) {\n        four();\n    }\n\n    fn five() {}\n}\n#[cfg(test)]\nmod more {\n    use a;\n}\nlast();\n";
        let lines: Vec<usize> = production("crates/a/src/lib.rs", text).map(|(number, _)| number).collect();
        assert_eq!(lines, [1, 4, 6, 7, 8, 16, 17, 18, 23]);
    }
}
