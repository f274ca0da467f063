//! Parses the part of `deny.toml` that the check uses: `licenses.allow` and the names in `bans.deny`.
//!
//! The parser understands only the file's current shape (an array of strings, or of one-line tables), so that two lists
//! need no TOML parser. Anything else is an error, never an empty list.

use anyhow::{Context as _, Result, bail};

/// The accepted licences and banned crates.
pub(super) struct Config {
    pub(super) licenses: Vec<String>,
    pub(super) banned: Vec<String>,
}

impl Config {
    pub(super) fn read(text: &str) -> Result<Self> {
        Ok(Self { licenses: strings(text, "licenses", "allow")?, banned: strings(text, "bans", "deny")? })
    }
}

/// Every quoted string in the array `key` of the section.
fn strings(text: &str, section: &str, key: &str) -> Result<Vec<String>> {
    let mut inside = false;
    let mut array: Option<String> = None;
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        match &mut array {
            None if line.starts_with('[') => inside = line == format!("[{section}]"),
            None if inside => {
                if let Some(value) = line.strip_prefix(key).and_then(|rest| rest.trim_start().strip_prefix('=')) {
                    array = Some(value.to_owned());
                }
            }
            None => {}
            Some(value) => value.push_str(line),
        }
        if array.as_deref().is_some_and(|value| value.ends_with(']')) {
            break;
        }
    }
    let array = array.with_context(|| format!("deny.toml has no {key} in [{section}]"))?;
    let found: Vec<String> = array.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    if !array.ends_with(']') || found.is_empty() {
        bail!("deny.toml: {key} in [{section}] is not an array of strings");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{Config, strings};

    #[test]
    fn lists_are_read_across_lines_and_comments() {
        let text = "[bans]\ndeny = [\n  { crate = \"a\" }, # why\n  { crate = \"b\" },\n]\n[licenses]\nallow = [\"MIT\", \"ISC\"]\n";
        let config = Config::read(text).unwrap();
        assert_eq!(config.licenses, ["MIT", "ISC"]);
        assert_eq!(config.banned, ["a", "b"]);
    }

    #[test]
    fn a_missing_or_empty_list_is_an_error() {
        for text in ["", "[licenses]\nallow = []", "[other]\nallow = [\"MIT\"]", "[licenses]\nallow = [\n\"MIT\""] {
            assert!(strings(text, "licenses", "allow").is_err(), "{text:?}");
        }
    }
}
