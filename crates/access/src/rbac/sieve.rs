//! What a rule can't allow, known without a look at its texts: most rules that somebody has are about something else.
//!
//! Verbs and resources are bits, several of which may share one. Where all bits fit, the texts are compared.

use super::rule::{ALL, PolicyRule};
use crate::authorize::Attributes;

/// The bit of rules that are about paths; those below are for resources.
const PATHS: u64 = 1 << 63;
const ALL_RESOURCES: u64 = PATHS - 1;
const RESOURCE_BITS: u64 = 63;
const VERB_BITS: u64 = 64;

/// The verbs and resources of a rule, or of a request.
#[derive(Clone, Copy)]
pub(super) struct Sieve {
    verbs: u64,
    resources: u64,
}

impl Sieve {
    pub(super) fn of_rule(rule: &PolicyRule) -> Self {
        let verb = |verb: &String| if verb == ALL { u64::MAX } else { 1 << (hash(verb) % VERB_BITS) };
        // Also of `*/scale`, which is of any resource.
        let resource = |resource: &String| if resource.starts_with(ALL) { ALL_RESOURCES } else { bit(resource) };
        let paths = if rule.non_resource_urls.is_empty() { 0 } else { PATHS };
        let resources = rule.resources.iter().map(resource).fold(paths, |all, one| all | one);
        Self { verbs: rule.verbs.iter().map(verb).fold(0, |all, one| all | one), resources }
    }

    pub(super) fn of_request(attributes: &Attributes<'_>) -> Self {
        let (verb, resources) = match attributes {
            Attributes::Resource(asked) => (asked.verb, bit(asked.resource)),
            Attributes::Path { verb, .. } => (*verb, PATHS),
        };
        Self { verbs: 1 << (hash(verb) % VERB_BITS), resources }
    }

    /// Whether a rule may allow a request. That it may not is certain.
    pub(super) fn lets_through(self, request: Self) -> bool {
        self.verbs & request.verbs != 0 && self.resources & request.resources != 0
    }
}

/// The bit of a resource, or of the one before a slash.
fn bit(resource: &str) -> u64 {
    let resource = resource.split_once('/').map_or(resource, |(resource, _)| resource);
    1 << (hash(resource) % RESOURCE_BITS)
}

/// FNV-1a: the texts are short, and one that meets another costs a comparison.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
