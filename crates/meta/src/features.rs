//! The feature gates of Kubernetes, with their stage and default in each release.
//!
//! The data (`features.txt`) is written by `cargo xtask kubernetes`. A gate has the properties of the newest entry
//! that is not newer than the release. Gates of features that this server lacks are accepted as by kube-apiserver,
//! and have no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use crate::release::Release;

/// The stage of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Experimental.
    Alpha,
    /// Complete and tested.
    Beta,
    /// Stable.
    Stable,
    /// Will be removed.
    Deprecated,
}

impl Stage {
    /// The name in metrics. As in kube-apiserver, that of a stable feature is empty.
    pub fn label(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// A gate from a release on.
#[derive(Clone, Copy, Debug)]
struct Entry {
    since: Release,
    stage: Stage,
    default: bool,
    locked: bool,
}

/// A gate in all releases.
#[derive(Debug)]
struct Gate {
    name: &'static str,
    /// From old to new.
    entries: Vec<Entry>,
    /// The gates that must be on too.
    needs: Vec<&'static str>,
}

/// The names that stand for all gates of a stage.
const GROUPS: [(&str, Stage); 2] = [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

/// Gates whose feature has another default here than in kube-apiserver.
const OWN_DEFAULTS: [(&str, bool); 1] = [("StorageVersionAPI", true)];

static GATES: LazyLock<BTreeMap<&'static str, Gate>> =
    LazyLock::new(|| include_str!("features.txt").lines().filter_map(gate).map(|gate| (gate.name, gate)).collect());

/// Parses a line such as `DRADeviceTaintRules 1.35=alpha 1.37=ga+ needs DRADeviceTaints`.
fn gate(line: &'static str) -> Option<Gate> {
    let mut words = line.split_whitespace();
    let name = words.next().filter(|name| !name.starts_with('#'))?;
    let entries = words.by_ref().take_while(|word| *word != "needs").filter_map(entry).collect();
    Some(Gate { name, entries, needs: words.collect() })
}

/// Parses `1.37=ga+!`: the release, the stage, `+` for a default of true, `!` for a locked default.
fn entry(word: &str) -> Option<Entry> {
    let (since, rest) = word.split_once('=')?;
    let stage = match rest.trim_end_matches(['+', '!']) {
        "alpha" => Stage::Alpha,
        "beta" => Stage::Beta,
        "ga" => Stage::Stable,
        "deprecated" => Stage::Deprecated,
        _ => return None,
    };
    Some(Entry { since: since.parse().ok()?, stage, default: rest.contains('+'), locked: rest.contains('!') })
}

impl Gate {
    /// The properties in a release. `None` if the feature is newer.
    fn at(&self, release: Release) -> Option<Entry> {
        self.entries.iter().rfind(|entry| entry.since <= release).copied()
    }
}

/// A setting of gates that kube-apiserver refuses. The texts are its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    /// The setting has no value.
    #[error("missing bool value for {0}")]
    NoValue(String),
    /// The value is neither true nor false.
    #[error("invalid value of {0}={1}, err: strconv.ParseBool: parsing {1:?}: invalid syntax")]
    Value(String, String),
    /// The setting names another component.
    #[error("component not registered: {0}")]
    Component(String),
    /// No gate has this name.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// The value of the gate cannot be changed.
    #[error("cannot set feature gate {name} to {value}, feature is locked to {locked}")]
    Locked {
        /// The gate.
        name: String,
        /// The requested value.
        value: bool,
        /// The only value.
        locked: bool,
    },
    /// The feature is newer than the release.
    #[error(
        "cannot set feature gate {name} to {value}, feature is PreAlpha at emulated version {release}, min compatibility version \
         1.{}",
        release.min_compatibility_minor()
    )]
    Newer {
        /// The gate.
        name: String,
        /// The requested value.
        value: bool,
        /// The release of the server.
        release: Release,
    },
    /// The gate needs others that are off.
    #[error("{name} is enabled, but depends on features that are disabled: [{}]", needs.join(" "))]
    Needs {
        /// The gate.
        name: &'static str,
        /// The gates that are off.
        needs: Vec<&'static str>,
    },
}

/// The feature gates of a server: those of its release, and the settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct FeatureGates {
    release: Release,
    set: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// The gates of a release with their defaults.
    pub fn for_release(release: Release) -> Self {
        Self { release, set: BTreeMap::new() }
    }

    /// The release of the server.
    pub fn release(&self) -> Release {
        self.release
    }

    /// Applies settings such as `("ContainerStopSignals", true)`. Of several settings of a gate the last one counts.
    /// `AllAlpha` and `AllBeta` set the gates of a stage that have no setting of their own.
    ///
    /// Returns warnings about gates that will be removed.
    ///
    /// # Errors
    /// kube-apiserver refuses the settings too.
    pub fn set(&mut self, settings: &[(String, bool)]) -> Result<Vec<String>, FeatureError> {
        let settings: BTreeMap<&str, bool> = settings.iter().map(|(name, on)| (name.as_str(), *on)).collect();
        let mut warnings = Vec::new();
        let mut groups = Vec::new();
        for (name, on) in settings {
            if let Some((_, stage)) = GROUPS.iter().find(|(group, _)| *group == name) {
                groups.push((*stage, on));
                continue;
            }
            let gate = GATES.get(name).ok_or_else(|| FeatureError::Unknown(name.to_owned()))?;
            let newer = || FeatureError::Newer { name: name.to_owned(), value: on, release: self.release };
            let entry = gate.at(self.release).ok_or_else(newer)?;
            if entry.locked && entry.default != on {
                return Err(FeatureError::Locked { name: name.to_owned(), value: on, locked: entry.default });
            }
            if let Stage::Stable | Stage::Deprecated = entry.stage {
                let stage = if entry.stage == Stage::Stable { "GA" } else { "deprecated" };
                warnings
                    .push(format!("setting {stage} feature gate {name}={on}. It will be removed in a future release"));
            }
            self.set.insert(gate.name, on);
        }
        for (stage, on) in groups {
            for gate in GATES.values().filter(|gate| gate.at(self.release).is_some_and(|entry| entry.stage == stage)) {
                self.set.entry(gate.name).or_insert(on);
            }
        }
        self.check_needs()?;
        Ok(warnings)
    }

    fn check_needs(&self) -> Result<(), FeatureError> {
        // A default of this server alone is no wish of the operator.
        let is_own =
            |gate: &Gate| OWN_DEFAULTS.iter().any(|(own, _)| *own == gate.name) && !self.set.contains_key(gate.name);
        for gate in GATES.values().filter(|gate| self.is_on(gate.name) && !is_own(gate)) {
            let needs: Vec<&str> = gate.needs.iter().copied().filter(|name| !self.is_on(name)).collect();
            if !needs.is_empty() {
                return Err(FeatureError::Needs { name: gate.name, needs });
            }
        }
        Ok(())
    }

    /// Returns true if the feature is on. A feature that is newer than the release is off.
    pub fn is_on(&self, name: &str) -> bool {
        let own = || OWN_DEFAULTS.iter().find(|(own, _)| *own == name).map(|(_, on)| *on);
        let default = || own().or_else(|| Some(GATES.get(name)?.at(self.release)?.default));
        self.set.get(name).copied().or_else(default).unwrap_or(false)
    }

    /// Name, stage and value of all gates of the release, by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, Stage, bool)> {
        let known = GATES.values().filter_map(|gate| Some((gate.name, gate.at(self.release)?.stage)));
        known.map(|(name, stage)| (name, stage, self.is_on(name)))
    }

    /// The settings that differ from the defaults of the release, by name.
    pub fn changed(&self) -> BTreeSet<(&'static str, bool)> {
        let defaults = Self::for_release(self.release);
        self.set.iter().map(|(name, on)| (*name, *on)).filter(|(name, on)| defaults.is_on(name) != *on).collect()
    }
}

/// Parses one setting of `--feature-gates`: `Gate=true` or `kube:Gate=true`.
///
/// # Errors
/// The setting has no value or another form, or names another component.
pub fn setting(text: &str) -> Result<(String, bool), FeatureError> {
    let (component, setting) = text.split_once(':').unwrap_or(("kube", text));
    if component.trim() != "kube" {
        return Err(FeatureError::Component(component.trim().to_owned()));
    }
    let (name, value) = setting.split_once('=').ok_or_else(|| FeatureError::NoValue(setting.trim().to_owned()))?;
    let (name, value) = (name.trim(), value.trim());
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok((name.to_owned(), true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok((name.to_owned(), false)),
        _ => Err(FeatureError::Value(name.to_owned(), value.to_owned())),
    }
}

/// Formats the changed gates as the flag accepts them.
impl fmt::Display for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, on)) in self.changed().into_iter().enumerate() {
            write!(f, "{}{name}={on}", if place > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(release: Release, settings: &[&str]) -> Result<FeatureGates, String> {
        let mut gates = FeatureGates::for_release(release);
        let settings: Result<Vec<_>, _> = settings.iter().map(|text| setting(text)).collect();
        gates.set(&settings.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        Ok(gates)
    }

    #[test]
    fn every_data_line_is_a_gate_with_known_dependencies() {
        let lines = include_str!("features.txt").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(GATES.len(), lines.clone().count());
        for line in lines {
            let gate = gate(line).unwrap();
            let entries = line.split_whitespace().filter(|word| word.contains('=')).count();
            assert!(entries > 0 && gate.entries.len() == entries, "{line}");
            assert!(gate.entries.is_sorted_by_key(|entry| entry.since), "{line}");
            gate.needs.iter().for_each(|name| assert!(GATES.contains_key(name), "{line}"));
        }
    }

    #[test]
    fn the_defaults_of_each_release_hold_together() {
        for release in [Release::V1_36, Release::V1_37] {
            assert_eq!(FeatureGates::for_release(release).check_needs(), Ok(()), "{release}");
        }
    }

    #[test]
    fn a_gate_has_the_default_of_its_release() {
        let check = |name: &str, expected: [bool; 2]| {
            let found = [Release::V1_36, Release::V1_37].map(|release| FeatureGates::for_release(release).is_on(name));
            assert_eq!(found, expected, "{name}");
        };
        check("ClusterTrustBundle", [false, true]);
        check("MaxUnavailableStatefulSet", [false, true]);
        check("ContainerStopSignals", [false, false]);
        check("WatchList", [true, true]);
        check("HPAGeneration", [false, true]);
        check("DRAFractionalCapacityRange", [false, false]);
        check("StorageVersionAPI", [true, true]);
        check("Nothing", [false, false]);
    }

    #[test]
    fn wrong_settings_get_the_texts_of_kube_apiserver() {
        let check = |release, settings: &[&str], expected: &str| {
            assert_eq!(with(release, settings).unwrap_err(), expected, "{settings:?}");
        };
        let new = Release::V1_37;
        check(new, &["Nope=true"], "unrecognized feature gate: Nope");
        check(new, &["wardle:A=true"], "component not registered: wardle");
        check(new, &["HPAScaleToZero"], "missing bool value for HPAScaleToZero");
        check(
            new,
            &["HPAScaleToZero=on"],
            "invalid value of HPAScaleToZero=on, err: strconv.ParseBool: parsing \"on\": invalid syntax",
        );
        check(
            new,
            &["HostnameOverride=false"],
            "cannot set feature gate HostnameOverride to false, feature is locked to true",
        );
        check(
            Release::V1_36,
            &["EmptyDirVolumeMode=true"],
            "cannot set feature gate EmptyDirVolumeMode to true, feature is PreAlpha at emulated version 1.36, min \
             compatibility version 1.35",
        );
        check(
            new,
            &["WorkloadWithJob=true"],
            "WorkloadWithJob is enabled, but depends on features that are disabled: [GenericWorkload]",
        );
    }

    #[test]
    fn stages_are_set_together_and_single_gates_override_them() {
        let gates = with(Release::V1_37, &["AllAlpha=true", "AllBeta=true", "EmptyDirVolumeMode=false"]).unwrap();
        assert!(gates.is_on("ContainerStopSignals") && gates.is_on("GenericWorkload"));
        assert!(!gates.is_on("EmptyDirVolumeMode"));
        assert!(gates.is_on("HostnameOverride"));
    }

    #[test]
    fn a_default_of_this_server_needs_no_other_gate() {
        assert!(with(Release::V1_37, &["AllBeta=false"]).is_ok());
        let refused = with(Release::V1_37, &["AllBeta=false", "StorageVersionAPI=true"]).unwrap_err();
        assert!(refused.contains("[APIServerIdentity]"), "{refused}");
    }

    #[test]
    fn settings_that_change_nothing_are_not_shown() {
        let gates = with(Release::V1_37, &["kube:HPAScaleToZero=false", "WatchList=true", "HostnameOverride=true"]);
        assert_eq!(gates.unwrap().to_string(), "HPAScaleToZero=false");
    }

    #[test]
    fn deprecated_and_stable_gates_get_a_warning() {
        let mut gates = FeatureGates::for_release(Release::V1_36);
        let warnings = gates.set(&[("KMSv1".to_owned(), true), ("AllAlpha".to_owned(), false)]).unwrap();
        assert_eq!(warnings, ["setting deprecated feature gate KMSv1=true. It will be removed in a future release"]);
        assert!(gates.is_on("KMSv1"));
    }
}
