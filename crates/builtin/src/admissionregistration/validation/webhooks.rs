//! Validation of validating and mutating webhooks.
//!
//! Both kinds have the same rules except for one field.

use std::collections::HashSet;

use keelson_meta::json::Value;

use super::{CONDITIONS, FAILURE_POLICY, MATCH_POLICY, REINVOCATION_POLICY, RULE, review_versions, webhooks_before};
use crate::validating::at::At;
use crate::validating::domains::{client_config, full_name};
use crate::validating::selectors::SELECTOR;
use crate::validating::type_rules::Rule::{Always, Check, Each, With, Within};
use crate::validating::type_rules::{Rule, Run, TypeRules};

pub(super) const VALIDATING: TypeRules =
    TypeRules::new(&[("webhooks", With("unique names", validating, &VALIDATING_HOOK))]);

pub(super) const MUTATING: TypeRules = TypeRules::new(&[("webhooks", With("unique names", mutating, &MUTATING_HOOK))]);

const NAME: Rule = Check("required: domain of three segments", full_name);
const CALLED: Rule = Check("an https URL or a service", client_config);
const VERSIONS: Rule = Check("without duplicates, at least one of v1 and v1beta1", review_versions);

const VALIDATING_HOOK: TypeRules = TypeRules::new(&[
    ("", Always(&HOOK)),
    ("clientConfig", CALLED),
    ("matchConditions", CONDITIONS),
    ("admissionReviewVersions", VERSIONS),
]);

const MUTATING_HOOK: TypeRules = TypeRules::new(&[
    ("", Always(&HOOK)),
    ("reinvocationPolicy", REINVOCATION_POLICY),
    ("clientConfig", CALLED),
    ("matchConditions", CONDITIONS),
    ("admissionReviewVersions", VERSIONS),
]);

const HOOK: TypeRules = TypeRules::shared(
    "Webhook",
    &[
        ("name", NAME),
        ("rules", Each(&RULE)),
        ("failurePolicy", FAILURE_POLICY),
        ("matchPolicy", MATCH_POLICY),
        ("sideEffects", Check("required: None or NoneOnDryRun, or as vague as before", side_effects)),
        ("timeoutSeconds", Within(1, 30, "the timeout value must be between 1 and 30 seconds")),
        ("namespaceSelector", SELECTOR),
        ("objectSelector", SELECTOR),
    ],
);

/// A configuration from `v1beta1` may have webhooks with other side effects. It can still be changed.
fn side_effects(at: &At<'_, '_>, run: &mut Run<'_>) {
    const NONE: [&str; 2] = ["None", "NoneOnDryRun"];
    if NONE.contains(&at.text()) {
        return;
    }
    let is_vague = |hook: &Value| !hook["sideEffects"].as_str().is_some_and(|stated| NONE.contains(&stated));
    let allowed: &[&str] =
        if webhooks_before(run).iter().any(is_vague) { &["None", "NoneOnDryRun", "Some", "Unknown"] } else { &NONE };
    if !at.is_set() {
        at.required(run, format!("must specify one of {}", allowed.join(", ")));
    } else if !allowed.contains(&at.text()) {
        at.not_supported(run, at.text(), allowed);
    }
}

fn validating<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    hooks(at, &VALIDATING_HOOK, run);
}

fn mutating<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    hooks(at, &MUTATING_HOOK, run);
}

fn hooks<'v>(at: &At<'v, '_>, type_rules: &TypeRules, run: &mut Run<'v>) {
    let mut names = HashSet::new();
    // Configurations of `v1beta1` may have the same name more than once.
    let mut before = HashSet::new();
    let repeated = !webhooks_before(run).iter().all(|hook| before.insert(hook["name"].as_str().unwrap_or_default()));
    for hook in at.items() {
        type_rules.check(&hook, run);
        let name = hook.field("name");
        if !repeated && !name.is_empty() && !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
    }
}
