//! Validation of runtime classes: the handler, the overhead, and the scheduling rules.
//!
//! The handler never changes, since pods depend on it.

#[cfg(test)]
mod tests;

use crate::core::validation::pod::resources;
use crate::core::validation::pod::scheduling::TOLERATION;
use crate::validating::at::At;
use crate::validating::formats::DNS_LABEL;
use crate::validating::selectors::LABELS;
use crate::validating::type_rules::Rule::{Check, Each, Immutable, In};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[kind("RuntimeClass").object(&CLASS).then(&UPDATE)];

const CLASS: TypeRules = TypeRules::new(&[
    ("handler", Check("DNS label", |at, run| at.complain(run, DNS_LABEL.faults(at.text())))),
    ("overhead", Check("resource quantities in podFixed", overhead)),
    ("scheduling", In(&SCHEDULING)),
]);

const SCHEDULING: TypeRules = TypeRules::new(&[("nodeSelector", LABELS), ("tolerations", Each(&TOLERATION))]);

const UPDATE: TypeRules = TypeRules::new(&[("handler", Immutable)]);

fn overhead(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_set() {
        resources::overhead(&at.holding(at.field("podFixed").value), run);
    }
}
