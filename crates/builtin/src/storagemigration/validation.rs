//! Validation of storage version migrations: the resource, the resource version, and the conditions.
//!
//! The spec never changes. The status has the progress.

#[cfg(test)]
mod tests;

use keelson_meta::json::json;

use crate::validating::at::At;
use crate::validating::conditions::{CONDITIONS, holds};
use crate::validating::formats::{DNS_1035_LABEL, DNS_SUBDOMAIN};
use crate::validating::type_rules::Rule::{Always, Check};
use crate::validating::type_rules::{IMMUTABLE, Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] =
    &[kind("StorageVersionMigration").object(&MIGRATION).then(&UPDATE).below(&[("status", &STATUS)])];

const MIGRATION: TypeRules = TypeRules::new(&[(
    "spec",
    Always(
        &const {
            TypeRules::new(&[(
                "resource",
                Always(
                    &const {
                        TypeRules::new(&[
                            ("resource", Check("required, DNS label (RFC 1035)", resource)),
                            ("group", Check("DNS subdomain", group)),
                        ])
                    },
                ),
            )])
        },
    ),
)]);

const UPDATE: TypeRules = TypeRules::new(&[(
    "spec",
    Check("immutable", |at, run| {
        if !at.is_unchanged() {
            // Like upstream, the error contains the Go structure.
            let resource = at.field("resource");
            let (group, name) = (resource.field("group").text(), resource.field("resource").text());
            at.invalid(run, json!({"Resource": {"group": group, "resource": name}}), IMMUTABLE);
        }
    }),
)]);

const STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[
                ("resourceVersion", Check("a revision", revision)),
                ("conditions", CONDITIONS),
                ("resourceVersion", Check("set once", stays)),
                ("conditions", Check("Complete and Failed exclude each other, and stay true", progress)),
            ])
        },
    ),
)]);

fn resource(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        return at.required(run, "resource is required to be set");
    }
    let faults = DNS_1035_LABEL.faults(at.text());
    if !faults.is_empty() {
        at.invalid(run, at.text(), faults.join(","));
    }
}

fn group(at: &At<'_, '_>, run: &mut Run<'_>) {
    let faults = DNS_SUBDOMAIN.faults(at.text());
    if !at.is_empty() && !faults.is_empty() {
        at.invalid(run, at.text(), faults.join(","));
    }
}

fn revision(at: &At<'_, '_>, run: &mut Run<'_>) {
    let text = at.text();
    let fits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if !fits {
        at.invalid(run, text, format!("resource version is not well formed: {text}"));
    }
}

fn stays(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.old.as_str().is_some_and(|old| !old.is_empty() && old != at.text()) {
        at.invalid(run, at.text(), IMMUTABLE);
    }
}

fn progress(at: &At<'_, '_>, run: &mut Run<'_>) {
    let [succeeded, failed] = ["Succeeded", "Failed"].map(|kind| holds(at.value, kind));
    let [was_done, had_failed] = ["Succeeded", "Failed"].map(|kind| holds(at.old, kind));
    let faults = [
        (succeeded && failed, "Both success and failed conditions cannot be true at the same time"),
        (was_done && !succeeded, "Success condition cannot be set to false once it is true"),
        (had_failed && !failed, "Failed condition cannot be set to false once it is true"),
    ];
    for (_, detail) in faults.iter().filter(|(wrong, _)| *wrong) {
        at.invalid(run, at.shown(), *detail);
    }
}
