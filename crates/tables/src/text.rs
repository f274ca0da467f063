//! Texts of several printers: lists, counts, and placeholders.
//!
//! These functions read JSON without relying on any field, since objects may have been stored by older servers.

use keelson_meta::json::Value;

use crate::field_value::FieldValue;

/// The number of items shown of a long list.
const SHOWN: usize = 3;

/// The text, or `fallback` if it is empty.
pub fn or<'a>(text: &'a str, fallback: &'a str) -> &'a str {
    if text.is_empty() { fallback } else { text }
}

/// The texts joined by a separator.
pub fn join<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, separator: &str) -> String {
    let mut joined = String::new();
    for (place, text) in texts.into_iter().enumerate() {
        if place > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text.as_ref());
    }
    joined
}

/// The first three texts, and the number of others: `a,b,c + 2 more...`.
pub fn first_three<T: AsRef<str>>(mut texts: impl Iterator<Item = T>) -> String {
    let mut joined = join(texts.by_ref().take(SHOWN), ",");
    let more = texts.count();
    if more > 0 {
        joined.push_str(&format!(" + {more} more..."));
    }
    joined
}

/// A ratio such as `1/3`.
pub fn ratio(part: i64, whole: i64) -> Value {
    format!("{part}/{whole}").into()
}

/// The names of the containers of a pod spec.
pub fn container_names(pod_spec: FieldValue<'_>) -> Value {
    join(pod_spec.at("containers").items().map(|container| container.at("name").text()), ",").into()
}

/// The images of the containers of a pod spec.
pub fn container_images(pod_spec: FieldValue<'_>) -> Value {
    join(pod_spec.at("containers").items().map(|container| container.at("image").text()), ",").into()
}

/// The distinct addresses or host names of a load balancer, sorted.
pub fn load_balancer(ingress: FieldValue<'_>) -> String {
    let mut points: Vec<&str> = ingress
        .items()
        .map(|point| or(point.at("ip").text(), point.at("hostname").text()))
        .filter(|point| !point.is_empty())
        .collect();
    points.sort_unstable();
    points.dedup();
    join(points, ",")
}

/// Abbreviated access modes in a fixed order: `RWO,ROX`.
pub fn access_modes(modes: FieldValue<'_>) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| modes.items().any(|given| given.text() == mode);
    join(SHORT.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short), ",")
}

/// The resource with its group, if any: `deployments.apps`.
pub fn with_group(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}
