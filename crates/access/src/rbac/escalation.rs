//! Rights that somebody would give away without having them.
//!
//! Upstream's rule: who writes a role must have all rights that it states, and who binds one all rights that it gives, unless it may
//! `escalate` or `bind`. Whoever is refused is told each right that it lacks.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;

use crate::rbac::rule::{PolicyRule, quoted};
use crate::rbac::{HeldRules, RoleRef};
use crate::user::User;

/// Rights that somebody would give away without having them.
#[derive(Debug)]
pub struct Missing<'h> {
    user: &'h User,
    rights: Vec<PolicyRule>,
    unresolved: &'h [RoleRef],
}

/// The rights among these rules that nobody with the others has; `None` where it has them all.
///
/// Cost: the product of how many rights the rules state and how many rules are held.
pub fn missing_rights<'h>(user: &'h User, held: &'h HeldRules, wanted: &[PolicyRule]) -> Option<Missing<'h>> {
    let rights = rights_beyond(&held.rules, wanted);
    (!rights.is_empty()).then(|| Missing { user, rights: joined(rights), unresolved: &held.missing })
}

/// The rights that rules give and held ones do not, each as a rule with one verb on one resource or path.
pub fn rights_beyond<R: Borrow<PolicyRule>>(held: &[R], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let is_held = |right: &PolicyRule| held.iter().any(|rule| rule.borrow().covers(right));
    wanted.iter().flat_map(single_rights).filter(|right| !is_held(right)).collect()
}

/// The rights of a rule, each with one verb.
fn single_rights(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| vec![text.clone()];
    let mut rights = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let names: Vec<Vec<String>> = if rule.resource_names.is_empty() {
                vec![Vec::new()]
            } else {
                rule.resource_names.iter().map(one).collect()
            };
            for verb in &rule.verbs {
                rights.extend(names.iter().map(|names| PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    resource_names: names.clone(),
                    ..PolicyRule::default()
                }));
            }
        }
    }
    for path in &rule.non_resource_urls {
        let on_path = |verb| PolicyRule { verbs: one(verb), non_resource_urls: one(path), ..PolicyRule::default() };
        rights.extend(rule.verbs.iter().map(on_path));
    }
    rights
}

/// Rights on the same resource as one rule with their verbs. Those on paths stay as they are.
fn joined(rights: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut joined: Vec<PolicyRule> = Vec::new();
    for right in rights {
        let is_same = |rule: &&mut PolicyRule| {
            right.non_resource_urls.is_empty()
                && rule.non_resource_urls.is_empty()
                && rule.api_groups == right.api_groups
                && rule.resources == right.resources
                && rule.resource_names == right.resource_names
        };
        match joined.iter_mut().find(is_same) {
            Some(rule) => rule.verbs.extend(right.verbs),
            None => joined.push(right),
        }
    }
    joined
}

/// As the reference server says it.
impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: BTreeSet<String> = self.rights.iter().map(ToString::to_string).collect();
        let lines: Vec<String> = lines.into_iter().collect();
        let User { name, groups, .. } = self.user;
        let name = keelson_meta::go_format::quote(name);
        let groups = quoted(groups);
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
