//! Validation of evictions and of requests for them.
//!
//! The rules are the markers of the Go types.

#[cfg(test)]
mod tests;

use keelson_meta::names::label_key_faults;

use crate::validating::conditions::CONDITIONS;
use crate::validating::formats::{DNS_SUBDOMAIN, Format};
use crate::validating::type_rules::Rule::{
    self, Always, Check, Each, Immutable, In, MaxItems, Range, Required, Within,
};
use crate::validating::type_rules::{Kind, TypeRules, kind};
use crate::validating::unions::exactly_one;

pub(crate) const KINDS: &[Kind] = &[
    kind("EvictionRequest")
        .object(&const { TypeRules::new(&[("spec", Always(&REQUEST))]) })
        .then(
            &const {
                TypeRules::new(&[(
                    "spec",
                    Always(&const { TypeRules::new(&[("target", Immutable), ("requester", Immutable)]) }),
                )])
            },
        )
        .below(&[("status", &const { TypeRules::new(&[("status", Always(&REQUEST_STATUS))]) })]),
    kind("Eviction")
        .object(&const { TypeRules::new(&[("spec", Always(&EVICTION))]) })
        .then(&const { TypeRules::new(&[("spec", Always(&const { TypeRules::new(&[("target", Immutable)]) }))]) })
        .below(&[("status", &const { TypeRules::new(&[("status", Always(&STATUS))]) })]),
];

/// A domain name and a name, as `example.org/name`.
const PREFIXED_KEY: Format = Format::new("label key with a domain", prefixed_key_faults);
/// A UUID in lower case.
const UUID: Format = Format::new("UUID", uuid_faults);

const INTENTS: &[&str] = &["Eviction", "Withdrawn"];
/// The largest number of conditions and of requesters.
const MAX_ENTRIES: usize = 100;
/// The largest number of responders.
const MAX_RESPONDERS: usize = 11;

const REQUEST: TypeRules = TypeRules::new(&[
    ("target", Always(&TARGET)),
    ("requester", Required("")),
    ("requester", Rule::Format(&PREFIXED_KEY)),
    ("intent", INTENT),
    ("intent", KNOWN_INTENT),
]);
const EVICTION: TypeRules = TypeRules::new(&[("target", Always(&TARGET))]);

const TARGET: TypeRules = TypeRules::shared(
    "target of an eviction",
    &[("", Check("a pod", |at, run| exactly_one(at, run, &["pod"]))), ("pod", In(&POD))],
);
const POD: TypeRules = TypeRules::new(&[
    ("name", Required("")),
    ("name", Rule::Format(&DNS_SUBDOMAIN)),
    ("uid", Required("")),
    ("uid", Rule::Format(&UUID)),
]);

const REQUEST_STATUS: TypeRules = TypeRules::new(&[
    ("conditions", MaxItems(MAX_ENTRIES)),
    ("conditions", CONDITIONS),
    ("observedGeneration", GENERATION),
]);
const STATUS: TypeRules = TypeRules::new(&[
    ("conditions", MaxItems(MAX_ENTRIES)),
    ("conditions", CONDITIONS),
    ("observedGeneration", GENERATION),
    ("requesters", MaxItems(MAX_ENTRIES)),
    ("requesters", Each(&REQUESTER)),
    ("targetResponders", MaxItems(MAX_RESPONDERS)),
    ("targetResponders", Each(&TARGET_RESPONDER)),
    ("responders", MaxItems(MAX_RESPONDERS)),
    ("responders", Each(&RESPONDER)),
]);
const REQUESTER: TypeRules = TypeRules::new(&[
    ("name", Required("")),
    ("name", Rule::Format(&PREFIXED_KEY)),
    ("intent", INTENT),
    ("intent", KNOWN_INTENT),
]);
const TARGET_RESPONDER: TypeRules = TypeRules::new(&[
    ("name", Required("")),
    ("name", Rule::Format(&PREFIXED_KEY)),
    (
        "priority",
        Check("required", |at, run| {
            if !at.is_set() {
                at.required(run, "");
            }
        }),
    ),
    ("priority", Range(0, 100_000)),
    ("state", Required("")),
    ("state", Rule::OneOf(&["Active", "Canceled", "Completed", "Inactive", "Interrupted"])),
]);
const RESPONDER: TypeRules = TypeRules::new(&[("name", Required("")), ("name", Rule::Format(&PREFIXED_KEY))]);

const INTENT: Rule = Required("");
const KNOWN_INTENT: Rule = Rule::OneOf(INTENTS);
const GENERATION: Rule = Within(1, i64::MAX, "must be greater than or equal to 1");

fn prefixed_key_faults(text: &str) -> Vec<String> {
    match label_key_faults(text) {
        faults if !faults.is_empty() => faults,
        _ if text.contains('/') => Vec::new(),
        _ => vec!["must include a prefix (e.g. 'example.com/key')".to_owned()],
    }
}

fn uuid_faults(text: &str) -> Vec<String> {
    let is_part = |(place, byte): (usize, u8)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    let is_uuid = text.len() == 36 && text.bytes().enumerate().all(is_part);
    if is_uuid { Vec::new() } else { vec!["must be a lowercase UUID in 8-4-4-4-12 format".to_owned()] }
}
