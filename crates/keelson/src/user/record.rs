//! The record of the users that `keelson user create` has made: a ConfigMap with an entry for each certificate.
//!
//! A certificate is stored nowhere else, and a server knows a user only from the certificate in its requests. Entries
//! are removed when their certificates have expired.

use std::collections::BTreeMap;
use std::time::SystemTime;

use anyhow::Context as _;
use http::Method;
use keelson_meta::clock::rfc3339;
use keelson_server::certificate_end;
use serde_json::{Map, Value, json};

use super::{RBAC, Server};
use crate::args::UserCreate;
use crate::output::answer;

const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAME: &str = "keelson-users";

/// The certificate of a user.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    user: String,
    groups: Vec<String>,
    /// The end of its validity, in RFC 3339.
    until: String,
}

impl Entry {
    fn read(text: &str) -> Option<Self> {
        let entry: Value = serde_json::from_str(text).ok()?;
        let groups = entry["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Some(Self {
            user: entry["user"].as_str()?.to_owned(),
            groups: groups.map(str::to_owned).collect(),
            until: entry["until"].as_str()?.to_owned(),
        })
    }

    /// Returns true if the certificate has expired. RFC 3339 texts of this form sort by time.
    fn is_over(&self, now: &str) -> bool {
        self.until.as_str() < now
    }
}

/// Adds an entry under a unique name and removes expired entries.
pub(super) async fn add(
    server: &Server,
    number: &str,
    settings: &UserCreate,
    certificate_pem: &str,
) -> anyhow::Result<()> {
    let until = certificate_end(certificate_pem).context("reading the certificate")?;
    let entry = json!({ "user": settings.name, "groups": settings.groups, "until": rfc3339(until) });
    let now = rfc3339(SystemTime::now());
    let mut data: Map<String, Value> = Map::new();
    let known = known(server).await?;
    for (name, text) in known.iter().flatten() {
        if Entry::read(text).is_none_or(|entry| entry.is_over(&now)) {
            data.insert(name.clone(), Value::Null);
        }
    }
    data.insert(number.to_owned(), json!(entry.to_string()));
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME }, "data": data });
    let (method, path, kind) = match known {
        Some(_) => (Method::PATCH, format!("{CONFIG_MAPS}/{NAME}"), "application/merge-patch+json"),
        None => (Method::POST, CONFIG_MAPS.to_owned(), "application/json"),
    };
    server.ask(method, &path, kind, Some(&map)).await.map(drop)
}

/// Prints the users with their bindings.
pub(super) async fn list(server: &Server) -> anyhow::Result<()> {
    let entries: Vec<Entry> =
        known(server).await?.into_iter().flatten().filter_map(|(_, text)| Entry::read(&text)).collect();
    let mut bindings = Vec::new();
    for kind in ["clusterrolebindings", "rolebindings"] {
        let listed = server.ask(Method::GET, &format!("{RBAC}/{kind}"), "", None).await;
        let listed = listed.with_context(|| format!("listing {kind}"))?;
        bindings.extend(listed["items"].as_array().cloned().unwrap_or_default());
    }
    answer(table(&entries, &bindings, &rfc3339(SystemTime::now())))
}

/// The entries by name; `None` if there is no record yet.
async fn known(server: &Server) -> anyhow::Result<Option<BTreeMap<String, String>>> {
    let path = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3D{NAME}");
    let listed = server.ask(Method::GET, &path, "", None).await.with_context(|| format!("reading {NAME}"))?;
    let Some(map) = listed["items"].get(0) else { return Ok(None) };
    let data = map["data"].as_object().into_iter().flatten();
    Ok(Some(data.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned()))).collect()))
}

/// The table of users, a line for each certificate.
fn table(entries: &[Entry], bindings: &[Value], now: &str) -> String {
    let mut rows = vec![["USER", "GROUPS", "CERTIFICATE UNTIL", "MAY"].map(str::to_owned)];
    for entry in entries {
        let over = if entry.is_over(now) { " (over)" } else { "" };
        let groups = if entry.groups.is_empty() { "-".to_owned() } else { entry.groups.join(",") };
        let may: Vec<String> = bindings.iter().filter_map(|binding| bound_to(entry, binding)).collect();
        let may = if may.is_empty() { "-".to_owned() } else { may.join(", ") };
        rows.push([entry.user.clone(), groups, format!("{}{over}", entry.until), may]);
    }
    rows[1..].sort();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let line = |[user, groups, until, may]: &[String; 4]| {
        let [first, second, third] = widths;
        format!("{user:<first$}   {groups:<second$}   {until:<third$}   {may}")
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The role that a binding gives a user, directly or through a group, and the namespace.
fn bound_to(entry: &Entry, binding: &Value) -> Option<String> {
    let is_meant = |subject: &Value| match (subject["kind"].as_str(), subject["name"].as_str()) {
        (Some("User"), Some(name)) => name == entry.user,
        (Some("Group"), Some(name)) => entry.groups.iter().any(|group| group == name),
        _ => false,
    };
    binding["subjects"].as_array()?.iter().find(|subject| is_meant(subject))?;
    let role = binding["roleRef"]["name"].as_str()?;
    Some(match binding["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{role} in {namespace}"),
        None => format!("{role} in all namespaces"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_listed_with_bindings_of_user_and_groups() {
        let entry = |text: &str| Entry::read(text).unwrap();
        let entries = [
            entry(r#"{"user":"zoe","groups":[],"until":"2025-01-01T00:00:00Z"}"#),
            entry(r#"{"user":"ann","groups":["devs"],"until":"2027-01-01T00:00:00Z"}"#),
        ];
        let binding = |namespace: Option<&str>, kind: &str, name: &str| {
            json!({
                "metadata": { "namespace": namespace }, "roleRef": { "name": "view" },
                "subjects": [{ "kind": kind, "name": name }],
            })
        };
        let bindings =
            [binding(None, "User", "ann"), binding(Some("web"), "Group", "devs"), binding(None, "User", "bob")];
        let shown = table(&entries, &bindings, "2026-01-01T00:00:00Z");
        let lines: Vec<String> =
            shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "USER GROUPS CERTIFICATE UNTIL MAY",
                "ann devs 2027-01-01T00:00:00Z view in all namespaces, view in web",
                "zoe - 2025-01-01T00:00:00Z (over) -",
            ]
        );
        assert!(Entry::read("{}").is_none() && Entry::read("no JSON").is_none());
    }
}
