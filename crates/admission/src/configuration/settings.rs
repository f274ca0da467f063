//! Parses the settings of single plugins, in the versions that kube-apiserver reads.
//!
//! This file does not read files. Unknown fields are errors, so that settings of a newer version are never ignored.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keelson_meta::field_error::FieldError;
use keelson_meta::go_format::quote;
use keelson_meta::json::{Map, Value};
use keelson_meta::names::{label_key_faults, label_value_faults};
use keelson_registry::{LimitedResource, QuotaScope};

use crate::builtin::{
    DEFAULT_KEYS, EventLimit, EventLimitKind, ImagePolicy, NodeSelectors, Toleration, TolerationSettings, read_all,
};

/// The plugins that have settings.
pub(super) const HAVE_SETTINGS: [&str; 10] = [
    "EventRateLimit",
    "ImagePolicyWebhook",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "PodNodeSelector",
    "PodSecurity",
    "PodTolerationRestriction",
    "ResourceQuota",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

const CONFIG_V1: &str = "apiserver.config.k8s.io/v1";
/// The field with the directory of manifests.
const MANIFESTS: &str = "staticManifestsDir";

/// The text of a field; empty if the field is absent or not a text.
pub(super) fn text<'m>(map: &'m Map, field: &str) -> &'m str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Refuses all fields except these. `place` is the path of the map in messages.
pub(super) fn known_fields(map: &Map, place: &str, known: &[&str]) -> Result<(), String> {
    match map.keys().find(|key| !known.contains(key)) {
        Some(unknown) => Err(format!("unknown field \"{place}{unknown}\"")),
        None => Ok(()),
    }
}

/// The settings as an object, after checks of the apiVersion, kind and known fields.
fn of_kind<'v>(stated: &'v Value, kinds: &[(&str, &str)], known: &[&str]) -> Result<&'v Map, String> {
    let map = stated.as_object().ok_or("the settings are no object")?;
    let (version, kind) = (text(map, "apiVersion"), text(map, "kind"));
    if kind.is_empty() {
        return Err("Object 'Kind' is missing".to_owned());
    }
    if !kinds.contains(&(version, kind)) {
        return Err(format!("no kind {} is registered for version {}", quote(kind), quote(version)));
    }
    known_fields(map, "", &[&["apiVersion", "kind"], known].concat())?;
    Ok(map)
}

/// The kubeconfig with the credentials for webhooks, and the directory of their manifests.
pub(super) fn webhooks(stated: &Value) -> Result<(Option<PathBuf>, Option<PathBuf>), String> {
    const V1: (&str, &str) = (CONFIG_V1, "WebhookAdmissionConfiguration");
    const ALPHA: (&str, &str) = ("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission");
    let of_v1 = of_kind(stated, &[V1], &["kubeConfigFile", "staticManifestsDir"]);
    let map = of_v1.or_else(|error| match stated.get("kind").and_then(Value::as_str) {
        Some("WebhookAdmission") => of_kind(stated, &[ALPHA], &["kubeConfigFile"]),
        _ => Err(error),
    })?;
    let path = |field: &str| {
        let file = text(map, field);
        match PathBuf::from(file) {
            path if path.is_absolute() => Ok(Some(path)),
            _ => Err(FieldError::invalid(field, file, "must be an absolute file path").to_string()),
        }
    };
    let directory = if text(map, MANIFESTS).is_empty() { None } else { path(MANIFESTS)? };
    // Without manifests the file is all that there is to set.
    let has_file = directory.is_none() || !text(map, "kubeConfigFile").is_empty();
    Ok((if has_file { path("kubeConfigFile")? } else { None }, directory))
}

/// The directory with the manifests of policies.
pub(super) fn policies(stated: &Value, kind: &str) -> Result<Option<PathBuf>, String> {
    let map = of_kind(stated, &[(CONFIG_V1, kind)], &[MANIFESTS])?;
    match text(map, MANIFESTS) {
        "" => Ok(None),
        directory if Path::new(directory).is_absolute() => Ok(Some(PathBuf::from(directory))),
        other => Err(FieldError::invalid(MANIFESTS, other, "must be an absolute file path").to_string()),
    }
}

/// The resources that can only be used under a quota.
pub(super) fn limited_resources(stated: &Value) -> Result<Vec<LimitedResource>, String> {
    let kinds = [
        (CONFIG_V1, "ResourceQuotaConfiguration"),
        ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
        ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
    ];
    let map = of_kind(stated, &kinds, &["limitedResources"])?;
    let limited = objects(map, "", "limitedResources")?;
    limited.into_iter().map(|(place, limited)| limited_resource(&place, limited)).collect()
}

fn limited_resource(place: &str, limited: &Map) -> Result<LimitedResource, String> {
    known_fields(limited, &format!("{place}."), &["apiGroup", "resource", "matchContains", "matchScopes"])?;
    let plural = text(limited, "resource");
    if plural.is_empty() {
        return Err(FieldError::required(format!("{place}.resource"), "").to_string());
    }
    let scopes = objects(limited, &format!("{place}."), "matchScopes")?;
    let scopes = scopes.into_iter().map(|(place, scope)| {
        known_fields(scope, &format!("{place}."), &["scopeName", "operator", "values"])?;
        Ok(QuotaScope {
            name: text(scope, "scopeName").to_owned(),
            operator: text(scope, "operator").to_owned(),
            values: texts(scope, &place, "values")?,
        })
    });
    Ok(LimitedResource {
        group: text(limited, "apiGroup").to_owned(),
        plural: plural.to_owned(),
        match_contains: texts(limited, place, "matchContains")?,
        match_scopes: scopes.collect::<Result<_, String>>()?,
    })
}

/// The limits for the rate of events.
pub(super) fn event_limits(stated: &Value) -> Result<Vec<EventLimit>, String> {
    let map = of_kind(stated, &[("eventratelimit.admission.k8s.io/v1alpha1", "Configuration")], &["limits"])?;
    let limits = objects(map, "", "limits")?;
    if limits.is_empty() {
        return Err(FieldError::invalid("limits", Value::Array(Vec::new()), "must not be empty").to_string());
    }
    limits.into_iter().map(|(place, limit)| event_limit(&place, limit)).collect()
}

fn event_limit(place: &str, limit: &Map) -> Result<EventLimit, String> {
    known_fields(limit, &format!("{place}."), &["type", "qps", "burst", "cacheSize"])?;
    let name = text(limit, "type");
    let kind = EventLimitKind::ALL.into_iter().find(|kind| kind.name() == name);
    let kind = kind.ok_or_else(|| {
        let known = EventLimitKind::ALL.map(EventLimitKind::name);
        FieldError::not_supported(format!("{place}.type"), name, &known).to_string()
    })?;
    let number = |field: &str, least: i64, why: &str| {
        let stated = limit.get(field).filter(|stated| !stated.is_null());
        let number = stated.map_or(Some(0), Value::as_i64);
        let number = number.ok_or_else(|| format!("{place}.{field} is not a whole number"))?;
        let fitting = u32::try_from(number).ok().filter(|_| number >= least);
        fitting.ok_or_else(|| FieldError::invalid(format!("{place}.{field}"), number, why).to_string())
    };
    let (burst, qps) = (number("burst", 1, "must be positive")?, number("qps", 1, "must be positive")?);
    let keys = match number("cacheSize", 0, "must not be negative")? {
        0 => DEFAULT_KEYS,
        keys => keys as usize,
    };
    Ok(EventLimit { kind, qps, burst, keys })
}

/// The node selectors of namespaces.
pub(super) fn node_selectors(stated: &Value) -> Result<NodeSelectors, String> {
    const FIELD: &str = "podNodeSelectorPluginConfig";
    let map = stated.as_object().ok_or("the settings are no object")?;
    known_fields(map, "", &[FIELD])?;
    let stated = match map.get(FIELD) {
        None | Some(Value::Null) => return Ok(NodeSelectors::default()),
        Some(stated) => stated.as_object().ok_or_else(|| format!("{FIELD} is not an object"))?,
    };
    let mut selectors = NodeSelectors::default();
    for (name, selector) in stated {
        let place = format!("{FIELD}[{name}]");
        let selector = selector.as_str().ok_or_else(|| format!("{place} is not a string"))?;
        selectors.add(name, selector).map_err(|why| format!("{place}: {why}"))?;
    }
    Ok(selectors)
}

/// The backend that reviews images.
pub(super) fn image_policy(stated: &Value) -> Result<ImagePolicy, String> {
    const FIELD: &str = "imagePolicy";
    let map = stated.as_object().ok_or("the settings are no object")?;
    known_fields(map, "", &[FIELD])?;
    let none = Map::default();
    let map = match map.get(FIELD) {
        None | Some(Value::Null) => &none,
        Some(stated) => stated.as_object().ok_or_else(|| format!("{FIELD} is not an object"))?,
    };
    let known = ["kubeConfigFile", "allowTTL", "denyTTL", "retryBackoff", "defaultAllow"];
    known_fields(map, "imagePolicy.", &known)?;
    let file = text(map, "kubeConfigFile");
    if file.is_empty() {
        return Err(FieldError::required("imagePolicy.kubeConfigFile", "").to_string());
    }
    let usual = ImagePolicy::new(PathBuf::from(file));
    Ok(ImagePolicy {
        allowed_for: KEPT.read(map, "allowTTL", usual.allowed_for)?,
        refused_for: KEPT.read(map, "denyTTL", usual.refused_for)?,
        retry_wait: WAITS.read(map, "retryBackoff", usual.retry_wait)?,
        allows_on_failure: match map.get("defaultAllow") {
            None | Some(Value::Null) => false,
            Some(stated) => stated.as_bool().ok_or("imagePolicy.defaultAllow is not a boolean")?,
        },
        ..usual
    })
}

/// Durations as in upstream's settings: a whole number of units up to a limit, 0 for the default, -1 for none.
struct Times {
    unit: Duration,
    suffix: &'static str,
    most: Duration,
    bounds: &'static str,
}

const KEPT: Times =
    Times { unit: Duration::from_secs(1), suffix: "s", most: Duration::from_secs(30 * 60), bounds: "1s and 30m0s" };
const WAITS: Times =
    Times { unit: Duration::from_millis(1), suffix: "ms", most: Duration::from_secs(5 * 60), bounds: "1ns and 5m0s" };

impl Times {
    fn read(&self, map: &Map, field: &str, usual: Duration) -> Result<Duration, String> {
        let number = match map.get(field) {
            None | Some(Value::Null) => 0,
            Some(stated) => stated.as_i64().ok_or_else(|| format!("imagePolicy.{field} is not a whole number"))?,
        };
        if number == 0 || number == -1 {
            return Ok(if number == 0 { usual } else { Duration::ZERO });
        }
        let time = u32::try_from(number).ok().map(|units| self.unit.saturating_mul(units));
        time.filter(|time| *time <= self.most).ok_or_else(|| {
            let Self { suffix, bounds, .. } = self;
            format!("imagePolicy.{field}: valid value is between {bounds}, got {number}{suffix}")
        })
    }
}

/// The tolerations for namespaces without annotations.
pub(super) fn tolerations(stated: &Value) -> Result<TolerationSettings, String> {
    let kinds = [("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration")];
    let map = of_kind(stated, &kinds, &["default", "whitelist"])?;
    let list = |field: &str| {
        let all = read_all(items(map, "", field)?)?;
        let faults = all.iter().enumerate();
        let mut faults = faults.filter_map(|(at, one)| fault(&format!("podtolerationrestriction.{field}[{at}]"), one));
        match faults.next() {
            Some(fault) => Err(format!("invalid config: {fault}")),
            None => Ok(all),
        }
    };
    Ok(TolerationSettings { defaults: list("default")?, allowed: list("whitelist")? })
}

/// The error of an invalid toleration, by the validation rules of pods.
fn fault(place: &str, toleration: &Toleration) -> Option<FieldError> {
    let Toleration { key, operator, value, effect, seconds } = toleration;
    let invalid =
        |field: &str, value: &str, why: &str| Some(FieldError::invalid(format!("{place}.{field}"), value, why));
    if !key.is_empty()
        && let Some(why) = label_key_faults(key).first()
    {
        return invalid("key", key, why);
    }
    if key.is_empty() && operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        return invalid("operator", operator, why);
    }
    if seconds.is_some() && effect != "NoExecute" {
        return invalid("effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    const EFFECTS: [&str; 4] = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !EFFECTS.contains(&effect.as_str()) {
        return Some(FieldError::not_supported(format!("{place}.effect"), effect.as_str(), &EFFECTS[1..]));
    }
    match operator.as_str() {
        "" | "Equal" => label_value_faults(value).first().and_then(|why| invalid("operator", value, why)),
        "Exists" if !value.is_empty() => invalid("operator", value, "value must be empty when `operator` is 'Exists'"),
        "Exists" => None,
        other => Some(FieldError::not_supported(format!("{place}.operator"), other, &["Equal", "Exists"])),
    }
}

/// The objects of a list, each with its path.
fn objects<'m>(map: &'m Map, before: &str, field: &str) -> Result<Vec<(String, &'m Map)>, String> {
    let list = items(map, before, field)?.iter().enumerate().map(|(at, item)| {
        let place = format!("{before}{field}[{at}]");
        match item.as_object() {
            Some(object) => Ok((place, object)),
            None => Err(format!("{place} is not an object")),
        }
    });
    list.collect()
}

fn texts(map: &Map, place: &str, field: &str) -> Result<Vec<String>, String> {
    let before = format!("{place}.");
    let texts = items(map, &before, field)?.iter().map(|item| item.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(|| format!("{before}{field} is not a list of texts"))
}

fn items<'m>(map: &'m Map, before: &str, field: &str) -> Result<&'m [Value], String> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(&[]),
        Some(list) => list.as_array().map(Vec::as_slice).ok_or_else(|| format!("{before}{field} is not a list")),
    }
}
