//! Validation of jobs and cron jobs.
//!
//! Failure and success policies are in `job_policies`, the status of a job in `job_status`, and the schedule of a cron
//! job in `schedule`.

mod job_policies;
mod job_status;
mod schedule;
#[cfg(test)]
mod tests;

use job_policies::{failure_policy, success_policy};
use job_status::STATUS;
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;

use crate::core::validation::pod::{TEMPLATE, restore};
use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN};
use crate::validating::selectors::{SELECTOR, is_sound, matches};
use crate::validating::type_rules::Rule::{Always, Check, Immutable, NonNegative, OneOf, OneOfIfSet, Required};
use crate::validating::type_rules::{IMMUTABLE, Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] =
    &[kind("CronJob").object(&CRON_JOB), kind("Job").object(&JOB).then(&JOB_UPDATE).below(&[("status", &STATUS)])];

const JOB: TypeRules = TypeRules::new(&[
    ("", Check("the generated selector and labels, unless `manualSelector` is set", generated_selector)),
    ("spec", Always(&SPEC)),
    ("spec", Always(&OWN_SELECTOR)),
    ("", Check("the names of pods with the largest index are DNS labels", indexed_name)),
]);

const OWN_SELECTOR: TypeRules = TypeRules::new(&[
    (
        "selector",
        Check("required", |at, run| {
            if !at.is_set() {
                at.required(run, "");
            }
        }),
    ),
    ("selector", SELECTOR),
    ("", Check("the selector matches the template", crate::core::validation::replication::template_fits)),
]);

/// The rules of jobs and of job templates.
const SPEC: TypeRules = TypeRules::shared(
    "Job spec",
    &[
        ("parallelism", NonNegative),
        ("completions", NonNegative),
        ("activeDeadlineSeconds", NonNegative),
        ("backoffLimit", NonNegative),
        ("ttlSecondsAfterFinished", NonNegative),
        ("backoffLimitPerIndex", NonNegative),
        ("maxFailedIndexes", NonNegative),
        ("", Check("maxFailedIndexes only with backoffLimitPerIndex", limits_per_index)),
        ("managedBy", Check("domain and path of at most 63 bytes", managed_by)),
        ("completionMode", OneOfIfSet(&["NonIndexed", "Indexed"])),
        (
            "",
            Check(
                "an indexed job requires `completions`; `parallelism` is at most 100000; `maxFailedIndexes` is at most `completions`",
                indexed,
            ),
        ),
        ("podFailurePolicy", Check("at most 20 rules, each with either exit codes or pod conditions", failure_policy)),
        ("successPolicy", Check("at most 20 rules, only for an indexed job", success_policy)),
        ("", Check("Failed, if the job has a failure policy", replacement)),
        ("template", Always(&TEMPLATE)),
        ("", Check("a restart policy other than Always", restarts)),
    ],
);

const JOB_UPDATE: TypeRules = TypeRules::new(&[("spec", Always(&SPEC_UPDATE))]);
const SPEC_UPDATE: TypeRules = TypeRules::new(&[
    ("completions", Check("immutable, but with parallelism where jobs are indexed", completions_stay)),
    ("selector", Immutable),
    ("template", Check("immutable, but for where pods may run while the job is suspended", template_stays)),
    ("completionMode", Immutable),
    ("podFailurePolicy", Immutable),
    ("backoffLimitPerIndex", Immutable),
    ("managedBy", Immutable),
    ("successPolicy", Immutable),
]);

const CRON_JOB: TypeRules = TypeRules::new(&[
    ("spec", Always(&CRON_SPEC)),
    (
        "metadata",
        Check("a name of at most 52 bytes", |at, run| {
            let name = at.field("name");
            if run.before.is_none() && name.text().len() > 52 {
                name.invalid(run, name.text(), "must be no more than 52 characters");
            }
        }),
    ),
]);

const CRON_SPEC: TypeRules = TypeRules::new(&[
    ("schedule", Required("")),
    ("schedule", Check("cron schedule without a time zone", schedule::schedule)),
    ("startingDeadlineSeconds", NonNegative),
    ("timeZone", Check("name of a time zone", schedule::time_zone)),
    ("concurrencyPolicy", Required("")),
    ("concurrencyPolicy", OneOf(&["Allow", "Forbid", "Replace"])),
    ("jobTemplate", Always(&JOB_TEMPLATE)),
    ("successfulJobsHistoryLimit", NonNegative),
    ("failedJobsHistoryLimit", NonNegative),
]);

const JOB_TEMPLATE: TypeRules = TypeRules::new(&[
    ("spec", Always(&SPEC)),
    (
        "spec",
        Check("no label selector", |at, run| {
            let (selector, manual) = (at.field("selector"), at.field("manualSelector"));
            if selector.is_set() {
                selector.invalid(run, selector.shown(), "`selector` will be auto-generated");
            }
            if manual.is_true() {
                manual.not_supported(run, true, &["nil", "false"]);
            }
        }),
    ),
]);

/// The labels that identify the pods of a job. The flag is true for the uid of the job, false for its name.
const LABELS: [(&str, bool); 4] = [
    ("controller-uid", true),
    ("job-name", false),
    ("batch.kubernetes.io/controller-uid", true),
    ("batch.kubernetes.io/job-name", false),
];

fn generated_selector(job: &At<'_, '_>, run: &mut Run<'_>) {
    let (metadata, spec) = (job.field("metadata"), job.field("spec"));
    let selector = spec.field("selector");
    // Like upstream, this is only validated when a job is created.
    if run.before.is_some() || spec.field("manualSelector").is_true() || !selector.is_set() {
        return;
    }
    let template = spec.field("template");
    let of_pods = template.field("metadata");
    let labels = of_pods.field("labels");
    let mut expected = keelson_meta::json::Map::new();
    for (label, is_uid) in LABELS {
        let value = metadata.field(if is_uid { "uid" } else { "name" }).text();
        expected.insert(label, value);
        let place = labels.key(label);
        if !place.is_set() {
            place.required(run, format!("must be '{value}'"));
        } else if place.text() != value {
            place.invalid(run, labels.shown(), format!("must be '{value}'"));
        }
    }
    if is_sound(&selector) && !matches(selector.value, &Value::Object(expected)) {
        selector.invalid(run, selector.shown(), "`selector` not auto-generated");
    }
}

fn indexed_name(job: &At<'_, '_>, run: &mut Run<'_>) {
    let (metadata, spec) = (job.field("metadata"), job.field("spec"));
    let completions = spec.field("completions").int();
    if run.before.is_some() || spec.field("completionMode").text() != "Indexed" || completions < 1 {
        return;
    }
    let name = metadata.field("name");
    let host = format!("{}-{}", name.text(), completions - 1);
    if !DNS_LABEL.faults(&host).is_empty() {
        name.invalid(run, name.text(), format!("will not able to create pod with invalid DNS label: {host}"));
    }
}

fn limits_per_index(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let limit = spec.field("backoffLimitPerIndex");
    if spec.field_is_set("maxFailedIndexes") && !limit.is_set() {
        limit.required(run, "when maxFailedIndexes is specified");
    }
}

fn managed_by(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 63;
    if !at.is_set() {
        return;
    }
    domain_prefixed_path(at, run);
    if at.text().len() > MOST {
        at.too_long(run, MOST);
    }
}

/// A domain, a slash, and a path.
pub(crate) fn domain_prefixed_path(at: &At<'_, '_>, run: &mut Run<'_>) {
    match at.text().split_once('/') {
        _ if at.is_empty() => at.required(run, ""),
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            for fault in DNS_SUBDOMAIN.faults(domain) {
                at.invalid(run, domain, fault);
            }
            let fits = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/%".contains(c);
            if !path.chars().all(fits) {
                at.invalid(run, path, "Invalid path");
            }
        }
        _ => at.invalid(run, at.text(), "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

const INDEXES_MAX: i64 = 100_000;
const HIGH_COMPLETIONS_MAX: i64 = 10_000;

fn indexed(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let [completions, parallelism, failed, limit] =
        ["completions", "parallelism", "maxFailedIndexes", "backoffLimitPerIndex"].map(|field| spec.field(field));
    match spec.field("completionMode").text() {
        "Indexed" => {}
        "NonIndexed" => {
            for field in [&limit, &failed].into_iter().filter(|field| field.is_set()) {
                field.invalid(run, field.int(), "requires indexed completion mode");
            }
            return;
        }
        _ => return,
    }
    if !completions.is_set() {
        completions.required(run, "when completion mode is Indexed");
    }
    if parallelism.int() > INDEXES_MAX {
        let detail = format!("must be less than or equal to {INDEXES_MAX} when completion mode is Indexed");
        parallelism.invalid(run, parallelism.int(), detail);
    }
    if completions.is_set() && failed.is_set() && failed.int() > completions.int() {
        failed.invalid(run, failed.int(), "must be less than or equal to completions");
    }
    if failed.int() > INDEXES_MAX {
        failed.invalid(run, failed.int(), format!("must be less than or equal to {INDEXES_MAX}"));
    }
    if completions.int() <= INDEXES_MAX || !limit.is_set() {
        return;
    }
    if !failed.is_set() {
        failed.required(run, format!("must be specified when completions is above {INDEXES_MAX}"));
    }
    for field in [&parallelism, &failed].into_iter().filter(|field| field.int() > HIGH_COMPLETIONS_MAX) {
        let detail = format!(
            "must be less than or equal to {HIGH_COMPLETIONS_MAX} when completions are above {INDEXES_MAX} and used with \
             backoff limit per index"
        );
        field.invalid(run, field.int(), detail);
    }
}

fn replacement(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let policy = spec.field("podReplacementPolicy");
    let known: &[&str] =
        if spec.field_is_set("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if policy.is_set() && !known.contains(&policy.text()) {
        policy.not_supported(run, policy.text(), known);
    }
}

fn restarts(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let template = spec.field("template");
    let pod = template.field("spec");
    let policy = pod.field("restartPolicy");
    match policy.text() {
        "" | "Always" => {
            policy.required(run, format!("valid values: {}, {}", quote("OnFailure"), quote("Never")));
        }
        "OnFailure" if spec.field_is_set("podFailurePolicy") => {
            policy.invalid(run, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        other => policy.not_supported(run, other, &["OnFailure", "Never"]),
    }
}

fn completions_stay(at: &At<'_, '_>, run: &mut Run<'_>) {
    let Some(spec) = at.parent().filter(|_| !at.is_unchanged()) else { return };
    if spec.field("completionMode").text() != "Indexed" {
        at.invalid(run, at.shown(), IMMUTABLE);
    } else if at.is_set() && at.int() != spec.field("parallelism").int() {
        at.invalid(run, at.int(), "can only be modified in tandem with spec.parallelism");
    }
}

/// A queue controller may change the scheduling of the pods, as long as the job has never started.
fn template_stays(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_unchanged() {
        return;
    }
    let mut same = at.value.clone();
    if may_be_placed(run) {
        if let Some(pod) = same.get_mut("spec") {
            let old = at.old.get("spec").unwrap_or(&Value::Null);
            for field in ["nodeSelector", "tolerations", "schedulingGates"] {
                restore(pod, old, field);
            }
            restore_node_affinity(pod, old);
        }
        if let Some(metadata) = same.get_mut("metadata") {
            let old = at.old.get("metadata").unwrap_or(&Value::Null);
            restore(metadata, old, "annotations");
            restore(metadata, old, "labels");
        }
    }
    if same != *at.old {
        at.invalid(run, at.shown(), IMMUTABLE);
    }
}

fn may_be_placed(run: &Run<'_>) -> bool {
    run.before.is_some_and(|job| {
        let suspended = job.get(&["spec", "suspend"]).and_then(Value::as_bool) == Some(true);
        suspended && job.get(&["status", "startTime"]).is_none_or(Value::is_null)
    })
}

fn restore_node_affinity(pod: &mut Value, old: &Value) {
    let nodes = "nodeAffinity";
    let old_affinity = old.get("affinity").unwrap_or(&Value::Null);
    if pod.get("affinity").is_none() {
        let only_nodes = old_affinity.as_object().is_some_and(|old| old.keys().all(|name| name == nodes));
        if only_nodes {
            restore(pod, old, "affinity");
        }
        return;
    }
    if let Some(affinity) = pod.get_mut("affinity") {
        restore(affinity, old_affinity, nodes);
    }
    if pod.get("affinity").is_some_and(crate::validating::at::is_empty) {
        restore(pod, old, "affinity");
    }
}
