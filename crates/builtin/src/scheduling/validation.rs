//! Validation of priority classes. `groups.rs` validates workloads and groups of pods.
//!
//! Admission checks that there is only one default class, since that depends on other objects.

mod groups;
#[cfg(test)]
mod tests;

use self::groups::{COMPOSITE, COMPOSITE_STATUS, POD_GROUP, POD_GROUP_STATUS, WORKLOAD};

use crate::validating::at::At;
use crate::validating::type_rules::Rule::{Check, Immutable};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("PriorityClass").object(&CLASS).then(&UPDATE),
    kind("Workload").object(&WORKLOAD),
    kind("PodGroup").object(&POD_GROUP).below(&[("status", &POD_GROUP_STATUS)]),
    kind("CompositePodGroup").object(&COMPOSITE).below(&[("status", &COMPOSITE_STATUS)]),
];

const CLASS: TypeRules = TypeRules::new(&[(
    "",
    Check(
        "a new object: at most 1000000000 and no name that begins with `system-`, except for the two system classes; a preemption policy of PreemptLowerPriority or Never",
        new_class,
    ),
)]);

const UPDATE: TypeRules = TypeRules::new(&[
    (
        "value",
        Check("immutable", |at, run| {
            if at.int() != at.old.as_i64().unwrap_or_default() {
                at.forbidden(run, "may not be changed in an update.");
            }
        }),
    ),
    ("preemptionPolicy", Immutable),
]);

/// The name prefix that users cannot use.
const RESERVED: &str = "system-";
/// The allowed classes with this prefix, and their values.
const SYSTEM: [(&str, i64); 2] = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
/// The largest value that users can set.
const USER_MAX: i64 = 1_000_000_000;

fn new_class(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_some() {
        return;
    }
    let metadata = at.field("metadata");
    let (name, value, policy) = (metadata.field("name"), at.field("value"), at.field("preemptionPolicy"));
    if name.text().starts_with(RESERVED) {
        if let Some(fault) = system_fault(name.text(), value.int(), at.field("globalDefault").is_true()) {
            let intro = format!("priority class names with '{RESERVED}' prefix are reserved for system use only.");
            name.forbidden(run, format!("{intro} error: {fault}"));
        }
    } else if value.int() > USER_MAX {
        value.forbidden(run, format!("maximum allowed value of a user defined priority is {USER_MAX}"));
    }
    match policy.text() {
        _ if !policy.is_set() => {}
        "PreemptLowerPriority" | "Never" => {}
        "" => policy.required(run, ""),
        other => policy.not_supported(run, other, &["PreemptLowerPriority", "Never"]),
    }
}

fn system_fault(name: &str, value: i64, default: bool) -> Option<String> {
    match SYSTEM.iter().find(|(known, _)| *known == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, fixed)) if *fixed != value => Some(format!("value of {name} PriorityClass must be {fixed}")),
        Some(_) if default => Some(format!("globalDefault of {name} PriorityClass must be false")),
        Some(_) => None,
    }
}
