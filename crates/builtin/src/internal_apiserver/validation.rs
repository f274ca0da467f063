//! Validation of storage versions: the versions that each server writes and reads, and the common version (KEP-2339).
//!
//! All data is in the status, which is only written through `/status`.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use keelson_meta::json::Value;
use keelson_meta::names::regex_fault;

use crate::validating::at::At;
use crate::validating::formats::{DNS_1035_LABEL, DNS_SUBDOMAIN, QUALIFIED_NAME};
use crate::validating::type_rules::Rule::{Always, Check, Each};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[kind("StorageVersion").below(&[("status", &STATUS)])];

const STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[
                ("storageVersions", Check("servers without duplicates", servers)),
                ("storageVersions", Each(&SERVER)),
                ("", Check("the common version is the encoding version of all servers, if they agree", common_version)),
                ("", Check("conditions without duplicate types", conditions)),
            ])
        },
    ),
)]);

const SERVER: TypeRules = TypeRules::new(&[
    ("apiServerID", Check("DNS subdomain", |at, run| at.complain(run, DNS_SUBDOMAIN.faults(at.text())))),
    ("encodingVersion", Check("version", version)),
    ("decodableVersions", Check("versions that include the encoding version", decodable)),
    ("servedVersions", Check("decodable versions", served)),
]);

fn servers(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen = HashSet::new();
    for server in at.items() {
        let id = server.field("apiServerID");
        if !seen.insert(id.text()) {
            id.duplicate(run, id.text());
        }
    }
}

fn version(at: &At<'_, '_>, run: &mut Run<'_>) {
    let faults = version_faults(at.text());
    if !faults.is_empty() {
        at.invalid(run, at.text(), faults.join(","));
    }
}

fn decodable(at: &At<'_, '_>, run: &mut Run<'_>) {
    at.items().for_each(|item| version(&item, run));
    let written = at.parent().map_or("", |server| server.field("encodingVersion").text());
    if !at.list().iter().any(|known| known == written) {
        at.invalid(run, at.list().to_vec(), format!("decodableVersions must include encodingVersion {written}"));
    }
}

fn served(at: &At<'_, '_>, run: &mut Run<'_>) {
    let decodable = at.parent().map_or(&[][..], |server| server.field("decodableVersions").list());
    for item in at.items() {
        version(&item, run);
        if !decodable.contains(item.value) {
            let known: Vec<&str> = decodable.iter().filter_map(Value::as_str).collect();
            let (text, known) = (item.text(), known.join(" "));
            let detail =
                format!("individual served version : {text} must be included in decodableVersions : [{known}]");
            item.invalid(run, text, detail);
        }
    }
}

fn common_version(status: &At<'_, '_>, run: &mut Run<'_>) {
    const NONE: &str = "should be nil if servers do not agree on the same encoding version, or if there is no server \
                        reporting the supported versions yet";
    let servers = status.field("storageVersions");
    let mut written = servers.list().iter().map(|server| server.get("encodingVersion").and_then(Value::as_str));
    let first = written.next().flatten();
    let actual = first.filter(|first| written.all(|other| other == Some(*first)));
    let said = status.field("commonEncodingVersion");
    match actual {
        None if said.is_set() => said.invalid(run, said.text(), NONE),
        Some(actual) if !said.is_set() => {
            said.invalid(run, Value::Null, format!("the common encoding version is {actual}"));
        }
        Some(actual) if actual != said.text() => {
            said.invalid(run, said.text(), format!("the actual common encoding version is {actual}"));
        }
        _ => {}
    }
}

fn conditions(status: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let conditions = status.field("conditions");
    for (index, condition) in conditions.items().enumerate() {
        // Like upstream, the path has the index in the status itself.
        let place = status.index(index);
        let [kind, state, reason, message] = ["type", "status", "reason", "message"].map(|name| place.field(name));
        let text = condition.field("type").text();
        if let Some(first) = seen.insert(text, index) {
            let detail = format!("the type of the condition is not unique, it also appears in conditions[{first}]");
            kind.invalid(run, text, detail);
        }
        for fault in QUALIFIED_NAME.faults(text) {
            kind.invalid(run, text, fault);
        }
        let status = condition.field("status").text();
        for fault in QUALIFIED_NAME.faults(status) {
            state.invalid(run, status, fault);
        }
        if condition.field("reason").is_empty() {
            reason.required(run, "");
        }
        if condition.field("message").is_empty() {
            message.required(run, "");
        }
    }
}

/// The errors of an `apiVersion`: a version, optionally with a group.
fn version_faults(text: &str) -> Vec<String> {
    const LABEL: &str = "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an \
                         alphabetic character, and end with an alphanumeric character";
    let part = |name: &str, text: &str, faults: Vec<String>| {
        let faults = if text.is_empty() { vec!["must be non-empty".to_owned()] } else { faults };
        faults.into_iter().map(|fault| format!("{name} part: {fault}")).collect::<Vec<_>>()
    };
    let (group, version) = text.split_once('/').map_or((None, text), |(group, version)| (Some(group), version));
    if version.contains('/') {
        let form = regex_fault(LABEL, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]);
        return vec![format!(
            "an apiVersion is {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"
        )];
    }
    let mut faults = group.map_or(Vec::new(), |group| part("group", group, DNS_SUBDOMAIN.faults(group)));
    faults.extend(part("version", version, DNS_1035_LABEL.faults(version)));
    faults
}
