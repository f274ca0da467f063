//! Escalation: rights that a user would grant without holding them.
//!
//! Upstream's rule: the author of a role must hold all its rights, and the author of a binding all rights of its role,
//! unless the author may `escalate` or `bind`. The refusal lists each missing right.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::ControlFlow;

use keelson_meta::go_format::{quote, quote_list};

use crate::rbac::rule::{ALL, PolicyRule};
use crate::rbac::{HeldRules, RoleRef};
use crate::user::User;

/// The most rights, one verb each, in rules that no single held rule covers.
const MOST_RIGHTS: usize = 1 << 20;
/// The most comparisons of a text with a held rule for that.
const MOST_COMPARISONS: usize = 1 << 26;
/// The most listed missing rights, with their verbs, and the most bytes of their texts.
const MOST_TOLD: usize = 1000;
const MOST_TOLD_BYTES: usize = 256 << 10;

/// Rights that a user would grant without holding them.
#[derive(Debug)]
pub struct Missing<'h> {
    user: &'h User,
    found: Found,
    unresolved: &'h [RoleRef],
}

#[derive(Debug)]
enum Found {
    /// The missing rights with their verbs, and true if there are more.
    Rights(Vec<PolicyRule>, bool),
    /// Too many rights to compare.
    TooMany,
}

/// The rights of these rules that a user with the held ones lacks; `None` if there are none.
///
/// Cost: that of the texts, and a few nanoseconds for each of at most a million rights. Rules with more rights count as
/// missing, unless single held rules cover them.
pub fn missing_rights<'h>(user: &'h User, held: &'h HeldRules, wanted: &[PolicyRule]) -> Option<Missing<'h>> {
    let missing = |found| Some(Missing { user, found, unresolved: &held.missing });
    let wanted: Vec<&PolicyRule> =
        wanted.iter().filter(|rule| !held.rules.iter().any(|held| held.covers(rule))).collect();
    if !are_comparable(&wanted, held.rules.len()) {
        return missing(Found::TooMany);
    }
    let index = HeldIndex::of(&held.rules);
    let mut told = Told::default();
    let told_all = wanted.iter().try_for_each(|rule| index.each_missing(rule, |right| told.add(right))).is_continue();
    if told.rights.is_empty() { None } else { missing(Found::Rights(told.rights, !told_all)) }
}

/// The rights of `wanted` rules that held ones lack, each as a rule with one verb on one resource or path.
pub fn rights_beyond<R: Borrow<PolicyRule>>(held: &[R], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let index = HeldIndex::of(held);
    let mut rights = Vec::new();
    for rule in wanted {
        let _all = index.each_missing(rule, |right| {
            rights.push(right.to_rule());
            ControlFlow::Continue(())
        });
    }
    rights
}

/// Returns true if all rights of these rules can be compared with this number of held rules.
fn are_comparable(wanted: &[&PolicyRule], held: usize) -> bool {
    let (mut rights, mut texts) = (0usize, 0usize);
    for rule in wanted {
        let lengths = [&rule.api_groups, &rule.resources].map(Vec::len);
        let named = lengths.into_iter().fold(rule.resource_names.len().max(1), usize::saturating_mul);
        let named = named.saturating_add(rule.non_resource_urls.len());
        rights = rights.saturating_add(named.saturating_mul(rule.verbs.len()));
        let rest = [&rule.verbs, &rule.resource_names, &rule.non_resource_urls].map(Vec::len);
        texts = texts.saturating_add(lengths.into_iter().chain(rest).sum());
    }
    rights <= MOST_RIGHTS && texts.saturating_mul(held) <= MOST_COMPARISONS
}

/// One verb on one resource, for all names or one, or on a path.
#[derive(Clone, Copy)]
enum Right<'r> {
    Resource { verb: &'r str, group: &'r str, resource: &'r str, name: Option<&'r str> },
    Path { verb: &'r str, path: &'r str },
}

impl Right<'_> {
    fn bytes(self) -> usize {
        match self {
            Self::Resource { verb, group, resource, name } => {
                verb.len() + group.len() + resource.len() + name.map_or(0, str::len)
            }
            Self::Path { verb, path } => verb.len() + path.len(),
        }
    }

    fn to_rule(self) -> PolicyRule {
        let one = |text: &str| vec![text.to_owned()];
        match self {
            Self::Resource { verb, group, resource, name } => PolicyRule {
                verbs: one(verb),
                api_groups: one(group),
                resources: one(resource),
                resource_names: name.map(one).unwrap_or_default(),
                ..PolicyRule::default()
            },
            Self::Path { verb, path } => {
                PolicyRule { verbs: one(verb), non_resource_urls: one(path), ..PolicyRule::default() }
            }
        }
    }
}

/// A resource of a group, with the name of an object.
type Named<'r> = (&'r str, &'r str, Option<&'r str>);

/// Missing rights, grouped by resource with their verbs. Rights on paths are not grouped.
#[derive(Default)]
struct Told<'r> {
    rights: Vec<PolicyRule>,
    by_resource: HashMap<Named<'r>, usize>,
    bytes: usize,
}

impl<'r> Told<'r> {
    /// Adds a right. Breaks after the last one that fits.
    fn add(&mut self, right: Right<'r>) -> ControlFlow<()> {
        // At least one is listed.
        if self.bytes > MOST_TOLD_BYTES {
            return ControlFlow::Break(());
        }
        self.bytes += right.bytes();
        if let Right::Resource { verb, group, resource, name } = right {
            match self.by_resource.entry((group, resource, name)) {
                Entry::Occupied(known) => {
                    self.rights[*known.get()].verbs.push(verb.to_owned());
                    return ControlFlow::Continue(());
                }
                Entry::Vacant(new) => {
                    new.insert(self.rights.len());
                }
            }
        }
        if self.rights.len() == MOST_TOLD {
            return ControlFlow::Break(());
        }
        self.rights.push(right.to_rule());
        ControlFlow::Continue(())
    }
}

/// A subset of the held rules: one bit each.
#[derive(Clone)]
struct RuleSet(Vec<u64>);

impl RuleSet {
    fn none(held: usize) -> Self {
        Self(vec![0; held.div_ceil(64)])
    }

    fn add(&mut self, rule: usize) {
        self.0[rule / 64] |= 1 << (rule % 64);
    }

    fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, other)| one & other).collect())
    }

    /// Returns true if a rule is in all three sets.
    fn meets(&self, second: &Self, third: &Self) -> bool {
        self.0.iter().zip(&second.0).zip(&third.0).any(|((one, two), three)| one & two & three != 0)
    }
}

/// The held rules by a text in one of their fields.
struct Texts<'h>(HashMap<&'h str, Vec<usize>>);

impl<'h> Texts<'h> {
    fn of(held: &[&'h PolicyRule], field: impl Fn(&'h PolicyRule) -> &'h [String]) -> Self {
        let mut rules: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, rule) in held.iter().enumerate() {
            for text in field(rule) {
                rules.entry(text).or_default().push(number);
            }
        }
        Self(rules)
    }

    /// The rules that have one of these texts.
    fn having(&self, held: usize, texts: &[&str]) -> RuleSet {
        let mut rules = RuleSet::none(held);
        texts.iter().filter_map(|text| self.0.get(text)).flatten().for_each(|rule| rules.add(*rule));
        rules
    }
}

/// The held rules by their texts, so that a right needs no text comparison.
struct HeldIndex<'h> {
    rules: Vec<&'h PolicyRule>,
    verbs: Texts<'h>,
    groups: Texts<'h>,
    resources: Texts<'h>,
    names: Texts<'h>,
    /// The rules for all names.
    unnamed: RuleSet,
}

impl<'h> HeldIndex<'h> {
    fn of<R: Borrow<PolicyRule>>(held: &'h [R]) -> Self {
        let rules: Vec<&PolicyRule> = held.iter().map(Borrow::borrow).collect();
        let mut unnamed = RuleSet::none(rules.len());
        let without = rules.iter().enumerate().filter(|(_, rule)| rule.resource_names.is_empty());
        without.for_each(|(number, _)| unnamed.add(number));
        Self {
            verbs: Texts::of(&rules, |rule| &rule.verbs),
            groups: Texts::of(&rules, |rule| &rule.api_groups),
            resources: Texts::of(&rules, |rule| &rule.resources),
            names: Texts::of(&rules, |rule| &rule.resource_names),
            unnamed,
            rules,
        }
    }

    /// Passes each right of a rule that no held rule covers to `tell`, until that breaks.
    fn each_missing<'r>(
        &self,
        wanted: &'r PolicyRule,
        mut tell: impl FnMut(Right<'r>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let held = self.rules.len();
        let verbs: Vec<RuleSet> = wanted.verbs.iter().map(|verb| self.verbs.having(held, &[verb, ALL])).collect();
        let resources: Vec<RuleSet> = wanted.resources.iter().map(|resource| self.with_resource(resource)).collect();
        let names = self.with_names(wanted);
        for group in &wanted.api_groups {
            let of_group = self.groups.having(held, &[group, ALL]);
            for (resource, with_resource) in wanted.resources.iter().zip(&resources) {
                let on_resource = of_group.and(with_resource);
                for (verb, with_verb) in wanted.verbs.iter().zip(&verbs) {
                    let missing = names.iter().filter(|(_, with_name)| !on_resource.meets(with_verb, with_name));
                    for (name, _) in missing {
                        tell(Right::Resource { verb, group, resource, name: *name })?;
                    }
                }
            }
        }
        for path in &wanted.non_resource_urls {
            let mut on_path = RuleSet::none(held);
            let allowing = self.rules.iter().enumerate().filter(|(_, rule)| rule.allows_path(path));
            allowing.for_each(|(number, _)| on_path.add(number));
            let missing = wanted.verbs.iter().zip(&verbs).filter(|(_, with_verb)| !on_path.meets(with_verb, with_verb));
            for (verb, _) in missing {
                tell(Right::Path { verb, path })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn with_resource(&self, resource: &str) -> RuleSet {
        let of_any = resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        self.resources.having(self.rules.len(), &[resource, ALL, of_any.as_deref().unwrap_or(ALL)])
    }

    fn with_names<'r>(&self, wanted: &'r PolicyRule) -> Vec<(Option<&'r str>, RuleSet)> {
        if wanted.resource_names.is_empty() {
            return vec![(None, self.unnamed.clone())];
        }
        let named = |name: &'r String| {
            let mut rules = self.names.having(self.rules.len(), &[name]);
            rules.0.iter_mut().zip(&self.unnamed.0).for_each(|(one, other)| *one |= other);
            (Some(name.as_str()), rules)
        };
        wanted.resource_names.iter().map(named).collect()
    }
}

/// The text is kube-apiserver's.
impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = match &self.found {
            Found::Rights(rights, has_more) => {
                let lines: BTreeSet<String> = rights.iter().map(ToString::to_string).collect();
                lines.into_iter().chain(has_more.then(|| "and more".to_owned())).collect()
            }
            Found::TooMany => vec![format!(
                "more than {MOST_RIGHTS} combinations of verbs, groups, resources and names, which are not compared one by one: state fewer in a role"
            )],
        };
        let User { name, groups, .. } = self.user;
        let name = quote(name);
        let groups = quote_list(groups);
        let lines = lines.join("\n");
        write!(
            f,
            "user {name} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{lines}"
        )?;
        if !self.unresolved.is_empty() {
            let unresolved: Vec<String> = self.unresolved.iter().map(RoleRef::not_found).collect();
            write!(f, "; resolution errors: [{}]", unresolved.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn rule(verbs: usize, groups: usize, resources: usize, names: usize) -> PolicyRule {
        let texts = |count: usize, start: &str| (0..count).map(|number| format!("{start}{number}")).collect();
        PolicyRule {
            verbs: texts(verbs, "v"),
            api_groups: texts(groups, "g"),
            resources: texts(resources, "r"),
            resource_names: texts(names, "n"),
            ..PolicyRule::default()
        }
    }

    fn told(held: &[PolicyRule], wanted: &[PolicyRule]) -> Option<String> {
        let user = User::api_server();
        let rules = held.iter().cloned().map(Arc::new).collect();
        missing_rights(&user, &HeldRules { rules, ..HeldRules::default() }, wanted).map(|missing| missing.to_string())
    }

    #[test]
    fn what_is_told_of_many_rights_is_bounded() {
        let text = told(&[], &[rule(2, 30, 30, 10)]).unwrap();
        assert_eq!(text.lines().count(), 1 + MOST_TOLD + 1, "a line each behind that of the user");
        assert!(text.contains(r#"Verbs:["v0" "v1"]}"#) && text.ends_with("\nand more"), "{text}");
    }

    #[test]
    fn rights_of_long_names_are_told_by_their_bytes() {
        let mut long = rule(2, 1, 1, 3);
        long.verbs[0] = "v".repeat(MOST_TOLD_BYTES);
        let text = told(&[], &[long]).unwrap();
        assert!(text.len() < 3 * MOST_TOLD_BYTES && text.ends_with("\nand more"), "{}", text.len());
    }

    #[test]
    fn rules_of_which_nobody_can_compare_all_rights_are_refused_unless_one_rule_covers_them() {
        let boom = rule(100, 100, 100, 100);
        let text = told(&[rule(100, 100, 100, 99)], std::slice::from_ref(&boom)).unwrap();
        assert!(text.contains("more than 1048576 combinations"), "{text}");
        assert_eq!(told(std::slice::from_ref(&boom), std::slice::from_ref(&boom)), None);
        assert_eq!(told(&PolicyRule::everything(), &[boom]), None);
    }
}
