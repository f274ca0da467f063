//! Validation of workloads and of groups of pods.
//!
//! The rules are the markers of the Go types. Most fields cannot change.

use crate::validating::at::At;
use crate::validating::conditions::CONDITIONS;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, PATH_SEGMENT, QUALIFIED_NAME};
use crate::validating::type_rules::Rule::{
    self, Always, Check, Each, In, MaxItems, OneOfIfSet, Required, With, Within,
};
use crate::validating::type_rules::{IMMUTABLE, Run, TypeRules};
use crate::validating::unions::{exactly_one, fixed_items, stays_set_or_unset};

/// The largest priority of a user's class.
const MAX_PRIORITY: i64 = 1_000_000_000;
/// The largest number of templates in one list.
const MAX_TEMPLATES: usize = 8;
/// The largest number of claims of a group.
const MAX_CLAIMS: usize = 4;
/// The largest depth of templates below a workload.
const MAX_DEPTH: usize = 4;

pub(super) const WORKLOAD: TypeRules = TypeRules::new(&[("spec", Always(&WORKLOAD_SPEC))]);
pub(super) const POD_GROUP: TypeRules = TypeRules::new(&[("spec", Always(&POD_GROUP_SPEC))]);
pub(super) const POD_GROUP_STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[
                ("conditions", CONDITIONS),
                ("resourceClaimStatuses", MaxItems(MAX_CLAIMS)),
                ("resourceClaimStatuses", Each(&CLAIM_STATUS)),
            ])
        },
    ),
)]);
pub(super) const COMPOSITE: TypeRules = TypeRules::new(&[("spec", Always(&COMPOSITE_SPEC))]);
pub(super) const COMPOSITE_STATUS: TypeRules =
    TypeRules::new(&[("status", Always(&const { TypeRules::new(&[("conditions", CONDITIONS)]) }))]);

const WORKLOAD_SPEC: TypeRules = TypeRules::new(&[
    ("controllerRef", FIXED),
    ("controllerRef", In(&CONTROLLER)),
    (
        "",
        Check("either `podGroupTemplates` or `compositePodGroupTemplates`", |at, run| {
            exactly_one(at, run, &["podGroupTemplates", "compositePodGroupTemplates"]);
        }),
    ),
    ("podGroupTemplates", TEMPLATES),
    ("compositePodGroupTemplates", COMPOSITE_TEMPLATES),
]);

const CONTROLLER: TypeRules = TypeRules::new(&[
    ("apiGroup", Rule::Format(&DNS_SUBDOMAIN)),
    ("kind", Required("")),
    ("kind", Rule::Format(&PATH_SEGMENT)),
    ("name", Required("")),
    ("name", Rule::Format(&PATH_SEGMENT)),
]);

/// A field that an update does not change.
const FIXED: Rule = Check("immutable", |at, run| {
    if run.before.is_some() && !at.is_unchanged() {
        at.invalid(run, at.shown(), IMMUTABLE);
    }
});

const TEMPLATES: Rule = With(
    "up to 8 templates with unique names. An update neither adds nor removes any",
    |at, run| fixed_items(at, run, MAX_TEMPLATES, &TEMPLATE),
    &TEMPLATE,
);

const TEMPLATE: TypeRules = TypeRules::shared(
    "template of a group of pods",
    &[
        ("name", Required("")),
        ("name", Rule::Format(&DNS_LABEL)),
        ("schedulingPolicy", Always(&POLICY)),
        ("schedulingConstraints", FIXED),
        ("schedulingConstraints", In(&CONSTRAINTS)),
        ("resourceClaims", FIXED),
        ("resourceClaims", CLAIMS),
        ("resourceClaims", Each(&CLAIM)),
        ("", Always(&PRIORITY_FIELDS)),
    ],
);

const COMPOSITE_TEMPLATES: Rule = With(
    "up to 8 templates with unique names, up to 4 levels deep. An update neither adds nor removes any",
    composite_templates,
    &COMPOSITE_TEMPLATE,
);

const COMPOSITE_TEMPLATE: TypeRules = TypeRules::new(&[
    ("name", Required("")),
    ("name", Rule::Format(&DNS_LABEL)),
    ("schedulingPolicy", Always(&COMPOSITE_POLICY)),
    ("schedulingConstraints", FIXED),
    ("schedulingConstraints", In(&CONSTRAINTS)),
    ("", Always(&PRIORITY_FIELDS)),
    ("podGroupTemplates", TEMPLATES),
    ("compositePodGroupTemplates", Check("templates of the same form", composite_templates)),
]);

const POD_GROUP_SPEC: TypeRules = TypeRules::new(&[
    ("parentCompositePodGroupName", FIXED),
    ("parentCompositePodGroupName", Rule::Format(&DNS_SUBDOMAIN)),
    (
        "workloadRef",
        Check("required with `parentCompositePodGroupName`", |at, run| {
            if !at.is_set() && at.parent().is_some_and(|spec| spec.field_is_set("parentCompositePodGroupName")) {
                at.required(run, "must be specified when `parentCompositePodGroupName` is specified");
            }
        }),
    ),
    ("workloadRef", FIXED),
    ("workloadRef", In(&WORKLOAD_REFERENCE)),
    ("schedulingPolicy", Always(&POLICY)),
    ("schedulingConstraints", FIXED),
    ("schedulingConstraints", In(&CONSTRAINTS)),
    ("resourceClaims", FIXED),
    ("resourceClaims", CLAIMS),
    ("resourceClaims", Each(&CLAIM)),
    ("", Always(&PRIORITY_FIELDS)),
]);

const COMPOSITE_SPEC: TypeRules = TypeRules::new(&[
    ("parentCompositePodGroupName", FIXED),
    ("parentCompositePodGroupName", Rule::Format(&DNS_SUBDOMAIN)),
    ("workloadRef", Required("")),
    ("workloadRef", FIXED),
    ("workloadRef", In(&WORKLOAD_REFERENCE)),
    ("schedulingPolicy", Always(&COMPOSITE_POLICY)),
    ("schedulingConstraints", FIXED),
    ("schedulingConstraints", In(&CONSTRAINTS)),
    ("", Always(&PRIORITY_FIELDS)),
]);

/// The fields of a group and of its templates that decide its preemption.
const PRIORITY_FIELDS: TypeRules = TypeRules::new(&[
    ("disruptionMode", FIXED),
    ("disruptionMode", In(&DISRUPTION)),
    ("priorityClassName", FIXED),
    ("priorityClassName", Rule::Format(&DNS_SUBDOMAIN)),
    ("priority", FIXED),
    ("priority", PRIORITY),
    ("preemptionPolicy", FIXED),
    ("preemptionPolicy", PREEMPTION),
]);

const WORKLOAD_REFERENCE: TypeRules = TypeRules::new(&[
    ("workloadName", Required("")),
    ("workloadName", Rule::Format(&DNS_SUBDOMAIN)),
    ("templateName", Required("")),
    ("templateName", Rule::Format(&DNS_LABEL)),
]);

const POLICY: TypeRules = TypeRules::shared(
    "scheduling policy of a group of pods",
    &[
        ("", Check("either `basic` or `gang`", |at, run| exactly_one(at, run, &["basic", "gang"]))),
        ("basic", FIXED),
        ("gang", STAYS),
        ("gang", In(&const { TypeRules::new(&[("minCount", COUNT)]) })),
    ],
);
const COMPOSITE_POLICY: TypeRules = TypeRules::shared(
    "scheduling policy of a group of groups",
    &[
        ("", Check("either `basic` or `gang`", |at, run| exactly_one(at, run, &["basic", "gang"]))),
        ("basic", FIXED),
        ("gang", STAYS),
        ("gang", In(&const { TypeRules::new(&[("minGroupCount", COUNT)]) })),
    ],
);
const STAYS: Rule = Check("an update neither sets nor clears it", stays_set_or_unset);
const COUNT: Rule = Check("at least 1", |at, run| match at.int() {
    0 => at.required(run, ""),
    count if count < 0 => at.invalid(run, count, "must be greater than or equal to 1"),
    _ => {}
});

const CONSTRAINTS: TypeRules = TypeRules::shared(
    "scheduling constraints of a group",
    &[
        ("topology", MaxItems(1)),
        ("topology", Each(&const { TypeRules::new(&[("key", Required("")), ("key", Rule::Format(&QUALIFIED_NAME))]) })),
    ],
);
const DISRUPTION: TypeRules =
    TypeRules::new(&[("", Check("either `single` or `all`", |at, run| exactly_one(at, run, &["single", "all"])))]);
const PRIORITY: Rule = Within(i64::MIN, MAX_PRIORITY, "must be less than or equal to 1000000000");
const PREEMPTION: Rule = OneOfIfSet(&["PreemptLowerPriority", "Never"]);

const CLAIMS: Rule = MaxItems(MAX_CLAIMS);
const CLAIM: TypeRules = TypeRules::shared(
    "claim of a group of pods",
    &[
        ("name", Required("")),
        ("name", Rule::Format(&DNS_LABEL)),
        (
            "",
            Check("either `resourceClaimName` or `resourceClaimTemplateName`", |at, run| {
                exactly_one(at, run, &["resourceClaimName", "resourceClaimTemplateName"]);
            }),
        ),
        ("resourceClaimName", Rule::Format(&DNS_SUBDOMAIN)),
        ("resourceClaimTemplateName", Rule::Format(&DNS_SUBDOMAIN)),
    ],
);
const CLAIM_STATUS: TypeRules =
    TypeRules::new(&[("name", Required("")), ("resourceClaimName", Rule::Format(&DNS_SUBDOMAIN))]);

/// Validates a list of templates of groups of groups. Deeper lists than [`MAX_DEPTH`] are refused at the first level
/// that is too deep.
fn composite_templates<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    if at.is_set() && depth(at) > MAX_DEPTH {
        return at.forbidden(run, format!("templates may be at most {MAX_DEPTH} levels deep"));
    }
    fixed_items(at, run, MAX_TEMPLATES, &COMPOSITE_TEMPLATE);
}

/// The number of lists of templates from the workload to this one, with that of its pods.
fn depth(at: &At<'_, '_>) -> usize {
    let mut depth = 1;
    let mut place = at.parent();
    while let Some(above) = place {
        depth += usize::from(above.is_set() && above.value.is_array());
        place = above.parent();
    }
    depth + 1
}
