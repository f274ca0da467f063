//! A decoded role: its rules, and an index over their strings if there are many.
//!
//! A decision by the index scans lists of numbers, at most a few nanoseconds for each rule. Decoding a large role takes
//! milliseconds. So it happens at the first decision that needs the role, on a thread that serves no requests.

use std::sync::{Arc, OnceLock};

use keelson_codec::stored::StoredObject;
use keelson_meta::{Object, Revision};

use super::rule::{ALL, PolicyRule};
use super::sieve::RulePrefilter;
use super::texts::{RuleSet, Texts};
use crate::authorize::{Attributes, ResourceAttributes};

/// Larger roles are decoded at the first decision that needs them.
const LARGE_BYTES: usize = 64 * 1024;
/// Roles with more rules have an index.
const INDEXED_RULES: usize = 64;

/// A role, decoded or not.
pub(super) enum Role {
    /// A role that was decoded when it was added to the index.
    Decoded(RoleRules),
    /// A large role.
    Large {
        object: StoredObject,
        revision: Revision,
        /// Empty until the first decision that needs the role.
        rules: OnceLock<RoleRules>,
    },
}

/// The rules of a role.
pub(super) struct RoleRules {
    rules: Vec<RoleRule>,
    index: Option<RuleIndex>,
}

/// A rule of a role.
struct RoleRule {
    sieve: RulePrefilter,
    /// The rule, shared with lists of a user's rules.
    rule: Arc<PolicyRule>,
}

/// The strings of the rules, each with the rules that have it.
struct RuleIndex {
    verbs: Texts<Box<str>>,
    groups: Texts<Box<str>>,
    resources: Texts<Box<str>>,
    names: Texts<Box<str>>,
    /// The rules without resource names.
    unnamed: RuleSet,
    /// The rules for paths.
    on_paths: RuleSet,
}

impl Role {
    /// Creates the role of a stored object.
    pub(super) fn stored(object: &StoredObject, revision: Revision) -> Self {
        if object.size() > LARGE_BYTES {
            return Self::Large { object: object.clone(), revision, rules: OnceLock::new() };
        }
        Self::read(&object.decode(revision))
    }

    /// Creates the role of an object, and decodes it immediately.
    pub(super) fn read(object: &Object) -> Self {
        Self::Decoded(RoleRules::from_role(object))
    }

    /// The rules; `None` for a large role that is not decoded yet.
    pub(super) fn rules(&self) -> Option<&RoleRules> {
        match self {
            Self::Decoded(rules) => Some(rules),
            Self::Large { rules, .. } => rules.get(),
        }
    }

    /// The rules. Decodes them if needed, which takes milliseconds for a large role.
    pub(super) fn read_rules(&self) -> &RoleRules {
        match self {
            Self::Decoded(rules) => rules,
            Self::Large { object, revision, rules } => {
                rules.get_or_init(|| RoleRules::from_role(&object.decode(*revision)))
            }
        }
    }
}

impl RoleRules {
    fn from_role(role: &Object) -> Self {
        let rules = PolicyRule::all_of(role);
        let rules: Vec<RoleRule> =
            rules.map(|rule| RoleRule { sieve: RulePrefilter::of_rule(&rule), rule: Arc::new(rule) }).collect();
        let index = (rules.len() > INDEXED_RULES).then(|| RuleIndex::new(&rules));
        Self { rules, index }
    }

    /// The rules in the order of the object.
    pub(super) fn stated(&self) -> impl Iterator<Item = &Arc<PolicyRule>> {
        self.rules.iter().map(|one| &one.rule)
    }

    /// Returns true if a rule allows the request. `request` has the bits of the request.
    pub(super) fn allow(&self, attributes: &Attributes<'_>, request: RulePrefilter) -> bool {
        match &self.index {
            Some(index) => index.allows(&self.rules, attributes),
            None => self.rules.iter().any(|one| one.sieve.lets_through(request) && one.rule.allows(attributes)),
        }
    }
}

impl RuleIndex {
    fn new(rules: &[RoleRule]) -> Self {
        let texts = |field: fn(&PolicyRule) -> &[String]| {
            Texts::new(rules.iter().map(move |one| field(&one.rule).iter().map(|text| text.as_str().into())))
        };
        let (mut unnamed, mut on_paths) = (RuleSet::none(rules.len()), RuleSet::none(rules.len()));
        for (number, RoleRule { rule, .. }) in rules.iter().enumerate() {
            if rule.resource_names.is_empty() {
                unnamed.add(number);
            }
            if !rule.non_resource_urls.is_empty() {
                on_paths.add(number);
            }
        }
        Self {
            verbs: texts(|rule| &rule.verbs),
            groups: texts(|rule| &rule.api_groups),
            resources: texts(|rule| &rule.resources),
            names: texts(|rule| &rule.resource_names),
            unnamed,
            on_paths,
        }
    }

    /// Returns true if [`PolicyRule::allows`] is true for one of the rules.
    fn allows(&self, rules: &[RoleRule], attributes: &Attributes<'_>) -> bool {
        let count = rules.len();
        match attributes {
            Attributes::Resource(asked) => {
                let mut allowing = self.verbs.having(count, &[asked.verb, ALL]);
                allowing.keep(&self.groups.having(count, &[asked.group, ALL]));
                allowing.keep(&self.on_resource(count, asked));
                let mut named = self.names.having(count, &[asked.name.unwrap_or_default()]);
                named.add_all(&self.unnamed);
                allowing.keep(&named);
                !allowing.is_empty()
            }
            Attributes::Path { verb, path } => {
                let mut allowing = self.verbs.having(count, &[verb, ALL]);
                allowing.keep(&self.on_paths);
                allowing.numbers().any(|number| rules[number].rule.allows_path(path))
            }
        }
    }

    fn on_resource(&self, count: usize, attributes: &ResourceAttributes<'_>) -> RuleSet {
        match attributes.subresource.filter(|subresource| !subresource.is_empty()) {
            None => self.resources.having(count, &[attributes.resource, ALL]),
            Some(subresource) => {
                let (own, any) = (format!("{}/{subresource}", attributes.resource), format!("{ALL}/{subresource}"));
                self.resources.having(count, &[&own, &any, ALL])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        prop::sample::select(&["", "a", "b", "*", "a/s", "*/s", "/a", "/a*"][..]).prop_map(str::to_owned)
    }

    fn rule() -> impl Strategy<Value = PolicyRule> {
        let texts = || prop::collection::vec(text(), 0..3);
        (texts(), texts(), texts(), texts(), texts()).prop_map(
            |(verbs, api_groups, resources, resource_names, non_resource_urls)| PolicyRule {
                verbs,
                api_groups,
                resources,
                resource_names,
                non_resource_urls,
            },
        )
    }

    proptest! {
        /// The index decides like the rules themselves.
        #[test]
        fn an_index_decides_as_its_rules(
            rules in prop::collection::vec(rule(), 0..130),
            (verb, group, resource) in (text(), text(), text()),
            subresource in prop::option::of(prop::sample::select(&["", "s", "t"][..])),
            name in prop::option::of(text()),
        ) {
            let rules: Vec<RoleRule> =
                rules.into_iter().map(|rule| RoleRule { sieve: RulePrefilter::of_rule(&rule), rule: Arc::new(rule) }).collect();
            let index = RuleIndex::new(&rules);
            let asked = ResourceAttributes {
                verb: &verb, group: &group, resource: &resource, subresource, name: name.as_deref(), ..Default::default()
            };
            for request in [Attributes::Resource(asked), Attributes::Path { verb: &verb, path: &resource }] {
                let expected = rules.iter().any(|one| one.rule.allows(&request));
                prop_assert_eq!(index.allows(&rules, &request), expected, "{:?}", request);
            }
        }
    }

    #[test]
    fn a_large_role_is_read_when_it_is_requested() {
        let rules: Vec<_> = (0..2000)
            .map(|number| json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [format!("n{number:060}")]}))
            .collect();
        let object = json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "r"}, "rules": rules});
        let object = Object::from_value(object).unwrap();
        let stored = StoredObject::encode(&object);
        let role = Role::stored(&stored, Revision::new(1));
        assert!(role.rules().is_none());
        assert_eq!(role.read_rules().stated().count(), 2000);
        assert!(role.rules().is_some());
    }
}
