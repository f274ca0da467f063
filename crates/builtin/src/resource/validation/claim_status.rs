//! Validation of the status of a claim: the allocated devices, the consumers, and the device status from drivers.
//!
//! Of the claim's spec, these rules only use the names of the requests.

use std::collections::HashSet;

use keelson_meta::json::Value;

use super::slices::binding;
use super::{CONFIG, TOLERATION, parameters, pool_name, request_name, set, up_to};
use crate::core::validation::pod::scheduling::NODE_SELECTOR;
use crate::core::validation::pod::volumes::DRIVER;
use crate::validating::at::At;
use crate::validating::conditions::CONDITIONS;
use crate::validating::formats::{DNS_LABEL, parse_cidr};
use crate::validating::type_rules::Rule::{
    Always, Check, Each, In, MaxBytes, MaxItems, NotModified, OneOf, Required, With,
};
use crate::validating::type_rules::{Rule, Run, TypeRules};

/// The largest number of consumers of a claim.
const USERS_MAX: usize = 256;
/// The largest number of devices of a claim.
const RESULTS_MAX: usize = 32;
/// The largest number of configurations, from the claim and from its classes.
const CONFIGS_MAX: usize = 64;

pub(super) const STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[
                ("reservedFor", With("at most 256, each once", |at, run| set(at, USERS_MAX, "uid", &USER, run), &USER)),
                ("devices", With("without duplicates", devices, &DEVICE)),
                (
                    "reservedFor",
                    Check("only with an allocation", |at, run| {
                        if !at.is_empty() && at.parent().is_some_and(|status| !status.field_is_set("allocation")) {
                            at.forbidden(run, "may not be specified when `allocated` is not set");
                        }
                    }),
                ),
                ("allocation", NotModified),
                (
                    "allocation",
                    With(
                        "for a new object",
                        |at, run| {
                            if at.is_set() && at.old.is_null() {
                                ALLOCATION.check(at, run);
                            }
                        },
                        &ALLOCATION,
                    ),
                ),
            ])
        },
    ),
)]);

const USER: TypeRules = TypeRules::new(&[("resource", Required("")), ("name", Required("")), ("uid", Required(""))]);

const NAME: Rule = Check("DNS label", |at, run| at.complain(run, DNS_LABEL.faults(at.text())));
const POOL: Rule = Check("required: name of a pool", pool_name);

const ALLOCATION: TypeRules = TypeRules::new(&[
    (
        "devices",
        Always(
            &const {
                TypeRules::new(&[
                    ("results", With("at most 32", |at, run| up_to(at, RESULTS_MAX, &RESULT, run), &RESULT)),
                    (
                        "config",
                        With("at most 64", |at, run| up_to(at, CONFIGS_MAX, &RESULT_CONFIG, run), &RESULT_CONFIG),
                    ),
                ])
            },
        ),
    ),
    ("nodeSelector", In(&NODE_SELECTOR)),
]);

const RESULT: TypeRules = TypeRules::new(&[
    ("request", Check("name of a request of the claim", request_name)),
    ("driver", DRIVER),
    ("pool", POOL),
    ("device", NAME),
    ("", Check("binding conditions and binding failure conditions", binding)),
    ("tolerations", Each(&TOLERATION)),
    ("shareID", SHARE),
]);

/// The id of a share of a device.
const SHARE: Rule = Check("UUID", |at, run| {
    let text = at.text();
    let bare = match text.len() {
        32 | 36 => Some(text),
        38 => text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')),
        45 => text.get(..9).filter(|prefix| prefix.eq_ignore_ascii_case("urn:uuid:")).and_then(|_| text.get(9..)),
        length if at.is_set() => {
            return at.invalid(run, text, format!("error validating uid: invalid UUID length: {length}"));
        }
        _ => return,
    };
    let is_dash = |index: usize| matches!(index, 8 | 13 | 18 | 23);
    let fits = bare.is_some_and(|bare| {
        let dashed = bare.len() == 36;
        bare.bytes().enumerate().all(
            |(index, byte)| {
                if dashed && is_dash(index) { byte == b'-' } else { byte.is_ascii_hexdigit() }
            },
        )
    });
    if !fits {
        at.invalid(run, text, "error validating uid: invalid UUID format");
    }
});

const RESULT_CONFIG: TypeRules = TypeRules::new(&[
    ("source", Required("")),
    ("source", OneOf(&["FromClaim", "FromClass"])),
    (
        "requests",
        Check("names of requests of the claim", |at, run| at.items().for_each(|name| request_name(&name, run))),
    ),
    ("", Always(&CONFIG)),
]);

const DEVICE: TypeRules = TypeRules::new(&[
    ("driver", DRIVER),
    ("pool", POOL),
    ("device", NAME),
    ("shareID", SHARE),
    ("conditions", MaxItems(8)),
    ("conditions", CONDITIONS),
    (
        "data",
        Check("an object of at most 10 KiB", |at, run| {
            if at.is_set() {
                parameters(at, run);
            }
        }),
    ),
    (
        "networkData",
        In(&const {
            TypeRules::new(&[
                ("interfaceName", MaxBytes(256)),
                ("hardwareAddress", MaxBytes(128)),
                ("ips", MaxItems(16)),
                ("ips", Check("addresses with their prefix lengths, without duplicates", addresses)),
            ])
        }),
    ),
]);

/// The fields that identify a device.
fn identity(device: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|field| device.get(field).and_then(Value::as_str).unwrap_or_default())
}

fn devices<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let allocated: Vec<&Value> = run
        .object
        .get(&["status", "allocation", "devices", "results"])
        .and_then(Value::as_array)
        .map_or(Vec::new(), |results| results.iter().collect());
    let shown = |device: &Value| Value::from(identity(device)[..3].join("/"));
    for device in at.items() {
        DEVICE.check(&device, run);
        if !allocated.iter().any(|result| identity(result) == identity(device.value)) {
            device.invalid(run, shown(device.value), "must be an allocated device in the claim");
        }
    }
    let mut seen = HashSet::new();
    for device in at.items().filter(|device| !seen.insert(identity(device.value))) {
        device.duplicate(run, shown(device.value));
    }
}

fn addresses(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen = HashSet::new();
    for item in at.items() {
        match parse_cidr(item.text()) {
            None => {
                item.invalid(run, item.text(), "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
            }
            Some((address, bits)) => {
                let canonical = format!("{address}/{bits}");
                if canonical != item.text() {
                    item.invalid(run, item.text(), format!("must be in canonical form (\"{canonical}\")"));
                }
            }
        }
        if !seen.insert(item.text()) {
            item.duplicate(run, item.text());
        }
    }
}
