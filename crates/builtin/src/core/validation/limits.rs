//! Validation of limit ranges and resource quotas.
//!
//! The minimum, default and maximum of a limit must agree. The scopes of a quota determine the resources that it may
//! limit.

use std::collections::HashSet;

use keelson_meta::Quantity;
use keelson_meta::json::Value;

use crate::core::validation::pod::resources::{
    allows_overcommit, amount, container_resource_name, is_standard_quota, name, quantity,
};
use crate::validating::at::At;
use crate::validating::formats::QUALIFIED_NAME;
use crate::validating::type_rules::Rule::{Always, Check, With};
use crate::validating::type_rules::{IMMUTABLE, Run, TypeRules};

pub(super) const LIMIT_RANGE: TypeRules = TypeRules::new(&[(
    "spec",
    Always(&const { TypeRules::new(&[("limits", With("types without duplicates", limits, &LIMIT))]) }),
)]);

const LIMIT: TypeRules =
    TypeRules::new(&[("", Check("resources of the type; min, default and max in ascending order", limit))]);

pub(super) const QUOTA: TypeRules = TypeRules::new(&[
    ("spec", Always(&QUOTA_SPEC)),
    (
        "",
        Check("", |at, run| {
            if run.before.is_none() {
                QUOTA_STATUS.check(at, run);
            }
        }),
    ),
]);

const QUOTA_SPEC: TypeRules = TypeRules::new(&[
    ("hard", Check("quantities of resources that quotas support", amounts)),
    ("", Check("known scopes that match the resources and do not conflict", scopes)),
    ("", Check("known scopes, with valid operators and values", scope_selector)),
]);

pub(super) const QUOTA_UPDATE: TypeRules = TypeRules::new(&[("spec", Check("scopes are immutable", scopes_stay))]);

pub(super) const QUOTA_STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const { TypeRules::new(&[("hard", Check("quantities", amounts)), ("used", Check("quantities", amounts))]) },
    ),
)]);

fn limits<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let mut types = HashSet::new();
    for item in at.items() {
        let kind = item.field("type");
        limit_type(&kind, run);
        if !types.insert(kind.text()) {
            kind.duplicate(run, kind.text());
        }
        LIMIT.check(&item, run);
    }
}

fn limit_type(at: &At<'_, '_>, run: &mut Run<'_>) {
    const STANDARD: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];
    let faults = QUALIFIED_NAME.faults(at.text());
    if faults.is_empty() && !at.text().contains('/') && !STANDARD.contains(&at.text()) {
        at.invalid(run, at.text(), "must be a standard limit type or fully qualified");
    }
    at.complain(run, faults);
}

fn limit<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let kind = at.field("type").text();
    let mut resources: Vec<&str> = Vec::new();
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let of_claims = list == "maxLimitRequestRatio" && kind == "PersistentVolumeClaim";
        if of_claims
            && !["min", "max"].iter().any(|bound| at.value.get(bound).is_some_and(|list| list.get("storage").is_some()))
        {
            at.field("limits")
                .required(run, "either minimum or maximum storage value is required, but neither was provided");
        }
        let amounts = at.field(list);
        if kind == "Pod" && list.starts_with("default") {
            if !amounts.is_empty() {
                amounts.forbidden(run, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (resource, entry) in amounts.entries() {
            match kind {
                "Pod" | "Container" => container_resource_name(&entry, resource, run),
                _ => {
                    name(&entry, resource, run);
                }
            }
            resources.push(resource);
        }
    }
    resources.sort_unstable();
    resources.dedup();
    resources.into_iter().for_each(|resource| bounds(at, resource, run));
}

fn bounds<'v>(at: &At<'v, '_>, resource: &'v str, run: &mut Run<'v>) {
    let pod = at.field("type").text() == "Pod";
    let lists = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"].map(|list| at.field(list));
    let [min, max, default, request, ratio] = lists.each_ref().map(|list| list.key(resource));
    let above = |left: &At<'_, '_>, right: &At<'_, '_>| {
        amount(left).zip(amount(right)).is_some_and(|(left, right)| left > right)
    };
    if above(&min, &max) {
        min.invalid(run, min.text(), format!("min value {} is greater than max value {}", min.text(), max.text()));
    }
    if !pod {
        let pairs = [
            (&min, &request, &request, &request, "min value", "default request value"),
            (&request, &max, &request, &request, "default request value", "max value"),
            (&request, &default, &request, &request, "default request value", "default limit value"),
            (&min, &default, &default, &min, "min value", "default value"),
            (&default, &max, &default, &max, "default value", "max value"),
        ];
        for (small, large, place, shown, what, than) in pairs {
            if above(small, large) {
                let detail = format!("{what} {} is greater than {than} {}", small.text(), large.text());
                place.invalid(run, shown.text(), detail);
            }
        }
    }
    if amount(&ratio).is_some_and(|ratio| ratio < Quantity::units(1)) {
        ratio.invalid(run, ratio.text(), format!("ratio {} is less than 1", ratio.text()));
    }
    if let (Some(most), Some(least), Some(limit)) = (amount(&max), amount(&min), amount(&ratio)) {
        let bound = most.over(least);
        if limit.over(Quantity::units(1)) > bound {
            ratio.invalid(run, ratio.text(), format!("ratio {} is greater than max/min = {bound:.6}", ratio.text()));
        }
    }
    if !pod
        && !allows_overcommit(resource)
        && default.is_set()
        && request.is_set()
        && amount(&default) != amount(&request)
    {
        let detail = format!(
            "default value {} must equal to defaultRequest value {} in {resource}",
            default.text(),
            request.text()
        );
        request.invalid(run, request.text(), detail);
    }
}

fn amounts(at: &At<'_, '_>, run: &mut Run<'_>) {
    for (resource, entry) in at.entries() {
        name(&entry, resource, run);
        if !resource.contains('/') && !is_standard_quota(resource) {
            entry.invalid(run, resource, "must be a standard resource for quota");
        }
        quantity(&entry, resource, run);
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
const OPPOSITES: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
/// The resources that a quota with a scope for pods can limit.
const OF_PODS: [&str; 7] = ["pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
/// The resources that a quota with a scope for claims can limit.
const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];

fn scope_fits(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            OF_PODS.contains(&resource)
        }
        "VolumeAttributesClass" => OF_CLAIMS.contains(&resource),
        _ => true,
    }
}

fn misfits(spec: &At<'_, '_>, scope: &str) -> usize {
    let hard = spec.field("hard");
    let limited = hard.tree().into_iter().flat_map(keelson_meta::json::Map::keys);
    limited.filter(|resource| is_standard_quota(resource) && !scope_fits(scope, resource)).count()
}

fn scopes(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let at = spec.field("scopes");
    for scope in at.items() {
        if !SCOPES.contains(&scope.text()) {
            at.invalid(run, at.shown(), "unsupported scope");
        }
        for _ in 0..misfits(spec, scope.text()) {
            at.invalid(run, at.shown(), "unsupported scope applied to resource");
        }
    }
    let given: Vec<&str> = at.list().iter().filter_map(Value::as_str).collect();
    conflicts(&at, &at, &given, run);
}

fn conflicts(at: &At<'_, '_>, shown: &At<'_, '_>, given: &[&str], run: &mut Run<'_>) {
    for pair in OPPOSITES {
        if pair.iter().all(|scope| given.contains(scope)) {
            at.invalid(run, shown.shown(), "conflicting scopes");
        }
    }
}

fn scope_selector(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let selector = spec.field("scopeSelector");
    let at = selector.field("matchExpressions");
    let mut given = Vec::new();
    for item in at.items() {
        // Like upstream, the path has the field of the list, not of the item.
        let (scope, operator, values) = (item.field("scopeName"), item.field("operator"), item.field("values"));
        if !SCOPES.contains(&scope.text()) {
            at.field("scopeName").invalid(run, scope.text(), "unsupported scope");
        }
        for _ in 0..misfits(spec, scope.text()) {
            at.invalid(run, selector.shown(), "unsupported scope applied to resource");
        }
        let takes_no_values = OPPOSITES.concat().contains(&scope.text()) || scope.text() == "CrossNamespacePodAffinity";
        if takes_no_values && operator.text() != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            at.field("operator").invalid(run, operator.text(), detail);
        }
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                at.field("values").required(run, detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                at.field("values").invalid(run, values.shown(), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => at.field("operator").invalid(run, other, "not a valid selector operator"),
        }
        given.push(scope.text());
    }
    conflicts(&at, &spec.field("scopes"), &given, run);
}

fn scopes_stay(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let at = spec.field("scopes");
    let set = |list: &Value| -> HashSet<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if set(at.value) != set(at.old) {
        at.invalid(run, at.shown(), IMMUTABLE);
    }
}
