//! Validation of leases and lease candidates.
//!
//! This file only has the rules of these kinds. Shared rules are in `validating`.

#[cfg(test)]
mod tests;

use keelson_cel::library::semver::Version;

use crate::validating::at::At;
use crate::validating::formats::QUALIFIED_NAME;
use crate::validating::type_rules::Rule::{Always, Check, Immutable, NonNegative, Positive, Required};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("Lease").object(&const { TypeRules::new(&[("spec", Always(&LEASE))]) }),
    kind("LeaseCandidate")
        .object(&const { TypeRules::new(&[("spec", Always(&CANDIDATE))]) })
        .then(&const { TypeRules::new(&[("spec", Always(&const { TypeRules::new(&[("leaseName", Immutable)]) }))]) }),
];

const LEASE: TypeRules = TypeRules::new(&[
    ("leaseDurationSeconds", Positive),
    ("leaseTransitions", NonNegative),
    (
        "strategy",
        Check("OldestEmulationVersion, or a qualified name with a prefix", |at, run| {
            if at.is_set() {
                strategy(at, run);
            }
        }),
    ),
    (
        "preferredHolder",
        Check("only with `strategy`", |at, run| {
            if !at.is_empty() && at.parent().is_some_and(|spec| spec.field("strategy").is_empty()) {
                at.forbidden(run, "may only be specified if `strategy` is defined");
            }
        }),
    ),
]);

const CANDIDATE: TypeRules = TypeRules::new(&[
    ("leaseName", Required("")),
    ("emulationVersion", Check("semantic version", semantic_version)),
    ("binaryVersion", Required("")),
    ("binaryVersion", Check("a semantic version of at least `emulationVersion`", binary_version)),
    ("strategy", Required("")),
    (
        "strategy",
        Check(
            "OldestEmulationVersion, which needs `emulationVersion`, or a qualified name with a prefix",
            candidate_strategy,
        ),
    ),
]);

const OLDEST: &str = "OldestEmulationVersion";

/// Like upstream, the path has the field twice.
fn strategy(at: &At<'_, '_>, run: &mut Run<'_>) {
    let text = at.text();
    let place = at.field("strategy");
    if text.contains('/') {
        for fault in QUALIFIED_NAME.faults(text) {
            place.invalid(run, text, fault);
        }
    } else if text != OLDEST {
        place.not_supported(run, text, &[OLDEST]);
    }
}

fn semantic_version(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_empty() && Version::parse(at.text()).is_err() {
        at.invalid(run, at.text(), "must be a valid semantic version");
    }
}

fn binary_version(at: &At<'_, '_>, run: &mut Run<'_>) {
    semantic_version(at, run);
    let emulated =
        at.parent().map(|spec| spec.field("emulationVersion").text()).and_then(|text| Version::parse(text).ok());
    if let (Ok(binary), Some(emulated)) = (Version::parse(at.text()), emulated)
        && binary < emulated
    {
        at.invalid(run, at.text(), "must be greater than or equal to `emulationVersion`");
    }
}

fn candidate_strategy(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        return;
    }
    if let Some(spec) = at.parent().filter(|_| at.text() == OLDEST) {
        let emulated = spec.field("emulationVersion");
        if Version::parse(emulated.text()).ok().is_none_or(|version| version.is_zero()) {
            emulated.required(run, format!("must be specified when `strategy` is '{OLDEST}'"));
        }
    }
    strategy(at, run);
}
