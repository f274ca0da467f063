//! Writes the feature gates of a release (`crates/meta/src/features.txt`).
//!
//! The repository lists the gates with their stages in a generated file, and the gates that each gate needs in Go. The
//! gates of clients, which kube-apiserver accepts too, are in the part `client-go`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The list of gates, below the repository.
const LIST: &str = "test/compatibility_lifecycle/reference/versioned_feature_list.yaml";
/// The prerequisites of gates, below the repository.
const NEEDS: &str = "pkg/features/kube_features.go";
/// The gates of clients, below the parts.
const CLIENTS: &str = "client-go/features/known_features.go";

/// A gate: the words of its entries, and the gates that it needs.
#[derive(Default)]
struct Gate {
    entries: Vec<String>,
    needs: Vec<String>,
}

/// The text of the file, or `None` if the sources are published parts alone, which do not list the gates.
///
/// # Errors
/// A source cannot be read.
pub(crate) fn write(from: &Path, parts: &Path, release: &str) -> Result<Option<String>> {
    let (list, clients) = (from.join(LIST), parts.join(CLIENTS));
    if !list.is_file() || !clients.is_file() {
        return Ok(None);
    }
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let mut gates = listed(&read(&list)?);
    gates.extend(declared(&read(&clients)?));
    add_needs(&read(&from.join(NEEDS))?, &mut gates);
    Ok(Some(text(&gates, release)))
}

fn text(gates: &BTreeMap<String, Gate>, release: &str) -> String {
    let mut text = format!(
        "# The feature gates of Kubernetes {release} by version, written by `cargo xtask kubernetes`.\n\
         # +: on by default, !: locked to the default, needs: gates that must be on too.\n"
    );
    for (name, Gate { entries, needs }) in gates {
        let _ = write!(text, "{name} {}", entries.join(" "));
        if !needs.is_empty() {
            let _ = write!(text, " needs {}", needs.join(" "));
        }
        text.push('\n');
    }
    text
}

/// The word for an entry, such as `1.37=ga+!`.
fn word(version: &str, stage: &str, is_on: bool, is_locked: bool) -> String {
    format!("{version}={}{}{}", stage.to_lowercase(), if is_on { "+" } else { "" }, if is_locked { "!" } else { "" })
}

impl Gate {
    /// Adds an entry. A second one of the same version is for servers that need not run beside older ones, and is left
    /// out.
    fn add(&mut self, version: &str, word: String) {
        if !self.entries.iter().any(|known| known.split('=').next() == Some(version)) {
            self.entries.push(word);
        }
    }
}

/// The gates of the generated list.
fn listed(yaml: &str) -> BTreeMap<String, Gate> {
    let mut gates = BTreeMap::<String, Gate>::new();
    let (mut name, mut is_on, mut is_locked, mut stage) = (String::new(), false, false, String::new());
    for line in yaml.lines() {
        let Some((key, value)) = line.trim_start_matches([' ', '-']).split_once(": ") else { continue };
        match key {
            "name" => value.clone_into(&mut name),
            "default" => is_on = value == "true",
            "lockToDefault" => is_locked = value == "true",
            "preRelease" => value.clone_into(&mut stage),
            "version" => {
                let version = value.trim_matches('"');
                gates.entry(name.clone()).or_default().add(version, word(version, &stage, is_on, is_locked));
            }
            _ => {}
        }
    }
    gates
}

/// The gates that Go code declares, with an entry on each line.
fn declared(go: &str) -> BTreeMap<String, Gate> {
    let mut gates = BTreeMap::<String, Gate>::new();
    let mut name = String::new();
    for line in go.lines().map(str::trim) {
        if let Some(gate) = line.strip_suffix(": {") {
            gate.clone_into(&mut name);
        } else if let Some(rest) = line.strip_prefix("{Version: version.MustParse(\"") {
            let (version, rest) = rest.split_once('"').unwrap_or((rest, ""));
            let stage = rest.split_once("PreRelease: ").map_or("", |(_, stage)| stage);
            let stage = stage.trim_start_matches("featuregate.").split([',', '}']).next().unwrap_or_default();
            let is_on = rest.contains("Default: true");
            let is_locked = rest.contains("LockToDefault: true");
            gates.entry(name.clone()).or_default().add(version, word(version, stage, is_on, is_locked));
        }
    }
    gates
}

/// Adds the gates that each gate needs.
fn add_needs(go: &str, gates: &mut BTreeMap<String, Gate>) {
    let mut names = BTreeMap::new();
    let (mut inside, mut done) = (false, false);
    for line in go.lines().map(str::trim) {
        if let Some((constant, value)) = line.split_once(" featuregate.Feature = ") {
            names.insert(constant.trim().to_owned(), value.trim_matches('"').to_owned());
        }
        inside |= line.starts_with("var defaultKubernetesFeatureGateDependencies");
        done |= inside && line == "}";
        let needs = if inside && !done { line.split_once(": ") } else { None };
        let Some((gate, needs)) = needs.and_then(|(gate, rest)| Some((gate, rest.trim().strip_prefix('{')?))) else {
            continue;
        };
        let bare = |word: &str| {
            let word = word.trim().trim_start_matches("featuregate.Feature(").trim_end_matches(')');
            let constant = word.rsplit('.').next().unwrap_or(word);
            names.get(constant).cloned().unwrap_or_else(|| constant.to_owned())
        };
        let needs = needs.split('}').next().unwrap_or_default();
        let needs = needs.split(',').filter(|word| !word.trim().is_empty()).map(bare).collect();
        if let Some(gate) = gates.get_mut(&bare(gate)) {
            gate.needs = needs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_with_stages_locks_and_needs() {
        let yaml = "- name: Inner\n  versionedSpecs:\n  - default: false\n    lockToDefault: false\n    preRelease: Alpha\n    \
                    version: \"1.35\"\n  - default: true\n    lockToDefault: true\n    preRelease: GA\n    version: \"1.37\"\n\
                    - name: Outer\n  versionedSpecs:\n  - default: false\n    lockToDefault: false\n    preRelease: Beta\n    \
                    version: \"1.37\"\n  - default: true\n    lockToDefault: false\n    preRelease: Beta\n    version: \"1.37\"\n";
        let clients = "var gates = map[Feature]VersionedSpecs{\n\tClient: {\n\t\t{Version: version.MustParse(\"1.36\"), \
                       Default: true, PreRelease: Beta},\n\t},\n}\n";
        let needs = "const (\n\tRenamed featuregate.Feature = \"Outer\"\n)\nvar defaultKubernetesFeatureGateDependencies = \
                     map[x][]x{\n\tInner: {},\n\tRenamed: {Inner, featuregate.Feature(clientfeatures.Client)}, // why\n}\n";
        let mut gates = listed(yaml);
        gates.extend(declared(clients));
        add_needs(needs, &mut gates);
        let text = text(&gates, "1.37");
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["Client 1.36=beta+", "Inner 1.35=alpha 1.37=ga+!", "Outer 1.37=beta needs Inner Client"]);
    }
}
