//! Validation of namespaces: the phase follows from the deletion timestamp, and labels set the pod security levels.
//!
//! `spec.finalizers` is validated here on create, and by `/finalize` later.

use crate::validating::at::At;
use crate::validating::formats::QUALIFIED_NAME;
use crate::validating::type_rules::Rule::Check;
use crate::validating::type_rules::{Run, TypeRules};

pub(super) const NAMESPACE: TypeRules =
    TypeRules::new(&[("spec", Check("a new object: finalizers are qualified names", finalizers))]);

/// Like upstream, nothing else is validated if these rules report errors.
pub(super) const LABELS: TypeRules =
    TypeRules::new(&[("metadata", Check("labels for Pod Security have valid levels and versions", security_labels))]);

pub(super) const STATUS: TypeRules = TypeRules::new(&[("", Check("Active; Terminating only during deletion", phase))]);

/// The finalizer of namespaces, and those without a domain that all kinds may have.
const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

fn phase(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (status, metadata) = (at.field("status"), at.field("metadata"));
    let phase = status.field("phase").text();
    let (expected, detail) = if metadata.field("deletionTimestamp").is_set() {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    if phase != expected {
        status.field("Phase").invalid(run, phase, detail);
    }
}

fn finalizers(spec: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_some() {
        return;
    }
    let place = spec.field("finalizers");
    for finalizer in place.list().iter().filter_map(|finalizer| finalizer.as_str()) {
        for fault in QUALIFIED_NAME.faults(finalizer) {
            place.invalid(run, finalizer, fault);
        }
        if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
            place.invalid(run, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
        }
    }
}

/// Unchanged labels are not validated again.
fn security_labels(metadata: &At<'_, '_>, run: &mut Run<'_>) {
    const LEVELS: [&str; 3] = ["privileged", "baseline", "restricted"];
    let labels = metadata.field("labels");
    for mode in ["enforce", "audit", "warn"] {
        let prefix = format!("pod-security.kubernetes.io/{mode}");
        let version = format!("{prefix}-version");
        for (label, entry) in labels.entries().filter(|(_, entry)| entry.old.is_null() || !entry.is_unchanged()) {
            if label == prefix && !LEVELS.contains(&entry.text()) {
                entry.invalid(run, entry.text(), format!("must be one of {}", LEVELS.join(", ")));
            }
            if label == version && !is_version(entry.text()) {
                entry.invalid(run, entry.text(), "must be \"latest\" or \"v1.x\"");
            }
        }
    }
}

fn is_version(text: &str) -> bool {
    let minor = text.strip_prefix("v1.").unwrap_or_default();
    let number = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
    text == "latest" || number && (minor == "0" || !minor.starts_with('0'))
}
