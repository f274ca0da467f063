//! Resources that may be used only in namespaces with a quota for them: the settings of the plugin ResourceQuota.
//!
//! A write that uses such a resource is refused in a namespace whose quotas do not limit it. Rules and texts are
//! upstream's.

use std::collections::BTreeSet;

use keelson_meta::{Object, Quantity};

use super::limits::Limits;
use super::scopes::{self, Scope};
use super::usage::Usage;

/// A resource, and the parts of its usage that need a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedResource {
    /// The group of the resource.
    pub group: String,
    /// The plural of the resource.
    pub plural: String,
    /// Parts of limit names. A quota must limit each used name that contains one of them.
    pub match_contains: Vec<String>,
    /// Scopes. An object in one of them needs a quota with a scope of the same name that also selects the object.
    pub match_scopes: Vec<Scope>,
}

/// The names and scopes of a write that need a quota, minus those that the quotas so far cover.
pub(super) struct Coverage<'c> {
    usage: Usage<'c>,
    old: Option<&'c Object>,
    new: &'c Object,
    /// The names that no quota covers yet.
    names: BTreeSet<String>,
    /// The scopes that no quota covers yet.
    scopes: Vec<&'c Scope>,
    /// False until a quota counts the object.
    is_counted: bool,
    /// True for a write that uses more in a quota that counts the object.
    uses_more: bool,
}

impl<'c> Coverage<'c> {
    /// Cost: allocates nothing if no resource is limited.
    pub(super) fn new(
        limited: &'c [LimitedResource],
        usage: Usage<'c>,
        old: Option<&'c Object>,
        new: &'c Object,
    ) -> Self {
        // As upstream, scopes count whatever resource they are configured for.
        let scopes = limited.iter().flat_map(|limited| &limited.match_scopes).filter(|scope| scope.has(usage, new));
        let own = || limited.iter().filter(|limited| usage.is_of(&limited.group, &limited.plural));
        let needs =
            |name: &String| own().any(|limited| limited.match_contains.iter().any(|part| name.contains(part.as_str())));
        let names = match own().next() {
            Some(_) => {
                let used = usage.amounts(new).0.into_iter();
                used.filter(|(_, amount)| amount.quantity() > Quantity::ZERO)
                    .map(|(name, _)| name)
                    .filter(needs)
                    .collect()
            }
            None => BTreeSet::new(),
        };
        Self { usage, old, new, names, scopes: scopes.collect(), is_counted: false, uses_more: false }
    }

    /// Removes the scopes that a quota covers, even if the quota does not count the object.
    pub(super) fn add_scopes(&mut self, limits: &Limits) {
        let (usage, new) = (self.usage, self.new);
        let covers = |scope: &Scope| limits.scopes.iter().any(|own| own.name == scope.name && own.has(usage, new));
        self.scopes.retain(|scope| !covers(scope));
    }

    /// Removes the names that a quota limits. The quota counts the object.
    pub(super) fn add_names(&mut self, limits: &Limits) {
        if self.is_complete() {
            return;
        }
        for name in limits.names(self.usage) {
            self.names.remove(name);
        }
        let is_moved = self.old.is_some_and(|old| !scopes::match_all(&limits.scopes, self.usage, old));
        (self.is_counted, self.uses_more) = (true, self.uses_more || is_moved);
    }

    fn is_complete(&self) -> bool {
        self.names.is_empty() && self.scopes.is_empty()
    }

    /// Refuses a write with uncovered names or scopes. An update that uses no more than before passes.
    ///
    /// # Errors
    /// The names or the scopes that are not covered.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.is_complete() {
            return Ok(());
        }
        let moves = self.is_counted && self.uses_more;
        if !moves && self.old.is_some_and(|old| !self.usage.uses_more(old, self.new)) {
            return Ok(());
        }
        if !self.names.is_empty() {
            let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
            return Err(format!("insufficient quota to consume: {}", names.join(",")));
        }
        let scopes: Vec<String> = self.scopes.iter().map(ToString::to_string).collect();
        Err(format!("insufficient quota to match these scopes: [{}]", scopes.join(" ")))
    }
}
