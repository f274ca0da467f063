//! The versions of built-in groups that are served: `--runtime-config`, with the rules of kube-apiserver.
//!
//! A more specific name overrides a less specific one: a resource overrides its version, and a version overrides its
//! maturity. Objects that are stored in a version that is not served stay in the store, and are served again with that
//! version.

use std::collections::BTreeMap;

use keelson_meta::version_names::{Maturity, maturity};
use keelson_resources::{Catalogue, Group, Resource, ServedVersion};

use super::RegistryConfig;

/// The version of the storage states, which are off unless this name is switched on. They are objects of the server
/// itself.
const STORAGE_STATES: &str = "migration.k8s.io/v1alpha1";

/// Returns true for a version that a name covers.
type Covers = fn(&str) -> bool;

/// Names for all versions of one maturity, the least specific first.
const MATURITIES: [(&str, Covers); 4] = [
    ("api/all", |_| true),
    ("api/ga", |version| maturity(version) == Some(Maturity::Stable)),
    ("api/beta", |version| maturity(version) == Some(Maturity::Beta)),
    ("api/alpha", |version| maturity(version) == Some(Maturity::Alpha)),
];

/// Versions that kube-apiserver knows and that have no resources here, or none in an older release. Settings that name
/// them have no effect then.
const NAMED_ALONE: &[(&str, &[&str])] = &[
    ("admission.k8s.io", &["v1", "v1beta1"]),
    ("apiextensions.k8s.io", &["v1beta1"]),
    ("apiregistration.k8s.io", &["v1beta1"]),
    ("apps", &["v1beta1", "v1beta2"]),
    ("authentication.k8s.io", &["v1alpha1", "v1beta1"]),
    ("authorization.k8s.io", &["v1beta1"]),
    ("batch", &["v1beta1"]),
    ("discovery.k8s.io", &["v1beta1"]),
    ("events.k8s.io", &["v1beta1"]),
    ("extensions", &["v1beta1"]),
    ("flowcontrol.apiserver.k8s.io", &["v1beta1", "v1beta2", "v1beta3"]),
    ("imagepolicy.k8s.io", &["v1alpha1"]),
    ("lifecycle.k8s.io", &["v1alpha1"]),
    ("node.k8s.io", &["v1alpha1", "v1beta1"]),
    ("policy", &["v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1alpha1", "v1beta1"]),
    ("scheduling.k8s.io", &["v1alpha2", "v1alpha3", "v1beta1"]),
    ("storage.k8s.io", &["v1alpha1"]),
];

impl RegistryConfig {
    /// Sets the served versions of groups: `batch/v1=false`, or `/v1` for the core group.
    /// `resource.k8s.io/v1beta1/deviceclasses` is one resource of a version, and `api/beta` are all built-in versions
    /// of a maturity. `migration.k8s.io/v1alpha1` are the storage states. The last setting of a name counts.
    /// `catalogue` has the built-in resources.
    ///
    /// Returns the names of known versions that have no resources here.
    ///
    /// # Errors
    /// A message for an unknown group or version, or for a value that is neither true nor false.
    pub fn serve(&mut self, catalogue: &Catalogue, settings: &[impl AsRef<str>]) -> Result<Vec<String>, String> {
        let mut switches = BTreeMap::new();
        for setting in settings {
            let (name, value) = setting.as_ref().split_once('=').unwrap_or((setting.as_ref(), ""));
            let on = switch_value(value).ok_or_else(|| format!("{name}={value} is neither true nor false"))?;
            switches.insert(name, on);
        }
        if switches.len() == 1 && switches.get("api/all") == Some(&false) {
            return Err("with api/all=false alone nothing would be served".to_owned());
        }
        for (name, covers) in MATURITIES {
            let Some(on) = switches.remove(name) else { continue };
            for group in catalogue.groups() {
                for version in group.versions.iter().filter(|version| covers(&version.name)) {
                    self.switch_version(&group.name, &version.name, on);
                }
            }
        }
        if let Some(on) = switches.remove(STORAGE_STATES) {
            self.storage_states = on;
        }
        let mut ignored = Vec::new();
        for (name, on) in switches {
            let mut parts = name.split('/');
            let (Some(group), Some(version), resource, None) = (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return Err(format!(
                    "{name:?} is not of the form group/version or group/version/resource (/v1 is the core group)"
                ));
            };
            if !is_known(catalogue.group(group).map(AsRef::as_ref), group, version)? {
                ignored.push(name.to_owned());
                continue;
            }
            match resource {
                None => self.switch_version(group, version, on),
                Some(plural) if plural.is_empty() || plural.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                    return Err(format!("{name:?} names no resource by its plural name in small letters"));
                }
                Some(plural) => {
                    self.single_resources.insert((group.to_owned(), version.to_owned(), plural.to_owned()), on);
                }
            }
        }
        Ok(ignored)
    }

    /// Returns true if a resource is not served in a version, by the settings or because its feature gate is off.
    pub fn hides(&self, resource: &Resource, version: &ServedVersion) -> bool {
        if resource.gate.as_ref().is_some_and(|gate| !self.gates.is_on(gate)) {
            return true;
        }
        let name = (resource.group.to_string(), version.name.to_string());
        let of_version = self.unserved.contains(&name) || version.hidden && !self.demanded.contains(&name);
        let (group, version) = name;
        self.single_resources.get(&(group, version, resource.plural.to_string())).map_or(of_version, |on| !on)
    }

    fn switch_version(&mut self, group: &str, version: &str, on: bool) {
        let name = (group.to_owned(), version.to_owned());
        if on {
            self.unserved.remove(&name);
            self.demanded.insert(name);
        } else {
            self.demanded.remove(&name);
            self.unserved.insert(name);
        }
    }
}

/// Returns true for a version that has resources here. Returns an error for a version that kube-apiserver does not know
/// either.
fn is_known(built_in: Option<&Group>, group: &str, version: &str) -> Result<bool, String> {
    if built_in.is_some_and(|group| group.serves(version)) {
        return Ok(true);
    }
    let named = NAMED_ALONE.iter().find(|(known, _)| *known == group).map(|(_, versions)| *versions);
    match (built_in, named) {
        (_, Some(versions)) if versions.contains(&version) => Ok(false),
        (None, None) => Err(format!("unknown API group {group:?}")),
        _ => Err(format!("there is no built-in version \"{group}/{version}\"")),
    }
}

/// Parses a switch as kube-apiserver does: an empty value means on.
fn switch_value(value: &str) -> Option<bool> {
    match value {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(settings: &[&str]) -> RegistryConfig {
        let mut config = RegistryConfig::default();
        config.serve(keelson_builtin::catalogue(), settings).unwrap();
        config
    }

    /// The resources that are not served in a version of a group.
    fn hidden(config: &RegistryConfig, group: &str, version: &str) -> Vec<String> {
        let group = keelson_builtin::catalogue().group(group).expect("a built-in group");
        let known = group.known_in(version).filter(|(resource, version)| config.hides(resource, version));
        known.map(|(resource, _)| resource.plural.to_string()).collect()
    }

    fn served(config: &RegistryConfig, group: &str, version: &str) -> Vec<String> {
        let all = keelson_builtin::catalogue().group(group).expect("a built-in group").known_in(version);
        let served = all.filter(|(resource, version)| !config.hides(resource, version));
        served.map(|(resource, _)| resource.plural.to_string()).collect()
    }

    #[test]
    fn stable_and_storage_version_apis_are_served_by_default() {
        let config = RegistryConfig::default();
        for group in keelson_builtin::catalogue().groups() {
            for version in &group.versions {
                let exceptions = ["internal.apiserver.k8s.io", "storagemigration.k8s.io"];
                let expected = maturity(&version.name) == Some(Maturity::Stable) || exceptions.contains(&&*group.name);
                let found = hidden(&config, &group.name, &version.name);
                assert_eq!(found.is_empty(), expected, "{}/{}: {found:?}", group.name, version.name);
            }
        }
    }

    #[test]
    fn versions_are_switched_by_name() {
        let check = |settings: &[&str], group: &str, version: &str, is_served: bool| {
            let found = served(&configured(settings), group, version);
            assert_eq!(!found.is_empty(), is_served, "{settings:?} {group}/{version}: {found:?}");
        };
        check(&["batch/v1=false"], "batch", "v1", false);
        check(&["batch/v1=false", "batch/v1=true"], "batch", "v1", true);
        check(&["batch/v1=false", "batch/v1"], "batch", "v1", true);
        check(&["/v1=false"], "", "v1", false);
        check(&["/v1=F"], "", "v1", false);
        check(&["api/beta"], "resource.k8s.io", "v1beta1", true);
        check(&["api/beta"], "resource.k8s.io", "v1alpha3", false);
        check(&["api/alpha=1"], "resource.k8s.io", "v1alpha3", true);
        check(&["api/all=true"], "coordination.k8s.io", "v1alpha2", true);
        check(&["api/beta", "certificates.k8s.io/v1beta1=false"], "certificates.k8s.io", "v1beta1", false);
        check(&["api/all=false", "apps/v1"], "storagemigration.k8s.io", "v1beta1", false);
        // A more specific name overrides others, in any order.
        let kept = ["batch/v1=true", "api/ga=false", "api/all=true"];
        for (group, version, is_served) in
            [("apps", "v1", false), ("batch", "v1", true), ("storagemigration.k8s.io", "v1beta1", true)]
        {
            check(&kept, group, version, is_served);
        }
    }

    #[test]
    fn single_resources_are_switched_whatever_holds_for_their_version() {
        let config =
            configured(&["batch/v1/jobs=false", "resource.k8s.io/v1beta1/deviceclasses", "api/ga=false", "/v1"]);
        assert!(served(&config, "apps", "v1").is_empty());
        assert_eq!(served(&config, "resource.k8s.io", "v1beta1"), ["deviceclasses"]);
        let config = configured(&["batch/v1/jobs=false", "batch/v1/unheard=false"]);
        assert_eq!(served(&config, "batch", "v1"), ["cronjobs"]);
    }

    #[test]
    fn storage_states_are_served_only_by_their_own_setting() {
        for (settings, on) in
            [(&["migration.k8s.io/v1alpha1"][..], true), (&["api/all", "api/alpha"], false), (&[], false)]
        {
            assert_eq!(configured(settings).storage_states, on, "{settings:?}");
        }
    }

    #[test]
    fn unsupported_upstream_versions_are_named_and_ignored() {
        let mut config = RegistryConfig::default();
        let settings =
            ["extensions/v1beta1=true", "scheduling.k8s.io/v1alpha2", "apps/v1=true", "batch/v1beta1/cronjobs"];
        let ignored = config.serve(keelson_builtin::catalogue(), &settings).unwrap();
        assert_eq!(ignored, ["batch/v1beta1/cronjobs", "extensions/v1beta1", "scheduling.k8s.io/v1alpha2"]);
    }

    #[test]
    fn unknown_versions_are_refused() {
        for (settings, why) in [
            (&["migration.k8s.io/v1beta1"][..], "unknown API group \"migration.k8s.io\""),
            (&["api/all=false"], "nothing would be served"),
            (&["v1=false"], "\"v1\" is not of the form group/version"),
            (&["batch/v1/jobs/status=false"], "not of the form"),
            (&["batch/v1/Jobs=false"], "in small letters"),
            (&["api/v1=false"], "unknown API group \"api\""),
            (&["nothing/v1=false"], "unknown API group"),
            (&["batch/v9=false"], "there is no built-in version \"batch/v9\""),
            (&["batch/v1=no"], "neither true nor false"),
        ] {
            let outcome = RegistryConfig::default().serve(keelson_builtin::catalogue(), settings);
            assert!(outcome.as_ref().is_err_and(|error| error.contains(why)), "{settings:?}: {outcome:?}");
        }
    }

    #[test]
    fn maturity_follows_from_the_version_name() {
        let covered = |version: &str| -> Vec<&str> {
            MATURITIES.iter().filter(|(_, covers)| covers(version)).map(|(name, _)| *name).collect()
        };
        assert_eq!(covered("v1"), ["api/all", "api/ga"]);
        assert_eq!(covered("v2beta10"), ["api/all", "api/beta"]);
        assert_eq!(covered("v1alpha1"), ["api/all", "api/alpha"]);
        for other in ["v", "v1beta", "beta1", "v1rc1", "v1beta1x"] {
            assert_eq!(covered(other), ["api/all"], "{other}");
        }
    }
}
