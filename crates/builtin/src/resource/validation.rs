//! Validation of device classes, claims and device taints.
//!
//! Expressions are not compiled here. Only their length is limited.

mod claim_status;
mod slices;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use keelson_meta::json::Value;

use crate::core::validation::pod::resources::is_extended;
use crate::core::validation::pod::volumes::DRIVER;
use crate::validating::at::At;
use crate::validating::conditions::CONDITIONS;
use crate::validating::expressions::of_devices;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, LABEL_VALUE, QUALIFIED_NAME};
use crate::validating::type_rules::Rule::{Always, Check, Each, Format, Immutable, In, Required, With, Within};
use crate::validating::type_rules::{Kind, Rule, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("DeviceClass").object(&CLASS),
    kind("DeviceTaintRule").object(&TAINT_RULE).below(&[("status", &TAINT_RULE_STATUS)]),
    kind("ResourceClaim").first(&SPEC_STAYS).object(&CLAIM).below(&[("status", &claim_status::STATUS)]),
    kind("ResourceClaimTemplate").first(&SPEC_STAYS).object(&TEMPLATE),
    kind("ResourcePoolStatusRequest").first(&SPEC_STAYS).object(&POOL_REQUEST),
    kind("ResourceSlice").object(&slices::SLICE),
];

/// The largest number of requests of a claim, and of constraints, configurations and selectors.
const LIST_MAX: usize = 32;
/// The largest number of alternatives in `firstAvailable`.
const FIRST_MAX: usize = 8;
/// The longest expression and the largest parameters for a driver, in bytes.
const TEXT_MAX: usize = 10 * 1024;

const SPEC_STAYS: TypeRules = TypeRules::new(&[("spec", Immutable)]);

const CLASS: TypeRules = TypeRules::new(&[(
    "spec",
    Always(
        &const {
            TypeRules::new(&[
                ("selectors", SELECTORS),
                ("config", With("at most 32", |at, run| up_to(at, LIST_MAX, &CONFIG, run), &CONFIG)),
                (
                    "extendedResourceName",
                    Check("extended resource", |at, run| {
                        if at.is_set() && !is_extended(at.text()) {
                            at.invalid(run, at.text(), "must be a valid extended resource name");
                        }
                    }),
                ),
            ])
        },
    ),
)]);

const CLAIM: TypeRules = TypeRules::new(&[("spec", NEW_CLAIM_SPEC)]);

const TEMPLATE: TypeRules = TypeRules::new(&[("spec", Always(&const { TypeRules::new(&[("spec", NEW_CLAIM_SPEC)]) }))]);

/// The spec cannot change, so it is only validated for new objects.
const NEW_CLAIM_SPEC: Rule = Rule::Around(
    "of a new object",
    |at, run| {
        if run.before.is_none() {
            CLAIM_SPEC.check(at, run);
        }
    },
    &CLAIM_SPEC,
);

const CLAIM_SPEC: TypeRules = TypeRules::shared("Resource claim", &[("devices", Always(&DEVICES))]);

const DEVICES: TypeRules = TypeRules::new(&[
    ("requests", With("at most 32, unique names", |at, run| set(at, LIST_MAX, "name", &REQUEST, run), &REQUEST)),
    ("constraints", With("at most 32", |at, run| up_to(at, LIST_MAX, &CONSTRAINT, run), &CONSTRAINT)),
    ("config", With("at most 32", |at, run| up_to(at, LIST_MAX, &CLAIM_CONFIG, run), &CLAIM_CONFIG)),
]);

const NAME: Rule = Check("DNS label", |at, run| at.complain(run, DNS_LABEL.faults(at.text())));

const REQUEST: TypeRules = TypeRules::new(&[
    ("name", NAME),
    ("", Rule::Around("`exactly` or `firstAvailable`", exactly_or_first, &ALTERNATIVES)),
]);

const ALTERNATIVES: TypeRules = TypeRules::new(&[
    ("exactly", In(&EXACTLY)),
    ("firstAvailable", With("at most 8, unique names", |at, run| set(at, FIRST_MAX, "name", &FIRST, run), &FIRST)),
]);

const FIRST: TypeRules = TypeRules::new(&[("name", NAME), ("", Always(&EXACTLY))]);

const EXACTLY: TypeRules = TypeRules::shared(
    "Request for devices",
    &[
        ("deviceClassName", Required("")),
        ("deviceClassName", Format(&DNS_SUBDOMAIN)),
        ("selectors", SELECTORS),
        ("", Check("a count for ExactCount; no count for All", count)),
        ("tolerations", Each(&TOLERATION)),
    ],
);

const SELECTORS: Rule =
    With("at most 32, each with an expression", |at, run| up_to(at, LIST_MAX, &SELECTOR, run), &SELECTOR);

const SELECTOR: TypeRules =
    TypeRules::new(&[("cel", Required("")), ("cel", In(&const { TypeRules::new(&[("expression", ABOUT_DEVICE)]) }))]);

const ABOUT_DEVICE: Rule = Check("expression about a device: at most 10240 bytes", |at, run| {
    if at.text().len() > TEXT_MAX {
        at.too_long(run, TEXT_MAX);
    } else {
        of_devices(at, run);
    }
});

pub(crate) const TOLERATION: TypeRules = TypeRules::shared(
    "Toleration of a device's taint",
    &[
        ("key", Format(&QUALIFIED_NAME)),
        ("operator", Required("")),
        ("", Check("operator Exists without a value, or Equal with one", tolerated)),
        ("effect", Rule::OneOf(&EFFECTS)),
    ],
);

const CONSTRAINT: TypeRules =
    TypeRules::new(&[("requests", REQUEST_NAMES), ("", Check("`matchAttribute` or `distinctAttribute`", constraint))]);

const REQUEST_NAMES: Rule = Check("at most 32 names of requests, none twice", request_names);

const CLAIM_CONFIG: TypeRules = TypeRules::new(&[("requests", REQUEST_NAMES), ("", Always(&CONFIG))]);

pub(crate) const CONFIG: TypeRules = TypeRules::shared(
    "Configuration of devices",
    &[
        (
            "opaque",
            Check("required", |at, run| {
                if !at.is_set() {
                    at.required(run, "");
                }
            }),
        ),
        (
            "opaque",
            In(&const {
                TypeRules::new(&[
                    ("driver", DRIVER),
                    ("parameters", Check("required: an object of at most 10 KiB", parameters)),
                ])
            }),
        ),
    ],
);

const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// A device taint.
pub(crate) const TAINT: TypeRules = TypeRules::shared(
    "Taint of a device",
    &[
        ("key", Check("qualified name", |at, run| at.complain(run, QUALIFIED_NAME.faults(at.text())))),
        ("value", Format(&LABEL_VALUE)),
        ("effect", Required("")),
        ("effect", Rule::OneOf(&EFFECTS)),
    ],
);

const TAINT_RULE: TypeRules = TypeRules::new(&[(
    "spec",
    Always(&const { TypeRules::new(&[("deviceSelector", In(&TAINT_SELECTOR)), ("taint", Always(&TAINT))]) }),
)]);

const TAINT_SELECTOR: TypeRules = TypeRules::new(&[
    (
        "driver",
        Check("DNS subdomain of 63 bytes", |at, run| {
            if at.is_set() {
                DRIVER.check(at, run);
            }
        }),
    ),
    (
        "pool",
        Check("name of a pool", |at, run| {
            if at.is_set() {
                pool_name(at, run);
            }
        }),
    ),
    (
        "device",
        Check("DNS label", |at, run| {
            if at.is_set() {
                NAME.check(at, run);
            }
        }),
    ),
]);

const TAINT_RULE_STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(&const { TypeRules::new(&[("conditions", CONDITIONS), ("conditions", Rule::MaxItems(8))]) }),
)]);

const POOL_REQUEST: TypeRules = TypeRules::new(&[(
    "spec",
    Always(
        &const {
            TypeRules::new(&[
                ("driver", DRIVER),
                (
                    "poolName",
                    Check("name of a pool", |at, run| {
                        if at.is_set() {
                            pool_name(at, run);
                        }
                    }),
                ),
                ("limit", Within(1, i64::MAX, "must be greater than or equal to 1")),
                ("limit", Within(i64::MIN, 1000, "must be less than or equal to 1000")),
            ])
        },
    ),
)]);

/// Validates each item of a list, unless there are too many.
pub(crate) fn up_to<'v>(at: &At<'v, '_>, most: usize, type_rules: &TypeRules, run: &mut Run<'v>) {
    if at.list().len() > most {
        return at.too_many(run, most);
    }
    at.items().for_each(|item| type_rules.check(&item, run));
}

/// Validates a list whose items have a key field.
pub(crate) fn set<'v>(at: &At<'v, '_>, most: usize, key: &'static str, type_rules: &TypeRules, run: &mut Run<'v>) {
    up_to(at, most, type_rules, run);
    if at.list().len() <= most {
        let mut seen = HashSet::new();
        for item in at.items() {
            let key = item.field(key).text();
            if !seen.insert(key) {
                item.duplicate(run, key);
            }
        }
    }
}

fn exactly_or_first<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    match (at.field_is_set("exactly"), !at.field("firstAvailable").is_empty()) {
        (false, false) => at.required(run, ONE),
        // With both fields set, it is unclear which one is intended. Like upstream, the server validates neither.
        (true, true) => at.invalid(run, Value::Null, format!("{ONE}, but multiple fields are set")),
        _ => ALTERNATIVES.check(at, run),
    }
}

fn count(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (mode, count) = (at.field("allocationMode"), at.field("count"));
    match mode.text() {
        "All" if count.int() != 0 => {
            count.invalid(run, count.int(), "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        "ExactCount" if count.int() <= 0 => count.invalid(run, count.int(), "must be greater than zero"),
        "ExactCount" => {}
        other => mode.not_supported(run, other, &["All", "ExactCount"]),
    }
}

fn tolerated(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (operator, value) = (at.field("operator"), at.field("value"));
    match operator.text() {
        "Exists" if !value.is_empty() => value.invalid(run, value.text(), "must be empty for operator `Exists`"),
        "Equal" => value.complain(run, LABEL_VALUE.faults(value.text())),
        "" | "Exists" => {}
        other => operator.not_supported(run, other, &["Equal", "Exists"]),
    }
}

fn constraint(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (matching, distinct) = (at.field("matchAttribute"), at.field("distinctAttribute"));
    if matching.is_set() {
        full_name(&matching, run);
    } else if distinct.is_set() {
        full_name(&distinct, run);
    } else {
        let detail =
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        at.required(run, detail);
    }
}

fn request_names(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.list().len() > LIST_MAX {
        return at.too_many(run, LIST_MAX);
    }
    let mut seen = HashSet::new();
    at.items().for_each(|name| request_name(&name, run));
    for name in at.items() {
        if !seen.insert(name.text()) {
            name.duplicate(run, name.text());
        }
    }
}

/// The name of a request, optionally with the name of an alternative.
pub(crate) fn request_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    const UNKNOWN: &str =
        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let parts: Vec<&str> = at.text().split('/').collect();
    if parts.len() > 2 {
        return at.invalid(run, at.text(), UNKNOWN);
    }
    for part in &parts {
        for fault in DNS_LABEL.faults(part) {
            at.invalid(run, *part, fault);
        }
    }
    // In a template, the spec of the claim is nested in the spec of the template.
    let requests = [&["spec", "devices", "requests"][..], &["spec", "spec", "devices", "requests"]]
        .into_iter()
        .find_map(|path| run.object.get(path)?.as_array());
    let named = |list: Option<&Vec<Value>>, name: &str| {
        list.into_iter().flatten().find(|item| item.get("name").is_some_and(|known| known == name)).cloned()
    };
    let known = named(requests, parts[0]).is_some_and(|request| {
        let first = request.get("firstAvailable").and_then(Value::as_array);
        parts.get(1).is_none_or(|part| named(first, part).is_some())
    });
    if !known {
        at.invalid(run, at.text(), UNKNOWN);
    }
}

pub(crate) fn parameters(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        at.required(run, "");
    } else if at.value.to_string().len() > TEXT_MAX {
        at.too_long(run, TEXT_MAX);
    } else if at.tree().is_none() {
        at.invalid(run, "<value omitted>", "must be a valid JSON object");
    }
}

/// The name of a pool: DNS subdomains separated by slashes.
pub(crate) fn pool_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    /// The longest name, in bytes.
    const MAX: usize = 253;
    if at.is_empty() {
        return at.required(run, "");
    }
    if at.text().len() > MAX {
        at.too_long(run, MAX);
    }
    for part in at.text().split('/') {
        for fault in DNS_SUBDOMAIN.faults(part) {
            at.invalid(run, part, fault);
        }
    }
}

fn full_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    slices::attribute_name(at, at.text(), run);
    if !at.text().contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        at.invalid(run, at.text(), detail);
    }
}
