//! Privilege escalation: finds rights that a user would grant without having them.
//!
//! Upstream's rule: the author of a role must have all its rights, and the author of a binding must have all rights of
//! the role. Authors with the verb `escalate` or `bind` are exempt. The refusal lists each missing right.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;

use keelson_meta::go_format::{quote, quote_list};

use crate::rbac::rule::{ALL, PolicyRule};
use crate::rbac::texts::{RuleSet, Texts};
use crate::rbac::{HeldRules, RoleRef};
use crate::user::User;

/// The largest number of rights, each with one verb, in rules that no single held rule covers.
const MOST_RIGHTS: usize = 1 << 20;
/// The largest number of comparisons between a string and a held rule.
const MOST_COMPARISONS: usize = 1 << 26;
/// The largest number of strings in a rule that counts as plain, and the number of plain rules that are compared with
/// each wanted rule directly.
const PLAIN_TEXTS: usize = 16;
const MOST_PLAIN: usize = 16;
/// The largest number of missing rights in a message, each with all its verbs, and their largest size in bytes.
const MOST_TOLD: usize = 1000;
const MOST_TOLD_BYTES: usize = 256 << 10;

/// The rights that a user would grant without having them.
#[derive(Debug)]
pub struct Missing<'h> {
    user: &'h User,
    found: FoundRules,
    unresolved: &'h [RoleRef],
}

#[derive(Debug)]
enum FoundRules {
    /// The missing rights with their verbs, and true if there are more.
    Rights(Vec<PolicyRule>, bool),
    /// Too many rights to compare.
    TooMany,
}

/// The rights in `wanted` that the user does not have by the rules `held`; `None` if there are none.
///
/// Cost: proportional to the strings, plus a few nanoseconds for each comparison with a held rule and for each right.
/// If `wanted` needs more than [`MOST_COMPARISONS`] or has more than [`MOST_RIGHTS`], its rules count as missing. Rules
/// that equal a held rule, or that a held rule for everything covers, are not counted.
pub fn missing_rights<'h>(user: &'h User, held: &'h HeldRules, wanted: &[PolicyRule]) -> Option<Missing<'h>> {
    let missing = |found| Some(Missing { user, found, unresolved: &held.missing });
    let rules: HashSet<&PolicyRule> = held.rules.iter().map(|rule| &**rule).collect();
    let plain: Vec<&PolicyRule> = rules.iter().copied().filter(|rule| is_plain(rule)).take(MOST_PLAIN).collect();
    let is_left = |rule: &&PolicyRule| !rules.contains(rule) && !plain.iter().any(|held| held.covers(rule));
    let wanted: Vec<&PolicyRule> = wanted.iter().filter(is_left).collect();
    if comparisons(&wanted, &rules) > MOST_COMPARISONS {
        return missing(FoundRules::TooMany);
    }
    let rules: Vec<&PolicyRule> = rules.into_iter().collect();
    let index = HeldIndex::new(&rules);
    let wanted: Vec<&PolicyRule> = wanted.into_iter().filter(|rule| !index.covers(rule)).collect();
    if rights(&wanted) > MOST_RIGHTS {
        return missing(FoundRules::TooMany);
    }
    let mut told = MissingRights::default();
    let told_all = wanted.iter().try_for_each(|rule| index.each_missing(rule, |right| told.add(right))).is_continue();
    if told.rights.is_empty() { None } else { missing(FoundRules::Rights(told.rights, !told_all)) }
}

/// Returns true for a rule with few strings that allows all verbs on all resources or paths, like those of
/// `cluster-admin`.
fn is_plain(rule: &PolicyRule) -> bool {
    let any = |texts: &[String]| texts.iter().any(|text| text == ALL);
    let texts = [&rule.verbs, &rule.api_groups, &rule.resources, &rule.resource_names, &rule.non_resource_urls];
    let of_resources = any(&rule.api_groups) && any(&rule.resources) && rule.resource_names.is_empty();
    texts.into_iter().map(Vec::len).sum::<usize>() <= PLAIN_TEXTS
        && any(&rule.verbs)
        && (of_resources || any(&rule.non_resource_urls))
}

/// The rights in `wanted` that no rule in `held` covers, each as a rule with one verb on one resource or path.
pub fn rights_beyond<R: Borrow<PolicyRule>>(held: &[R], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let index = HeldIndex::new(held);
    let mut rights = Vec::new();
    for rule in wanted {
        let _all = index.each_missing(rule, |right| {
            rights.push(right.to_rule());
            ControlFlow::Continue(())
        });
    }
    rights
}

/// The largest number of comparisons between a string of `wanted` and a held rule.
fn comparisons(wanted: &[&PolicyRule], held: &HashSet<&PolicyRule>) -> usize {
    let (mut texts, mut paths) = (0usize, 0usize);
    for rule in wanted {
        let fields = [&rule.verbs, &rule.api_groups, &rule.resources, &rule.resource_names];
        // A rule without resource names counts as one string for that field.
        texts = texts.saturating_add(fields.into_iter().map(Vec::len).sum::<usize>() + 1);
        paths = paths.saturating_add(rule.non_resource_urls.len());
    }
    let held_paths = if paths == 0 { 0 } else { held.iter().map(|rule| rule.non_resource_urls.len()).sum::<usize>() };
    let on_paths = paths.saturating_mul(held_paths.saturating_add(held.len()));
    texts.saturating_mul(held.len()).saturating_add(on_paths)
}

/// The number of rights, each with one verb, in these rules.
fn rights(wanted: &[&PolicyRule]) -> usize {
    let of_rule = |rule: &&PolicyRule| {
        let lengths = [&rule.api_groups, &rule.resources].map(Vec::len);
        let named = lengths.into_iter().fold(rule.resource_names.len().max(1), usize::saturating_mul);
        named.saturating_add(rule.non_resource_urls.len()).saturating_mul(rule.verbs.len())
    };
    wanted.iter().map(of_rule).fold(0, usize::saturating_add)
}

/// A verb on a resource (all objects, or one name), or on a path.
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

/// The group, the resource and the name of an object.
type NamedObject<'r> = (&'r str, &'r str, Option<&'r str>);

/// Missing rights. Rights on the same resource are one entry with several verbs. Rights on paths are not grouped.
#[derive(Default)]
struct MissingRights<'r> {
    rights: Vec<PolicyRule>,
    by_resource: HashMap<NamedObject<'r>, usize>,
    bytes: usize,
}

impl<'r> MissingRights<'r> {
    /// Adds a right. Breaks once the size limit is reached.
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

/// The held rules, indexed by their strings, so that checking a right compares no strings.
struct HeldIndex<'h> {
    rules: Vec<&'h PolicyRule>,
    verbs: Texts<&'h str>,
    groups: Texts<&'h str>,
    resources: Texts<&'h str>,
    names: Texts<&'h str>,
    /// The held rules without resource names.
    unnamed: RuleSet,
}

impl<'h> HeldIndex<'h> {
    fn new<R: Borrow<PolicyRule>>(held: &'h [R]) -> Self {
        let rules: Vec<&PolicyRule> = held.iter().map(Borrow::borrow).collect();
        let mut unnamed = RuleSet::none(rules.len());
        let without = rules.iter().enumerate().filter(|(_, rule)| rule.resource_names.is_empty());
        without.for_each(|(number, _)| unnamed.add(number));
        let texts = |field: fn(&'h PolicyRule) -> &'h [String]| {
            Texts::new(rules.iter().map(move |rule| field(rule).iter().map(String::as_str)))
        };
        Self {
            verbs: texts(|rule| &rule.verbs),
            groups: texts(|rule| &rule.api_groups),
            resources: texts(|rule| &rule.resources),
            names: texts(|rule| &rule.resource_names),
            unnamed,
            rules,
        }
    }

    /// Calls `tell` for each right of `wanted` that no held rule covers, until it breaks.
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
            let on_path = self.with_path(path);
            let missing = wanted.verbs.iter().zip(&verbs).filter(|(_, with_verb)| !on_path.meets(with_verb, with_verb));
            for (verb, _) in missing {
                tell(Right::Path { verb, path })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns true if one held rule covers the whole rule. Cost: one pass over the held rules for each string of
    /// `wanted`.
    fn covers(&self, wanted: &PolicyRule) -> bool {
        let held = self.rules.len();
        let verbs = wanted.verbs.iter().map(|verb| self.verbs.having(held, &[verb, ALL]));
        let groups = wanted.api_groups.iter().map(|group| self.groups.having(held, &[group, ALL]));
        let resources = wanted.resources.iter().map(|resource| self.with_resource(resource));
        let names = self.with_names(wanted).into_iter().map(|(_, with_name)| with_name);
        let paths = wanted.non_resource_urls.iter().map(|path| self.with_path(path));
        let mut covering = RuleSet::all(held);
        verbs.chain(groups).chain(resources).chain(names).chain(paths).all(|having| {
            covering.keep(&having);
            !covering.is_empty()
        })
    }

    fn with_path(&self, path: &str) -> RuleSet {
        let mut on_path = RuleSet::none(self.rules.len());
        let allowing = self.rules.iter().enumerate().filter(|(_, rule)| rule.allows_path(path));
        allowing.for_each(|(number, _)| on_path.add(number));
        on_path
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
            rules.add_all(&self.unnamed);
            (Some(name.as_str()), rules)
        };
        wanted.resource_names.iter().map(named).collect()
    }
}

/// The message is kube-apiserver's.
impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = match &self.found {
            FoundRules::Rights(rights, has_more) => {
                let lines: BTreeSet<String> = rights.iter().map(ToString::to_string).collect();
                lines.into_iter().chain(has_more.then(|| "and more".to_owned())).collect()
            }
            FoundRules::TooMany => vec![format!(
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

    fn missing_text(held: &[PolicyRule], wanted: &[PolicyRule]) -> Option<String> {
        let user = User::api_server();
        let rules = held.iter().cloned().map(Arc::new).collect();
        missing_rights(&user, &HeldRules { rules, ..HeldRules::default() }, wanted).map(|missing| missing.to_string())
    }

    #[test]
    fn the_text_of_many_rights_is_limited() {
        let text = missing_text(&[], &[rule(2, 30, 30, 10)]).unwrap();
        assert_eq!(text.lines().count(), 1 + MOST_TOLD + 1, "a line each behind that of the user");
        assert!(text.contains(r#"Verbs:["v0" "v1"]}"#) && text.ends_with("\nand more"), "{text}");
    }

    #[test]
    fn rights_of_long_names_are_reported_by_their_bytes() {
        let mut long = rule(2, 1, 1, 3);
        long.verbs[0] = "v".repeat(MOST_TOLD_BYTES);
        let text = missing_text(&[], &[long]).unwrap();
        assert!(text.len() < 3 * MOST_TOLD_BYTES && text.ends_with("\nand more"), "{}", text.len());
    }

    /// 16,000 rules that differ only in a name, as in a large role.
    fn many(start: &str) -> Vec<PolicyRule> {
        let one = |number: usize| PolicyRule { resource_names: vec![format!("{start}{number}")], ..rule(2, 1, 1, 0) };
        (0..16_000).map(one).collect()
    }

    #[test]
    fn large_roles_are_compared_in_bounded_time() {
        let begun = std::time::Instant::now();
        let held = many("n");
        assert_eq!(missing_text(&held, &held), None, "a user gives what it has");
        // A covering rule is found without comparing strings.
        let parts: Vec<_> =
            held.iter().take(500).map(|rule| PolicyRule { verbs: vec!["v1".to_owned()], ..rule.clone() }).collect();
        assert_eq!(missing_text(&held, &parts), None);
        let text = missing_text(&held, &many("m")).unwrap();
        assert!(text.contains("which are not compared one by one"), "{text}");
        assert_eq!(missing_text(&PolicyRule::everything(), &many("m")), None);
        // One rule with many strings on each side. Comparing all pairs would take minutes.
        let (one, other) =
            (rule(40_000, 1, 1, 0), PolicyRule { api_groups: vec!["h".to_owned()], ..rule(40_000, 1, 1, 0) });
        assert!(missing_text(&[one], &[other]).is_some());
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[test]
    fn rules_with_too_many_rights_to_compare_need_one_covering_rule() {
        let boom = rule(100, 100, 100, 100);
        let text = missing_text(&[rule(100, 100, 100, 99)], std::slice::from_ref(&boom)).unwrap();
        assert!(text.contains("more than 1048576 combinations"), "{text}");
        assert_eq!(missing_text(std::slice::from_ref(&boom), std::slice::from_ref(&boom)), None);
        assert_eq!(missing_text(&PolicyRule::everything(), &[boom]), None);
    }
}
