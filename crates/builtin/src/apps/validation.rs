//! Validation of workloads: deployments, replica sets, stateful sets, daemon sets and controller revisions.
//!
//! The selector of a workload never changes, and must match its template.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use keelson_meta::json::{Value, json};

use crate::core::validation::pod::TEMPLATE;
use crate::core::validation::replication::{
    CONTROLLER_STATUS, always_restarted, disks_can_be_shared, parts, template_fits,
};
use crate::core::validation::volume_claims;
use crate::validating::at::At;
use crate::validating::formats::DNS_LABEL;
use crate::validating::selectors::{SELECTOR, is_everything, is_sound};
use crate::validating::type_rules::Rule::{self, Always, Around, Check, Immutable, In, NonNegative, Required, With};
use crate::validating::type_rules::{Kind, NEGATIVE, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("ControllerRevision").object(&REVISION).then(&REVISION_UPDATE),
    kind("DaemonSet").object(&DAEMON_SET).then(&SELECTOR_STAYS).below(&[("status", &DAEMON_SET_STATUS)]),
    kind("Deployment").object(&DEPLOYMENT).then(&SELECTOR_STAYS).below(&[("status", &DEPLOYMENT_STATUS)]),
    kind("ReplicaSet").object(&REPLICA_SET).then(&SELECTOR_STAYS).below(&[("status", &CONTROLLER_STATUS)]),
    kind("StatefulSet").object(&STATEFUL_SET).then(&STATEFUL_SET_UPDATE).below(&[("status", &STATEFUL_SET_STATUS)]),
];

const SELECTOR_STAYS: TypeRules =
    TypeRules::new(&[("spec", Always(&const { TypeRules::new(&[("selector", Immutable)]) }))]);

const REVISION: TypeRules = TypeRules::new(&[("data", STATED), ("revision", NonNegative)]);

/// The data must be present. It may be an empty object.
const STATED: Rule = Check("data is required", |at, run| {
    if !at.is_set() {
        at.required(run, "data is mandatory");
    }
});
const REVISION_UPDATE: TypeRules = TypeRules::new(&[("data", Immutable)]);

const DEPLOYMENT: TypeRules = TypeRules::new(&[("spec", Always(&DEPLOYMENT_SPEC))]);
const DEPLOYMENT_SPEC: TypeRules = TypeRules::new(&[
    ("replicas", NonNegative),
    ("selector", NEEDED_SELECTOR),
    ("selector", SELECTOR),
    ("selector", Check("not empty", |at, run| not_everything(at, "deployment", run))),
    ("template", PODS_OF_REPLICA_SETS),
    ("strategy", Check("Recreate, or RollingUpdate with numbers or percentages that allow progress", strategy)),
    ("minReadySeconds", NonNegative),
    ("revisionHistoryLimit", NonNegative),
    ("progressDeadlineSeconds", NonNegative),
    ("progressDeadlineSeconds", Check("greater than minReadySeconds", progress_deadline)),
]);

const REPLICA_SET: TypeRules = TypeRules::new(&[("spec", Always(&REPLICA_SET_SPEC))]);
const REPLICA_SET_SPEC: TypeRules = TypeRules::new(&[
    ("replicas", NonNegative),
    ("minReadySeconds", NonNegative),
    ("selector", NEEDED_SELECTOR),
    ("selector", SELECTOR),
    ("selector", Check("not empty", |at, run| not_everything(at, "deployment", run))),
    ("template", PODS_OF_REPLICA_SETS),
]);

const PODS_OF_REPLICA_SETS: Rule = Around(
    "a template that the selector matches, with restart policy Always and without activeDeadlineSeconds",
    replicated_pods,
    &TEMPLATE,
);

const DAEMON_SET: TypeRules = TypeRules::new(&[("spec", Always(&DAEMON_SET_SPEC))]);
const DAEMON_SET_SPEC: TypeRules = TypeRules::new(&[
    ("selector", SELECTOR),
    ("", Check("the selector matches the template", template_fits)),
    ("selector", Check("not empty", |at, run| not_everything(at, "daemonset", run))),
    ("template", Always(&TEMPLATE)),
    (
        "template",
        Check("restart policy Always, and no activeDeadlineSeconds", |at, run| {
            disks_can_be_shared(at, run);
            always_restarted(at, "activeDeadlineSeconds in DaemonSet is not Supported", run);
        }),
    ),
    ("minReadySeconds", NonNegative),
    ("updateStrategy", Check("OnDelete, or RollingUpdate with either surge or unavailability", daemon_strategy)),
    ("revisionHistoryLimit", NonNegative),
]);

const STATEFUL_SET: TypeRules = TypeRules::new(&[("spec", Always(&STATEFUL_SET_SPEC))]);
const STATEFUL_SET_SPEC: TypeRules = TypeRules::new(&[
    ("podManagementPolicy", Required("")),
    ("podManagementPolicy", Check("OrderedReady or Parallel", management_policy)),
    ("updateStrategy", Check("OnDelete, or RollingUpdate with a partition", stateful_strategy)),
    (
        "persistentVolumeClaimRetentionPolicy",
        In(&const { TypeRules::new(&[("whenDeleted", RETENTION), ("whenScaled", RETENTION)]) }),
    ),
    ("replicas", NonNegative),
    ("minReadySeconds", NonNegative),
    ("ordinals", Check("a start of at least 0", ordinals)),
    ("serviceName", Check("DNS label, of a new one", service_name)),
    ("volumeClaimTemplates", With("of a new object", claim_templates, &CLAIM_TEMPLATE)),
    ("selector", NEEDED_SELECTOR),
    ("selector", SELECTOR),
    ("selector", Check("not empty", |at, run| not_everything(at, "statefulset", run))),
    (
        "template",
        Around(
            "a template that the selector matches, with restart policy Always; claims become volumes",
            stateful_pods,
            &TEMPLATE,
        ),
    ),
]);
const CLAIM_TEMPLATE: TypeRules = TypeRules::new(&[("spec", Always(&volume_claims::SPEC))]);
const RETENTION: Rule = Rule::StrictlyOneOf(&["Retain", "Delete"]);

const STATEFUL_SET_UPDATE: TypeRules = TypeRules::new(&[(
    "spec",
    Check(
        "only replicas, ordinals, template, updateStrategy, revisionHistoryLimit, persistentVolumeClaimRetentionPolicy and minReadySeconds can change",
        stateful_update,
    ),
)]);

/// The fields in the spec of a stateful set that an update may change.
const UPDATABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

const NEEDED_SELECTOR: Rule = Check("required", |at, run| {
    if !at.is_set() {
        at.required(run, "");
    }
});

const DEPLOYMENT_STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[
                ("observedGeneration", NonNegative),
                ("replicas", NonNegative),
                ("updatedReplicas", NonNegative),
                ("readyReplicas", NonNegative),
                ("availableReplicas", NonNegative),
                ("unavailableReplicas", NonNegative),
                ("terminatingReplicas", NonNegative),
                ("collisionCount", NonNegative),
                (
                    "",
                    Check("no count exceeds `replicas`", |at, run| {
                        parts(at, &["updatedReplicas", "readyReplicas", "availableReplicas"], run);
                    }),
                ),
                ("collisionCount", NOT_DECREMENTED),
            ])
        },
    ),
)]);

const DAEMON_SET_STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[
                ("currentNumberScheduled", NonNegative),
                ("numberMisscheduled", NonNegative),
                ("desiredNumberScheduled", NonNegative),
                ("numberReady", NonNegative),
                ("observedGeneration", NonNegative),
                ("updatedNumberScheduled", NonNegative),
                ("numberAvailable", NonNegative),
                ("numberUnavailable", NonNegative),
                ("collisionCount", NonNegative),
                ("collisionCount", NOT_DECREMENTED),
            ])
        },
    ),
)]);

const STATEFUL_SET_STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[
                ("replicas", NonNegative),
                ("readyReplicas", NonNegative),
                ("currentReplicas", NonNegative),
                ("updatedReplicas", NonNegative),
                ("availableReplicas", NonNegative),
                ("observedGeneration", NonNegative),
                ("collisionCount", NonNegative),
                ("", Check("no count exceeds `replicas`", stateful_parts)),
                ("collisionCount", NOT_DECREMENTED),
            ])
        },
    ),
)]);

const NOT_DECREMENTED: Rule = Check("must not decrease", |at, run| {
    if at.old.as_i64().is_some_and(|old| at.number().is_none_or(|new| new < old)) {
        at.invalid(run, at.int(), "cannot be decremented");
    }
});

fn stateful_parts(status: &At<'_, '_>, run: &mut Run<'_>) {
    parts(status, &["readyReplicas", "currentReplicas", "updatedReplicas"], run);
    let (total, ready) = (status.field("replicas").int(), status.field("readyReplicas").int());
    let available = status.field("availableReplicas");
    if available.int() > total {
        available.invalid(run, available.int(), "cannot be greater than status.replicas");
    }
    if available.int() > ready {
        available.invalid(run, available.int(), "cannot be greater than status.readyReplicas");
    }
}

/// Like upstream, the template is not validated if the selector is invalid.
fn replicated_pods<'v>(template: &At<'v, '_>, run: &mut Run<'v>) {
    let Some(spec) = template.parent() else { return };
    let selector = spec.field("selector");
    if !is_sound(&selector) {
        return selector.invalid(run, selector.shown(), "invalid label selector");
    }
    template_fits(spec, run);
    TEMPLATE.check(template, run);
    if spec.field("replicas").int() > 1 {
        disks_can_be_shared(template, run);
    }
    always_restarted(template, "activeDeadlineSeconds in ReplicaSet is not Supported", run);
}

fn stateful_pods<'v>(template: &At<'v, '_>, run: &mut Run<'v>) {
    let Some(spec) = template.parent() else { return };
    let selector = spec.field("selector");
    if is_sound(&selector) {
        template_fits(spec, run);
        stateful_template(spec, template, run);
    } else {
        selector.invalid(run, selector.shown(), "");
    }
    always_restarted(template, "activeDeadlineSeconds in StatefulSet is not Supported", run);
}

/// Validates the template with the volumes of its pods. The volumes of claim templates come first.
///
/// Older servers validated less. So an update may keep a template that was never valid.
fn stateful_template(spec: &At<'_, '_>, template: &At<'_, '_>, run: &mut Run<'_>) {
    let claims = spec.field("volumeClaimTemplates");
    let (new, old) = (with_claims(template.value, claims.value), with_claims(template.old, claims.old));
    let faults_of = |value: &Value, before: &Value| {
        let mut whole = Run::new(run.object, run.before);
        TEMPLATE.check(&template.between(value, before), &mut whole);
        whole.faults
    };
    let faults = faults_of(&new, &old);
    if run.before.is_none() || faults.is_empty() || faults_of(&old, &old).is_empty() {
        run.faults.extend(faults);
    }
}

/// The template with a volume for each claim template before its own volumes. Own volumes with the name of a claim are
/// omitted.
fn with_claims(template: &Value, claims: &Value) -> Value {
    let mut template = template.clone();
    let claims = claims.as_array().map_or(&[][..], Vec::as_slice);
    let Some(Value::Object(spec)) = template.get_mut("spec").filter(|_| !claims.is_empty()) else { return template };
    let name = |claim: &Value| claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut names = HashSet::new();
    let made = claims.iter().map(name).filter(|name| names.insert(name.clone()));
    let mut volumes: Vec<Value> =
        made.map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })).collect();
    if let Some(Value::Array(own)) = spec.remove("volumes") {
        let is_own = |volume: &Value| !names.contains(volume["name"].as_str().unwrap_or_default());
        volumes.extend(own.into_iter().filter(is_own));
    }
    spec.insert("volumes", volumes);
    template
}

fn service_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_none() && !at.is_empty() {
        at.complain(run, DNS_LABEL.faults(at.text()));
    }
}

fn claim_templates<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    if run.before.is_none() {
        at.items().for_each(|claim| CLAIM_TEMPLATE.check(&claim, run));
    }
}

fn not_everything(at: &At<'_, '_>, workload: &str, run: &mut Run<'_>) {
    if at.is_set() && is_everything(at.value) {
        at.invalid(run, at.shown(), format!("empty selector is invalid for {workload}"));
    }
}

fn progress_deadline(at: &At<'_, '_>, run: &mut Run<'_>) {
    let ready = at.parent().map_or(0, |spec| spec.field("minReadySeconds").int());
    if at.number().is_some_and(|deadline| deadline <= ready) {
        at.invalid(run, at.int(), "must be greater than minReadySeconds");
    }
}

fn strategy(at: &At<'_, '_>, run: &mut Run<'_>) {
    let rolling = at.field("rollingUpdate");
    match at.field("type").text() {
        "Recreate" if rolling.is_set() => {
            rolling.forbidden(run, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" if !rolling.is_set() => rolling.required(run, "this should be defaulted and never be nil"),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.field("maxUnavailable"), rolling.field("maxSurge"));
            number_or_percent(&unavailable, run);
            number_or_percent(&surge, run);
            if count(&unavailable) == 0 && count(&surge) == 0 {
                unavailable.invalid(run, unavailable.shown(), "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(&unavailable, run);
        }
        _ => at.not_supported(run, at.shown(), &["Recreate", "RollingUpdate"]),
    }
}

fn daemon_strategy(at: &At<'_, '_>, run: &mut Run<'_>) {
    let rolling = at.field("rollingUpdate");
    match at.field("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => rolling.required(run, ""),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.field("maxUnavailable"), rolling.field("maxSurge"));
            for limit in [&unavailable, &surge] {
                number_or_percent(limit, run);
            }
            for limit in [&unavailable, &surge] {
                at_most_all(limit, run);
            }
            match (count(&unavailable) != 0, count(&surge) != 0) {
                (true, true) => {
                    surge.invalid(run, surge.shown(), "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => unavailable.required(run, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => at.not_supported(run, at.shown(), &["RollingUpdate", "OnDelete"]),
    }
}

fn management_policy(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !matches!(at.text(), "" | "OrderedReady" | "Parallel") {
        at.invalid(run, at.text(), "must be 'OrderedReady' or 'Parallel'");
    }
}

fn stateful_strategy(at: &At<'_, '_>, run: &mut Run<'_>) {
    let rolling = at.field("rollingUpdate");
    match at.field("type").text() {
        "" => at.required(run, ""),
        "OnDelete" if rolling.is_set() => {
            rolling.invalid(run, rolling.shown(), "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            let (partition, unavailable) = (rolling.field("partition"), rolling.field("maxUnavailable"));
            if partition.int() < 0 {
                partition.invalid(run, partition.int(), NEGATIVE);
            }
            if unavailable.is_set() {
                number_or_percent(&unavailable, run);
                if count(&unavailable) == 0 {
                    unavailable.invalid(run, unavailable.shown(), "cannot be 0");
                }
                at_most_all(&unavailable, run);
            }
        }
        _ => at.invalid(run, at.shown(), "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// Like upstream, the error has the path of the field as one name.
fn ordinals(at: &At<'_, '_>, run: &mut Run<'_>) {
    let start = at.field("start").int();
    if let Some(spec) = at.parent().filter(|_| start < 0) {
        spec.field("ordinals.start").invalid(run, start, NEGATIVE);
    }
}

fn stateful_update(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let others = |tree: &Value| {
        let mut tree = tree.clone();
        if let Value::Object(tree) = &mut tree {
            tree.retain(|field, _| !UPDATABLE.contains(&field));
        }
        tree
    };
    if !spec.is_unchanged() && others(spec.value) != others(spec.old) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
        spec.forbidden(run, detail);
    }
}

/// A non-negative number, or a percentage.
pub(crate) fn number_or_percent(at: &At<'_, '_>, run: &mut Run<'_>) {
    const TEXT: &str = "a valid percent string must be a numeric string followed by an ending '%'";
    if let Value::String(text) = at.value {
        if percent(text).is_none() {
            let fault = keelson_meta::names::regex_fault(TEXT, "[0-9]+%", &["1%", "93%"]);
            at.invalid(run, text.as_str(), fault);
        }
    } else if at.int() < 0 {
        at.invalid(run, at.int(), NEGATIVE);
    }
}

/// A percentage must be at most 100%.
pub(crate) fn at_most_all(at: &At<'_, '_>, run: &mut Run<'_>) {
    if percent(at.text()).is_some_and(|percent| percent > 100) {
        at.invalid(run, at.text(), "must not be greater than 100%");
    }
}

fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    numeric.then(|| digits.parse().unwrap_or(i64::MAX))
}

fn count(at: &At<'_, '_>) -> i64 {
    at.number().or_else(|| percent(at.text())).or_else(|| at.text().parse().ok()).unwrap_or_default()
}
