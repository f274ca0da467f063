//! Validation of resource slices: the pools of devices that drivers publish.
//!
//! The use of shared counters by several devices is not added up.

use std::collections::HashSet;

use keelson_cel::library::semver::Version;
use keelson_meta::json::Value;

use super::{TAINT, pool_name, set, up_to};
use crate::core::validation::pod::scheduling::NODE_SELECTOR;
use crate::core::validation::pod::volumes::DRIVER;
use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, QUALIFIED_NAME};
use crate::validating::type_rules::Rule::{Always, Around, Check, Immutable, Required, With, Within};
use crate::validating::type_rules::{Rule, Run, TypeRules};

/// The largest number of devices of a slice.
const DEVICES_MAX: usize = 128;
/// The largest number of devices if one has taints or uses counters.
const ADVANCED_MAX: usize = 64;
/// The largest number of counter sets, and of counters in one.
const SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
/// The largest number of counter sets that a device may use.
const CONSUMED_MAX: usize = 2;
/// The largest number of taints of a device.
const TAINTS_MAX: usize = 16;
/// The largest number of attributes and capacities of a device together.
const ATTRIBUTES_MAX: usize = 32;
/// The longest value of an attribute, in bytes.
const VALUE_MAX: usize = 64;
/// The longest name of an attribute without its domain, in bytes.
const ID_MAX: usize = 32;
/// The largest number of binding conditions of a device, and of binding failure conditions.
const BINDING_MAX: usize = 4;

pub(super) const SLICE: TypeRules = TypeRules::new(&[("spec", Always(&SPEC))]);

const SPEC: TypeRules = TypeRules::new(&[
    ("driver", DRIVER),
    ("pool", Always(&POOL)),
    ("", Check("an update: pool, driver and node are immutable", stays)),
    ("", Check("one of `nodeName`, `nodeSelector`, `allNodes` and `perDeviceNodeSelection`", nodes)),
    (
        "",
        Check("devices or counters", |spec, run| {
            if spec.field_is_set("sharedCounters") && spec.field_is_set("devices") {
                spec.invalid(run, "", "only one of `sharedCounters` or `devices` is allowed");
            }
        }),
    ),
    ("devices", With("at most 128, or 64 with taints or counters; unique names", devices, &DEVICE)),
    ("sharedCounters", With("at most 8, unique names", |at, run| set(at, SETS_MAX, "name", &COUNTERS, run), &COUNTERS)),
]);

const POOL: TypeRules = TypeRules::new(&[
    ("name", Check("required: name of a pool", pool_name)),
    (
        "resourceSliceCount",
        Check("greater than zero", |at, run| {
            if at.int() <= 0 {
                at.invalid(run, at.int(), "must be greater than zero");
            }
        }),
    ),
    ("generation", Within(0, i64::MAX, "must be greater than or equal to zero")),
]);

const COUNTERS: TypeRules = TypeRules::new(&[
    ("name", Required("")),
    ("name", Rule::Format(&DNS_LABEL)),
    ("counters", Required("")),
    ("counters", Check("at most 32, named by DNS labels", counters)),
]);

const CONSUMED: TypeRules = TypeRules::new(&[
    ("counterSet", Required("")),
    ("counterSet", Rule::Format(&DNS_LABEL)),
    ("counters", Required("")),
    ("counters", Check("at most 32, named by DNS labels", counters)),
]);

const DEVICE: TypeRules = TypeRules::new(&[
    ("name", Check("DNS label", |at, run| at.complain(run, DNS_LABEL.faults(at.text())))),
    (
        "",
        Check("at most 32 attributes and capacities", |at, run| {
            let count = ["attributes", "capacity"]
                .iter()
                .map(|field| at.field(field).tree().map_or(0, keelson_meta::json::Map::len));
            let count: usize = count.sum();
            if count > ATTRIBUTES_MAX {
                let detail = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
                at.invalid(run, count, detail);
            }
        }),
    ),
    ("attributes", Check("names with an optional domain, each with exactly one value", attributes)),
    (
        "capacity",
        Check("names with an optional domain; a request policy only for devices with multiple allocations", capacities),
    ),
    ("taints", With("at most 16", |at, run| up_to(at, TAINTS_MAX, &TAINT, run), &TAINT)),
    (
        "consumesCounters",
        With("at most 2, each set once", |at, run| set(at, CONSUMED_MAX, "counterSet", &CONSUMED, run), &CONSUMED),
    ),
    ("nodeSelector", Around("a node selection only with `perDeviceNodeSelection`", device_nodes, &NODE_SELECTOR)),
    ("", Check("binding conditions and binding failure conditions", binding)),
]);

fn stays<'v>(spec: &At<'v, '_>, run: &mut Run<'v>) {
    if run.before.is_some() {
        let (pool, driver, node) = (spec.field("pool"), spec.field("driver"), spec.field("nodeName"));
        [pool.field("name"), driver, node].iter().for_each(|field| Immutable.check(field, run));
    }
}

fn nodes<'v>(spec: &At<'v, '_>, run: &mut Run<'v>) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut given = Vec::new();
    let (node, selector) = (spec.field("nodeName"), spec.field("nodeSelector"));
    if !node.is_empty() {
        given.push("`nodeName`");
        node.complain(run, DNS_SUBDOMAIN.faults(node.text()));
    } else if node.is_set() {
        node.invalid(run, "", "must be either unset or set to a non-empty string");
    }
    if selector.is_set() {
        given.push("`nodeSelector`");
        NODE_SELECTOR.check(&selector, run);
        let terms = selector.field("nodeSelectorTerms");
        if terms.list().len() != 1 {
            terms.invalid(run, terms.shown(), "must have exactly one node selector term");
        }
    }
    for (name, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        let flag = spec.field(name);
        if flag.is_true() {
            given.push(shown);
        } else if flag.is_set() {
            flag.invalid(run, false, "must be either unset or set to true");
        }
    }
    match given.len() {
        0 => spec.required(run, ONE),
        1 => {}
        _ => spec.invalid(run, format!("{{{}}}", given.join(", ")), format!("{ONE}, but multiple fields are set")),
    }
}

fn devices<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let some =
        |device: &Value, field: &str| device.get(field).is_some_and(|list| !crate::validating::at::is_empty(list));
    let advanced = at.list().iter().any(|device| some(device, "taints") || some(device, "consumesCounters"));
    set(at, if advanced { ADVANCED_MAX } else { DEVICES_MAX }, "name", &DEVICE, run);
}

fn counters(at: &At<'_, '_>, run: &mut Run<'_>) {
    let names = at.tree().into_iter().flat_map(keelson_meta::json::Map::keys);
    let count = at.tree().map_or(0, keelson_meta::json::Map::len);
    if count > COUNTERS_MAX {
        run.faults.push(keelson_meta::field_error::FieldError::too_many(at.path(), count, COUNTERS_MAX));
        return;
    }
    for name in names {
        for fault in DNS_LABEL.faults(name) {
            at.invalid(run, name, fault);
        }
    }
}

fn attributes(at: &At<'_, '_>, run: &mut Run<'_>) {
    const VALUES: [&str; 8] = ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"];
    for (name, entry) in at.entries() {
        attribute_name(at, name, run);
        let given = VALUES.iter().filter(|value| entry.field_is_set(value)).count();
        short(&entry.field("string"), run);
        version(&entry.field("version"), run);
        for list in VALUES[4..].iter().map(|list| entry.field(list)).filter(At::is_set) {
            if list.is_empty() {
                list.invalid(run, list.shown(), "must not be empty if specified");
            }
        }
        entry.field("strings").items().for_each(|item| short(&item, run));
        entry.field("versions").items().for_each(|item| version(&item, run));
        match given {
            0 => entry.invalid(run, "", "exactly one value must be specified"),
            1 => {}
            _ => entry.invalid(run, entry.shown(), "exactly one value must be specified"),
        }
    }
}

fn short(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.text().len() > VALUE_MAX {
        at.too_long(run, VALUE_MAX);
    }
}

fn version(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_set() && Version::parse(at.text()).is_err() {
        at.invalid(run, at.text(), "must be a string compatible with semver.org spec 2.0.0");
    }
    short(at, run);
}

fn capacities(at: &At<'_, '_>, run: &mut Run<'_>) {
    let shared = at.parent().is_some_and(|device| device.field("allowMultipleAllocations").is_true());
    for (name, entry) in at.entries() {
        attribute_name(at, name, run);
        let policy = entry.field("requestPolicy");
        if policy.is_set() && !shared {
            policy.forbidden(run, "allowMultipleAllocations must be true");
        }
    }
}

/// The name of an attribute or a capacity: an identifier, optionally with a domain. Errors have the path of the whole
/// map.
pub(super) fn attribute_name(at: &At<'_, '_>, name: &str, run: &mut Run<'_>) {
    let (domain, id) = name.split_once('/').map_or((None, name), |(domain, id)| (Some(domain), id));
    if id.contains('/') {
        return at.invalid(run, name, "must not contain more than one slash");
    }
    match domain {
        Some("") => at.invalid(run, "", "the domain must not be empty"),
        Some(domain) => {
            /// The longest domain, in bytes.
            const MAX: usize = 63;
            if domain.len() > MAX {
                at.too_long(run, MAX);
            }
            for fault in DNS_SUBDOMAIN.faults(&domain.to_lowercase()) {
                at.invalid(run, domain, fault);
            }
        }
        None => {}
    }
    if domain.is_some() && id.is_empty() {
        return at.invalid(run, "", "the name must not be empty");
    }
    if id.len() > ID_MAX {
        at.too_long(run, ID_MAX);
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if id.is_empty() || !id.bytes().all(plain) || id.starts_with(|first: char| first.is_ascii_digit()) {
        const TEXT: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                            alphanumeric characters or '_'";
        let detail =
            keelson_meta::names::regex_fault(TEXT, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"]);
        at.invalid(run, id, detail);
    }
}

fn device_nodes<'v>(selector: &At<'v, '_>, run: &mut Run<'v>) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                       `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let Some(at) = selector.parent() else { return };
    let own = run.object.get(&["spec", "perDeviceNodeSelection"]) == Some(&Value::Bool(true));
    let (node, all) = (at.field("nodeName"), at.field("allNodes"));
    if !own {
        if node.is_set() || all.is_set() || at.field_is_set("nodeSelector") {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                          true in the ResourceSlice spec";
            at.invalid(run, Value::Null, detail);
        }
        return;
    }
    let mut given = Vec::new();
    if !node.is_empty() {
        given.push("`nodeName`");
        node.complain(run, DNS_SUBDOMAIN.faults(node.text()));
    } else if node.is_set() {
        node.invalid(run, "", "must not be empty");
    }
    if at.field_is_set("nodeSelector") {
        given.push("`nodeSelector`");
    }
    if all.is_true() {
        given.push("`allNodes`");
    } else if all.is_set() {
        all.invalid(run, false, "must be either unset or set to true");
    }
    match given.len() {
        0 => at.required(run, ONE),
        1 => {}
        _ => at.invalid(run, format!("{{{}}}", given.join(", ")), ONE),
    }
    if selector.is_set() {
        NODE_SELECTOR.check(selector, run);
    }
}

/// The binding conditions of a device, and its binding failure conditions. Both or neither must be set.
pub(super) fn binding(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (waits, fails) = (at.field("bindingConditions"), at.field("bindingFailureConditions"));
    for list in [&waits, &fails] {
        if list.list().len() > BINDING_MAX {
            list.too_many(run, BINDING_MAX);
        } else {
            list.items().for_each(|item| item.complain(run, QUALIFIED_NAME.faults(item.text())));
        }
    }
    for list in [&waits, &fails] {
        let mut seen = HashSet::new();
        for item in list.items().filter(|item| !seen.insert(item.text())) {
            item.duplicate(run, item.text());
        }
    }
    for item in fails.items().filter(|item| waits.list().contains(item.value)) {
        item.invalid(run, item.text(), "bindingFailureConditions must not overlap with bindingConditions");
    }
    if waits.is_empty() && !fails.is_empty() {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        waits.invalid(run, waits.shown(), detail);
    }
    if fails.is_empty() && !waits.is_empty() {
        let detail = "bindingFailureConditions are required to use bindingConditions";
        fails.invalid(run, fails.shown(), detail);
    }
}
