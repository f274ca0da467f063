//! Validation of scheduling settings of a pod: node selectors, affinities, tolerations and gates. Volumes and devices
//! have node selectors too.
//!
//! The form of terms is validated. Finding matching nodes is up to the scheduler.

use std::collections::HashSet;

use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, LABEL_VALUE, QUALIFIED_NAME};
use crate::validating::selectors::SELECTOR;
use crate::validating::type_rules::Rule::{self, Check, Each, In, OneOf, Within};
use crate::validating::type_rules::{Run, TypeRules};

pub(super) const AFFINITY: TypeRules = TypeRules::shared(
    "Affinity",
    &[("nodeAffinity", In(&NODE_AFFINITY)), ("podAffinity", In(&POD_AFFINITY)), ("podAntiAffinity", In(&POD_AFFINITY))],
);

const NODE_AFFINITY: TypeRules = TypeRules::new(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", In(&NODE_SELECTOR)),
    (
        "preferredDuringSchedulingIgnoredDuringExecution",
        Each(&const { TypeRules::new(&[("weight", WEIGHT), ("preference", Check("node selector term", preference))]) }),
    ),
]);

/// The rules of node selectors.
pub(crate) const NODE_SELECTOR: TypeRules =
    TypeRules::shared("Node selector", &[("nodeSelectorTerms", Check("required, each a node selector term", terms))]);

const POD_AFFINITY: TypeRules = TypeRules::shared(
    "Pod affinity",
    &[
        ("requiredDuringSchedulingIgnoredDuringExecution", Each(&POD_TERM)),
        (
            "preferredDuringSchedulingIgnoredDuringExecution",
            Each(&const { TypeRules::new(&[("weight", WEIGHT), ("podAffinityTerm", Rule::Always(&POD_TERM))]) }),
        ),
    ],
);

const WEIGHT: Rule = Check("from 1 to 100", |at, run| {
    if !(1..=100).contains(&at.int()) {
        at.invalid(run, at.int(), "must be in the range 1-100");
    }
});

const POD_TERM: TypeRules = TypeRules::shared(
    "Pod affinity term",
    &[
        ("labelSelector", SELECTOR),
        ("namespaceSelector", SELECTOR),
        ("", Check("namespaces are DNS labels", namespaces)),
        ("", Check("label keys without duplicates", label_keys)),
        ("topologyKey", Rule::Required("can not be empty")),
        ("topologyKey", Check("qualified name", |at, run| at.complain(run, QUALIFIED_NAME.faults(at.text())))),
    ],
);

/// A toleration of a pod.
pub(crate) const TOLERATION: TypeRules = TypeRules::shared(
    "Toleration",
    &[
        ("key", Rule::Format(&QUALIFIED_NAME)),
        ("", Check("an operator that fits the key and the value", toleration)),
        ("effect", EFFECT),
    ],
);

/// The effects of a taint.
pub(crate) const EFFECT: Rule = OneOf(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);

fn terms(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        return at.required(run, "must have at least one node selector term");
    }
    let lenient = at.is_unchanged();
    at.items().for_each(|each| term(&each, lenient, run));
}

fn preference(at: &At<'_, '_>, run: &mut Run<'_>) {
    // A preference may use values that no label can have. It then matches no node.
    term(at, true, run);
}

fn term(at: &At<'_, '_>, lenient: bool, run: &mut Run<'_>) {
    at.field("matchExpressions").items().for_each(|each| requirement(&each, lenient, run));
    at.field("matchFields").items().for_each(|each| field_requirement(&each, run));
}

fn requirement(at: &At<'_, '_>, lenient: bool, run: &mut Run<'_>) {
    let (operator, values, key) = (at.field("operator"), at.field("values"), at.field("key"));
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => {
            values.required(run, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values.forbidden(run, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.list().len() != 1 => {
            values.required(run, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => operator.invalid(run, other, "not a valid selector operator"),
    }
    key.complain(run, QUALIFIED_NAME.faults(key.text()));
    if !lenient {
        values.items().for_each(|value| value.complain(run, LABEL_VALUE.faults(value.text())));
    }
}

fn field_requirement(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (operator, values, key) = (at.field("operator"), at.field("values"), at.field("key"));
    match operator.text() {
        "In" | "NotIn" if values.list().len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            values.required(run, detail);
        }
        "In" | "NotIn" => {}
        other => operator.invalid(run, other, "not a valid selector operator"),
    }
    if key.text() == "metadata.name" {
        values.items().for_each(|value| value.complain(run, DNS_SUBDOMAIN.faults(value.text())));
    } else {
        key.invalid(run, key.text(), "not a valid field selector key");
    }
}

/// Like upstream, the path has `namespace` for the field `namespaces`.
fn namespaces(at: &At<'_, '_>, run: &mut Run<'_>) {
    let list = at.field("namespaces");
    for item in list.items() {
        let place = at.field("namespace");
        place.holding(item.value).complain(run, DNS_LABEL.faults(item.text()));
    }
}

fn label_keys(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (matching, differing) = (at.field("matchLabelKeys"), at.field("mismatchLabelKeys"));
    let selector = at.field("labelSelector");
    for keys in [&matching, &differing].into_iter().filter(|keys| !keys.is_empty()) {
        if selector.is_set() {
            keys.items().for_each(|key| key.complain(run, QUALIFIED_NAME.faults(key.text())));
        } else {
            keys.forbidden(run, "must not be specified when labelSelector is not set");
        }
    }
    selected_twice(at, &matching, &selector, run);
    let differs: HashSet<&str> = differing.list().iter().filter_map(|key| key.as_str()).collect();
    for key in matching.items().filter(|key| differs.contains(key.text())) {
        key.invalid(run, key.text(), "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

/// The server adds an expression for each key. If the selector already had the key, it occurs twice now.
fn selected_twice(at: &At<'_, '_>, keys: &At<'_, '_>, selector: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen: HashSet<&str> =
        selector.field("matchLabels").tree().into_iter().flat_map(keelson_meta::json::Map::keys).collect();
    for expression in selector.field("matchExpressions").items() {
        let key = expression.field("key").text();
        let index = keys.list().iter().position(|listed| listed == key);
        if let Some(index) = index
            && seen.contains(key)
        {
            // Like upstream, the path has the index in the term, not in its list of keys.
            at.index(index).invalid(run, key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.insert(key);
    }
}

fn toleration(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (key, operator, value, effect) = (at.field("key"), at.field("operator"), at.field("value"), at.field("effect"));
    if key.is_empty() && operator.text() != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        operator.invalid(run, operator.text(), detail);
    }
    if at.field("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
        effect.invalid(run, effect.text(), "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    match operator.text() {
        "" | "Equal" => {
            let faults = LABEL_VALUE.faults(value.text());
            if !faults.is_empty() {
                operator.invalid(run, value.text(), faults.join(";"));
            }
        }
        "Exists" if !value.is_empty() => {
            operator.invalid(run, value.text(), "value must be empty when `operator` is 'Exists'");
        }
        "Exists" => {}
        // Error messages list the comparison operators, but they are not accepted yet.
        other => operator.not_supported(run, other, &["Equal", "Exists", "Lt", "Gt"]),
    }
}

pub(super) fn gates(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut names = HashSet::new();
    for gate in at.items() {
        let name = gate.field("name").text();
        for fault in QUALIFIED_NAME.faults(name) {
            gate.invalid(run, name, fault);
        }
        if !names.insert(name) {
            gate.duplicate(run, name);
        }
    }
}

/// A prefix of a name, which may end with a dash.
pub(super) fn name_without_prefix(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        at.required(run, "");
    } else {
        at.complain(run, keelson_meta::names::NameRule::DnsSubdomain.check(at.text(), true));
    }
}

/// A positive number, with upstream's message for schedulers.
pub(super) const ABOVE_ZERO: Rule = Within(1, i64::MAX, "must be greater than zero");
