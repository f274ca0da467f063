//! Validation of webhook configurations and admission policies, and of the rules for the requests that they match.
//!
//! Expressions must be present. This file does not compile them.

mod policies;
#[cfg(test)]
mod tests;
mod webhooks;

use std::collections::HashSet;

use keelson_meta::json::Value;

use crate::validating::ValidatedObject;
use crate::validating::at::At;
use crate::validating::expressions::of_condition;
use crate::validating::formats::{DNS_1035_LABEL, PATH_SEGMENT, QUALIFIED_NAME};
use crate::validating::selectors::SELECTOR;
use crate::validating::type_rules::Rule::{Always, Check, Each, OneOf, Required};
use crate::validating::type_rules::{Kind, Rule, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("MutatingAdmissionPolicy").object(&policies::MUTATING),
    kind("MutatingAdmissionPolicyBinding").object(&policies::MUTATING_BINDING),
    kind("MutatingWebhookConfiguration").object(&webhooks::MUTATING),
    kind("ValidatingAdmissionPolicy").object(&policies::VALIDATING).below(&[("status", &policies::STATUS)]),
    kind("ValidatingAdmissionPolicyBinding").object(&policies::VALIDATING_BINDING),
    kind("ValidatingWebhookConfiguration").object(&webhooks::VALIDATING),
];

/// The rules of kinds while webhooks and policies may come from manifests.
pub(crate) const GATED: &[(&str, Kind)] = &[
    (MANIFESTS, kind("MutatingAdmissionPolicy").object(&MUTATING_POLICY)),
    (MANIFESTS, kind("MutatingAdmissionPolicyBinding").object(&MUTATING_BINDING)),
    (MANIFESTS, kind("MutatingWebhookConfiguration").object(&MUTATING_WEBHOOKS)),
    (MANIFESTS, kind("ValidatingAdmissionPolicy").object(&VALIDATING_POLICY).below(&[("status", &policies::STATUS)])),
    (MANIFESTS, kind("ValidatingAdmissionPolicyBinding").object(&VALIDATING_BINDING)),
    (MANIFESTS, kind("ValidatingWebhookConfiguration").object(&VALIDATING_WEBHOOKS)),
];
const API_NAME: Rule = Check("a new object: a name without the suffix of manifests", reserved_name);
const MUTATING_POLICY: TypeRules = TypeRules::new(&[("", Always(&policies::MUTATING)), ("metadata", API_NAME)]);
const MUTATING_BINDING: TypeRules =
    TypeRules::new(&[("", Always(&policies::MUTATING_BINDING)), ("metadata", API_NAME)]);
const MUTATING_WEBHOOKS: TypeRules = TypeRules::new(&[("", Always(&webhooks::MUTATING)), ("metadata", API_NAME)]);
const VALIDATING_POLICY: TypeRules = TypeRules::new(&[("", Always(&policies::VALIDATING)), ("metadata", API_NAME)]);
const VALIDATING_BINDING: TypeRules =
    TypeRules::new(&[("", Always(&policies::VALIDATING_BINDING)), ("metadata", API_NAME)]);
const VALIDATING_WEBHOOKS: TypeRules = TypeRules::new(&[("", Always(&webhooks::VALIDATING)), ("metadata", API_NAME)]);
const MANIFESTS: &str = "ManifestBasedAdmissionControlConfig";

pub(crate) const FAILURE_POLICY: Rule = OneOf(&["Fail", "Ignore"]);
pub(crate) const MATCH_POLICY: Rule = OneOf(&["Equivalent", "Exact"]);
pub(crate) const REINVOCATION_POLICY: Rule = OneOf(&["IfNeeded", "Never"]);

/// The rules of a webhook, which select its requests.
pub(crate) const RULE: TypeRules = TypeRules::shared(
    "Admission rule",
    &[
        ("operations", Required("")),
        ("operations", Check("`*` alone", |at, run| alone(at, "operations", run))),
        ("operations", Rule::EachOneOf(&["*", "CONNECT", "CREATE", "DELETE", "UPDATE"])),
        ("apiGroups", Required("")),
        ("apiGroups", Check("`*` alone", |at, run| alone(at, "API groups", run))),
        ("apiVersions", Required("")),
        ("apiVersions", Check("`*` alone", |at, run| alone(at, "API versions", run))),
        ("apiVersions", Each(&const { TypeRules::new(&[("", SOME_TEXT)]) })),
        ("resources", Required("")),
        ("resources", Check("wildcards without entries that they include", resources)),
        ("scope", OneOf(&["*", "Cluster", "Namespaced"])),
    ],
);

/// The suffix of the names of webhooks and policies from manifests.
const MANIFEST_SUFFIX: &str = ".static.k8s.io";

/// The refusal of a name that only manifests may have.
fn reserved_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    let name = at.field("name");
    if run.before.is_none() && name.text().ends_with(MANIFEST_SUFFIX) {
        name.invalid(run, name.text(), RESERVED);
    }
}

const RESERVED: &str = "names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and \
                        cannot be managed via the API";

/// The warning about a name that only manifests may have.
pub(super) fn warnings(_: &str, written: ValidatedObject<'_>, warnings: &mut Vec<String>) {
    if written.object.name().ends_with(MANIFEST_SUFFIX) {
        warnings.push(format!("metadata.name: {RESERVED}"));
    }
}

const SOME_TEXT: Rule = Check("not empty", |at, run| {
    if at.is_empty() {
        at.required(run, "");
    }
});

/// The rules and selectors of a policy, which select its requests.
pub(crate) const MATCH: TypeRules = TypeRules::shared(
    "Matched resources",
    &[
        ("matchPolicy", Required("")),
        ("matchPolicy", MATCH_POLICY),
        ("namespaceSelector", PRESENT),
        ("namespaceSelector", SELECTOR),
        ("objectSelector", PRESENT),
        ("objectSelector", SELECTOR),
        ("resourceRules", Each(&NAMED_RULE)),
        ("excludeResourceRules", Each(&NAMED_RULE)),
    ],
);

/// The object must be present. It may be empty.
const PRESENT: Rule = Check("required", |at, run| {
    if !at.is_set() {
        at.required(run, "");
    }
});

const NAMED_RULE: TypeRules = TypeRules::shared(
    "Admission rule for named objects",
    &[("resourceNames", Check("path segments, none of them twice", resource_names)), ("", Always(&RULE))],
);

/// The match conditions of a webhook or policy.
pub(crate) const CONDITIONS: Rule = Check("at most 64, each with an expression and a name of its own", conditions);

/// Reports an error if a list contains `*` and other items.
fn alone(at: &At<'_, '_>, what: &str, run: &mut Run<'_>) {
    if at.list().len() > 1 && at.list().iter().any(|item| item == "*") {
        at.invalid(run, at.shown(), format!("if '*' is present, must not specify other {what}"));
    }
}

fn resources(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (mut all_below, mut below_all) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for item in at.items() {
        let text = item.text();
        if text.is_empty() {
            item.required(run, "");
            continue;
        }
        let Some((resource, sub)) = text.split_once('/') else {
            // Like upstream, the last resource without a subresource decides.
            plain = text != "*";
            continue;
        };
        if all_below.contains(resource) {
            item.invalid(run, text, format!("if '{resource}/*' is present, must not specify {text}"));
        }
        if below_all.contains(sub) {
            item.invalid(run, text, format!("if '*/{sub}' is present, must not specify {text}"));
        }
        if sub == "*" {
            all_below.insert(resource);
        }
        if resource == "*" {
            below_all.insert(sub);
        }
    }
    let has = |text: &str| at.list().iter().any(|item| item == text);
    if at.list().len() > 1 && has("*/*") {
        at.invalid(run, at.shown(), "if '*/*' is present, must not specify other resources");
    }
    if has("*") && plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        at.invalid(run, at.shown(), detail);
    }
}

fn resource_names(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut names = HashSet::new();
    for name in at.items() {
        name.complain(run, PATH_SEGMENT.faults(name.text()));
        if !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
    }
}

fn conditions(at: &At<'_, '_>, run: &mut Run<'_>) {
    /// The largest number of match conditions.
    const MAX: usize = 64;
    if at.list().len() > MAX {
        at.too_many(run, MAX);
    }
    let are_kept = run.before.is_some() && at.is_unchanged();
    let mut names = HashSet::new();
    for condition in at.items() {
        let (name, expression) = (condition.field("name"), condition.field("expression"));
        if expression.text().trim().is_empty() {
            expression.required(run, "");
        } else if !are_kept {
            of_condition(&expression, run);
        }
        if name.is_empty() {
            name.required(run, "");
            continue;
        }
        name.complain(run, QUALIFIED_NAME.faults(name.text()));
        if !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
    }
}

const KNOWN_REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// The versions of reviews. At least one is required.
pub(crate) fn review_versions(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        return at.required(run, format!("must specify one of {}", KNOWN_REVIEWS.join(", ")));
    }
    stated_review_versions(at, run);
}

/// The versions of reviews. Each is listed once, and at least one is known.
pub(crate) fn stated_review_versions(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen = HashSet::new();
    for version in at.items() {
        if seen.insert(version.text()) {
            version.complain(run, DNS_1035_LABEL.faults(version.text()));
        } else {
            version.invalid(run, version.text(), "duplicate version");
        }
    }
    let is_known = |version: &str| KNOWN_REVIEWS.contains(&version);
    if !at.items().any(|version| is_known(version.text())) && !had_unknown_reviews(run) {
        at.invalid(run, at.shown(), format!("must include at least one of {}", KNOWN_REVIEWS.join(", ")));
    }
}

/// Returns true if a stored webhook has no known version of reviews. Such a webhook can still be changed.
fn had_unknown_reviews(run: &Run<'_>) -> bool {
    webhooks_before(run)
        .iter()
        .filter_map(|hook| hook.get("admissionReviewVersions")?.as_array())
        .any(|versions| !versions.iter().filter_map(Value::as_str).any(|version| KNOWN_REVIEWS.contains(&version)))
}

/// The webhooks of the stored configuration; empty for a new configuration.
fn webhooks_before<'v>(run: &Run<'v>) -> &'v [Value] {
    run.before.and_then(|before| before.0.get("webhooks")?.as_array()).map_or(&[], Vec::as_slice)
}
