//! The settings of single plugins, in the versions that kube-apiserver reads.
//!
//! Nothing here reads files. Unknown fields are errors, so that a setting of a newer version is never ignored.

use std::path::PathBuf;

use keelson_meta::field_error::FieldError;
use keelson_meta::go_format::quote;
use keelson_meta::json::{Map, Value};
use keelson_registry::{LimitedResource, QuotaScope};

use crate::builtin::{DEFAULT_KEYS, EventLimit, EventLimitKind, NodeSelectors};

/// The plugins that have settings.
pub(super) const HAVE_SETTINGS: [&str; 6] = [
    "EventRateLimit",
    "MutatingAdmissionWebhook",
    "PodNodeSelector",
    "PodSecurity",
    "ResourceQuota",
    "ValidatingAdmissionWebhook",
];

const CONFIG_V1: &str = "apiserver.config.k8s.io/v1";

/// The text of a field; empty for a field that is missing or no text.
pub(super) fn text<'m>(map: &'m Map, field: &str) -> &'m str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Refuses all fields but these. Their place stands before them.
pub(super) fn known_fields(map: &Map, place: &str, known: &[&str]) -> Result<(), String> {
    match map.keys().find(|key| !known.contains(key)) {
        Some(unknown) => Err(format!("unknown field \"{place}{unknown}\"")),
        None => Ok(()),
    }
}

/// The object of settings, which has one of these versions with its kind, and these fields besides.
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

/// The kubeconfig that has the credentials for webhooks.
pub(super) fn webhook_kubeconfig(stated: &Value) -> Result<PathBuf, String> {
    let kinds =
        [(CONFIG_V1, "WebhookAdmissionConfiguration"), ("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission")];
    let file = text(of_kind(stated, &kinds, &["kubeConfigFile"])?, "kubeConfigFile");
    let path = PathBuf::from(file);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(FieldError::invalid("kubeConfigFile", file, "must be an absolute file path").to_string())
}

/// The resources that may be used only where a quota covers them.
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
        let number = number.ok_or_else(|| format!("{place}.{field} is no whole number"))?;
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
        Some(stated) => stated.as_object().ok_or_else(|| format!("{FIELD} is no object"))?,
    };
    let mut selectors = NodeSelectors::default();
    for (name, selector) in stated {
        let place = format!("{FIELD}[{name}]");
        let selector = selector.as_str().ok_or_else(|| format!("{place} is no text"))?;
        selectors.add(name, selector).map_err(|why| format!("{place}: {why}"))?;
    }
    Ok(selectors)
}

/// The objects of a list, with their places.
fn objects<'m>(map: &'m Map, before: &str, field: &str) -> Result<Vec<(String, &'m Map)>, String> {
    let list = items(map, before, field)?.iter().enumerate().map(|(at, item)| {
        let place = format!("{before}{field}[{at}]");
        match item.as_object() {
            Some(object) => Ok((place, object)),
            None => Err(format!("{place} is no object")),
        }
    });
    list.collect()
}

fn texts(map: &Map, place: &str, field: &str) -> Result<Vec<String>, String> {
    let before = format!("{place}.");
    let texts = items(map, &before, field)?.iter().map(|item| item.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(|| format!("{before}{field} is no list of texts"))
}

fn items<'m>(map: &'m Map, before: &str, field: &str) -> Result<&'m [Value], String> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(&[]),
        Some(list) => list.as_array().map(Vec::as_slice).ok_or_else(|| format!("{before}{field} is no list")),
    }
}
