//! The webhooks that judge requests, and those that change them.
//!
//! Both kinds have the same rules, but for one field.

use std::collections::HashSet;

use crate::at::At;
use crate::domains::{client_config, full_name};
use crate::selectors::SELECTOR;
use crate::shape::Rule::{Always, Check, Each, OneOf, Required, With, Within};
use crate::shape::{Rule, Run, Shape};

use super::admissionregistration::{
    CONDITIONS, FAILURE_POLICY, MATCH_POLICY, REINVOCATION_POLICY, RULE, review_versions,
};

pub(super) const VALIDATING: Shape = Shape::of(&[("webhooks", With("unique names", validating, &VALIDATING_HOOK))]);

pub(super) const MUTATING: Shape = Shape::of(&[("webhooks", With("unique names", mutating, &MUTATING_HOOK))]);

const NAME: Rule = Check("required: domain of three segments", full_name);
const CALLED: Rule = Check("an https URL or a service", client_config);
const VERSIONS: Rule = Check("each once, one of them v1 or v1beta1", review_versions);

const VALIDATING_HOOK: Shape = Shape::of(&[
    ("", Always(&HOOK)),
    ("clientConfig", CALLED),
    ("matchConditions", CONDITIONS),
    ("admissionReviewVersions", VERSIONS),
]);

const MUTATING_HOOK: Shape = Shape::of(&[
    ("", Always(&HOOK)),
    ("reinvocationPolicy", REINVOCATION_POLICY),
    ("clientConfig", CALLED),
    ("matchConditions", CONDITIONS),
    ("admissionReviewVersions", VERSIONS),
]);

const HOOK: Shape = Shape::shared(
    "Webhook",
    &[
        ("name", NAME),
        ("rules", Each(&RULE)),
        ("failurePolicy", FAILURE_POLICY),
        ("matchPolicy", MATCH_POLICY),
        ("sideEffects", Required("must specify one of None, NoneOnDryRun")),
        ("sideEffects", OneOf(&["None", "NoneOnDryRun"])),
        ("timeoutSeconds", Within(1, 30, "the timeout value must be between 1 and 30 seconds")),
        ("namespaceSelector", SELECTOR),
        ("objectSelector", SELECTOR),
    ],
);

fn validating<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    hooks(at, &VALIDATING_HOOK, run);
}

fn mutating<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    hooks(at, &MUTATING_HOOK, run);
}

fn hooks<'v>(at: &At<'v, '_>, shape: &Shape, run: &mut Run<'v>) {
    let mut names = HashSet::new();
    for hook in at.items() {
        shape.check(&hook, run);
        let name = hook.field("name");
        if !name.is_empty() && !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
    }
}
