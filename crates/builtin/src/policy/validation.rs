//! Validation of pod disruption budgets: the number of pods that must be available, or that may be unavailable.
//!
//! Exactly one of the two is set, as a number or a percentage.

#[cfg(test)]
mod tests;

use crate::apps::validation::{at_most_all, number_or_percent};
use crate::validating::at::At;
use crate::validating::selectors::SELECTOR;
use crate::validating::type_rules::Rule::{Always, Check, NonNegative, OneOf};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[kind("PodDisruptionBudget").object(&BUDGET).below(&[("status", &STATUS)])];

const BUDGET: TypeRules = TypeRules::new(&[("spec", Always(&SPEC))]);
const SPEC: TypeRules = TypeRules::new(&[
    ("", Check("either minAvailable or maxUnavailable", not_both)),
    ("minAvailable", Check("number or percentage up to 100%", amount)),
    ("maxUnavailable", Check("number or percentage up to 100%", amount)),
    ("selector", SELECTOR),
    ("unhealthyPodEvictionPolicy", OneOf(&["AlwaysAllow", "IfHealthyBudget"])),
]);

const STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[
                ("disruptionsAllowed", NonNegative),
                ("currentHealthy", NonNegative),
                ("desiredHealthy", NonNegative),
                ("expectedPods", NonNegative),
            ])
        },
    ),
)]);

fn not_both(spec: &At<'_, '_>, run: &mut Run<'_>) {
    if spec.field_is_set("minAvailable") && spec.field_is_set("maxUnavailable") {
        spec.invalid(run, spec.shown(), "minAvailable and maxUnavailable cannot be both set");
    }
}

fn amount(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_set() {
        number_or_percent(at, run);
        at_most_all(at, run);
    }
}
