//! The configuration of pod security: defaults for namespaces without labels, and exemptions.
//!
//! It is upstream's `PodSecurityConfiguration`, a part of the file of `--admission-control-config-file`. An invalid
//! configuration keeps the server from starting.

use keelson_meta::field_error::{FieldError, join};
use keelson_meta::json::{Map, Value};
use keelson_meta::names::{dns_label_faults, dns_subdomain_faults};

use super::levels::{Level, Policy, Standard, Version};

const GROUP: &str = "pod-security.admission.config.k8s.io/";
const KIND: &str = "PodSecurityConfiguration";

/// The settings of pod security.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSecurityConfiguration {
    /// The policy for namespaces without labels.
    pub(super) defaults: Policy,
    /// The exemptions.
    pub(super) exemptions: Exemptions,
}

/// The users, runtime classes and namespaces that are exempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exemptions {
    usernames: Vec<String>,
    runtime_classes: Vec<String>,
    namespaces: Vec<String>,
}

impl Exemptions {
    /// Returns true if writes of this user are exempt.
    pub(super) fn has_user(&self, name: &str) -> bool {
        has(&self.usernames, name)
    }

    /// Returns true if pods of this runtime class are exempt.
    pub(super) fn has_runtime_class(&self, name: &str) -> bool {
        has(&self.runtime_classes, name)
    }

    /// Returns true if this namespace is exempt.
    pub(super) fn has_namespace(&self, name: &str) -> bool {
        has(&self.namespaces, name)
    }
}

fn has(exempt: &[String], name: &str) -> bool {
    !name.is_empty() && exempt.iter().any(|exempt| exempt == name)
}

impl PodSecurityConfiguration {
    /// Parses the configuration.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) fn read(stated: &Value) -> Result<Self, String> {
        let Value::Object(stated) = stated else { return Err(format!("a {KIND} is an object")) };
        let text = |field: &str| stated.get(field).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion").strip_prefix(GROUP);
        if text("kind") != KIND || !matches!(version, Some("v1" | "v1beta1" | "v1alpha1")) {
            return Err(format!("it is not a {KIND} of {GROUP}v1: {} {}", text("apiVersion"), text("kind")));
        }
        known_fields(stated, "", &["apiVersion", "kind", "defaults", "exemptions"])?;
        let mut faults = Vec::new();
        let defaults = part(stated, "defaults")?;
        let exemptions = part(stated, "exemptions")?;
        let modes = ["enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version"];
        known_fields(&defaults, "defaults.", &modes)?;
        known_fields(&exemptions, "exemptions.", &["usernames", "runtimeClasses", "namespaces"])?;
        let policy = Policy {
            enforce: standard(&defaults, "enforce", &mut faults),
            audit: standard(&defaults, "audit", &mut faults),
            warn: standard(&defaults, "warn", &mut faults),
        };
        let exemptions = Exemptions {
            namespaces: names(&exemptions, "namespaces", dns_label_faults, &mut faults)?,
            runtime_classes: names(&exemptions, "runtimeClasses", dns_subdomain_faults, &mut faults)?,
            usernames: names(&exemptions, "usernames", no_name, &mut faults)?,
        };
        if faults.is_empty() { Ok(Self { defaults: policy, exemptions }) } else { Err(join(&faults)) }
    }
}

fn part(of: &Map, field: &str) -> Result<Map, String> {
    match of.get(field) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(part)) => Ok(part.clone()),
        Some(_) => Err(format!("{field} is not an object")),
    }
}

fn known_fields(map: &Map, place: &str, known: &[&str]) -> Result<(), String> {
    match map.keys().find(|key| !known.contains(key)) {
        Some(unknown) => Err(format!("unknown field \"{place}{unknown}\"")),
        None => Ok(()),
    }
}

/// The standard of a mode. The level defaults to privileged, the version to the latest.
fn standard(defaults: &Map, mode: &str, faults: &mut Vec<FieldError>) -> Standard {
    let dated = format!("{mode}-version");
    let text = |field: &str| defaults.get(field).map(|stated| stated.as_str().unwrap_or_default());
    let (level, version) = (text(mode).unwrap_or("privileged"), text(&dated).unwrap_or("latest"));
    let standard = (Level::parse(level), Version::parse(version));
    if standard.0.is_none() {
        let known = "must be one of privileged, baseline, restricted";
        faults.push(FieldError::invalid(format!("defaults.{mode}"), level, known));
    }
    if standard.1.is_none() {
        faults.push(FieldError::invalid(format!("defaults.{dated}"), version, "must be \"latest\" or \"v1.x\""));
    }
    Standard { level: standard.0.unwrap_or_default(), version: standard.1.unwrap_or_default() }
}

fn no_name(name: &str) -> Vec<String> {
    if name.is_empty() { vec!["must not be empty".to_owned()] } else { Vec::new() }
}

fn names(
    exemptions: &Map,
    field: &str,
    wrong: impl Fn(&str) -> Vec<String>,
    faults: &mut Vec<FieldError>,
) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    let stated = match exemptions.get(field) {
        None | Some(Value::Null) => return Ok(names),
        Some(Value::Array(stated)) => stated,
        Some(_) => return Err(format!("exemptions.{field} is not a list")),
    };
    for (index, stated) in stated.iter().enumerate() {
        let (place, name) = (format!("exemptions.{field}[{index}]"), stated.as_str().unwrap_or_default());
        let wrong = wrong(name);
        if !wrong.is_empty() {
            faults.push(FieldError::invalid(place, name, wrong.join(", ")));
        } else if names.iter().any(|known| known == name) {
            faults.push(FieldError::duplicate(place, name));
        } else {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::json;

    #[test]
    fn a_configuration_has_defaults_and_exemptions() {
        let stated = json!({
            "apiVersion": "pod-security.admission.config.k8s.io/v1",
            "kind": "PodSecurityConfiguration",
            "defaults": { "enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted" },
            "exemptions": { "usernames": ["ann"], "runtimeClasses": ["r"], "namespaces": ["kube-system"] },
        });
        let read = PodSecurityConfiguration::read(&stated).unwrap();
        let Policy { enforce, audit, warn } = read.defaults;
        assert_eq!(format!("{enforce} {audit} {warn}"), "baseline:v1.30 privileged:latest restricted:latest");
        let exemptions = read.exemptions;
        assert!(exemptions.has_user("ann") && exemptions.has_runtime_class("r"));
        assert!(
            exemptions.has_namespace("kube-system") && !exemptions.has_namespace("") && !exemptions.has_user("bob")
        );
    }

    #[test]
    fn a_wrong_configuration_is_refused() {
        let check = |wrong: Value, expected: &str| {
            let mut stated = json!({
                "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
            });
            for (field, value) in wrong.as_object().unwrap().iter() {
                stated[field] = value.clone();
            }
            let error = PodSecurityConfiguration::read(&stated).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(json!({ "kind": "Other" }), "is not a PodSecurityConfiguration");
        check(json!({ "defaults": { "enforce": "high" } }), "defaults.enforce: Invalid value: \"high\"");
        check(json!({ "defaults": { "warn-version": "1" } }), "defaults.warn-version: Invalid value: \"1\"");
        check(json!({ "default": {} }), "unknown field \"default\"");
        check(
            json!({ "exemptions": { "namespaces": ["a", "a"] } }),
            "exemptions.namespaces[1]: Duplicate value: \"a\"",
        );
        check(json!({ "exemptions": { "usernames": [""] } }), "exemptions.usernames[0]");
        check(json!({ "exemptions": { "users": [] } }), "unknown field \"exemptions.users\"");
    }
}
