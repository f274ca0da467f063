//! The verbs and resources of a rule as bits: a prefilter that skips most rules without comparing strings.
//!
//! Several verbs or resources may share a bit. If the bits match, the rule may allow the request; if they differ, it
//! does not.

use keelson_meta::fnv1a;

use super::rule::{ALL, PolicyRule};
use crate::authorize::Attributes;

/// The bit of rules for paths. Lower bits are for resources.
const PATHS: u64 = 1 << 63;
const ALL_RESOURCES: u64 = PATHS - 1;
const RESOURCE_BITS: u64 = 63;
const VERB_BITS: u64 = 64;

/// The verbs and resources of a rule, or of a request.
#[derive(Clone, Copy)]
pub(super) struct RulePrefilter {
    verbs: u64,
    resources: u64,
}

impl RulePrefilter {
    pub(super) fn of_rule(rule: &PolicyRule) -> Self {
        let verb = |verb: &String| if verb == ALL { u64::MAX } else { 1 << (fnv1a(verb) % VERB_BITS) };
        // Also for `*/scale`, which matches any resource with that subresource.
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
        Self { verbs: 1 << (fnv1a(verb) % VERB_BITS), resources }
    }

    /// Returns false if the rule cannot allow the request.
    pub(super) fn lets_through(self, request: Self) -> bool {
        self.verbs & request.verbs != 0 && self.resources & request.resources != 0
    }
}

/// The bit of a resource, without its subresource.
fn bit(resource: &str) -> u64 {
    let resource = resource.split_once('/').map_or(resource, |(resource, _)| resource);
    1 << (fnv1a(resource) % RESOURCE_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::authorize::ResourceAttributes;

    fn text() -> impl Strategy<Value = String> {
        "[ab*/]{0,3}"
    }

    fn rule(verbs: &[&str], resources: &[&str]) -> PolicyRule {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        let api_groups = vec![String::new()];
        PolicyRule { verbs: texts(verbs), resources: texts(resources), api_groups, ..PolicyRule::default() }
    }

    proptest! {
        #[test]
        fn the_prefilter_passes_allowed_requests(
            (verbs, resources, paths) in (
                prop::collection::vec(text(), 0..3),
                prop::collection::vec(text(), 0..3),
                prop::collection::vec(text(), 0..3),
            ),
            (verb, resource, subresource, path) in (text(), text(), prop::option::of(text()), text()),
        ) {
            let api_groups = vec![String::new()];
            let rule = PolicyRule { verbs, resources, non_resource_urls: paths, api_groups, ..PolicyRule::default() };
            let subresource = subresource.as_deref();
            let about = ResourceAttributes { verb: &verb, resource: &resource, subresource, ..ResourceAttributes::default() };
            for request in [Attributes::Resource(about), Attributes::Path { verb: &verb, path: &path }] {
                if rule.allows(&request) {
                    prop_assert!(RulePrefilter::of_rule(&rule).lets_through(RulePrefilter::of_request(&request)), "{rule} {request:?}");
                }
            }
        }
    }

    #[test]
    fn the_prefilter_stops_other_verbs_and_resources_unless_bits_collide() {
        let asks = |verb, resource| {
            Attributes::Resource(ResourceAttributes { verb, resource, ..ResourceAttributes::default() })
        };
        let lets = |rule: &PolicyRule, request: &Attributes<'_>| {
            RulePrefilter::of_rule(rule).lets_through(RulePrefilter::of_request(request))
        };
        let pods = rule(&["get"], &["pods"]);
        assert!(
            lets(&pods, &asks("get", "pods"))
                && !lets(&pods, &asks("get", "nodes"))
                && !lets(&pods, &asks("list", "pods"))
        );
        assert!(!lets(&pods, &Attributes::Path { verb: "get", path: "/pods" }));
        let shares = (0..1000).map(|number| format!("r{number}")).find(|other| bit(other) == bit("pods")).unwrap();
        let request = asks("get", &shares);
        assert!(lets(&pods, &request) && !pods.allows(&request));
    }
}
