//! The limits of a quota that are in force, their usage, and its scopes.
//!
//! The status counts: a limit of the specification is in force once the controller has counted the objects. Texts are
//! upstream's.

use std::collections::BTreeSet;
use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::{Amount, Amounts, Object, Revision};

use super::scopes::{self, Scope};
use super::usage::{Usage, counted_by};

/// The content of a quota.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// Its name.
    pub(super) name: String,
    /// The limits in force.
    pub(super) hard: Amounts,
    /// The usage of the limits.
    pub(super) used: Amounts,
    /// The scopes, which select the counted objects.
    pub(super) scopes: Vec<Scope>,
}

/// A quota at a revision.
#[derive(Debug)]
pub(super) struct Parsed {
    /// Its key in the cache.
    pub(super) key: Arc<str>,
    /// The revision.
    pub(super) revision: Revision,
    /// The limits and scopes.
    pub(super) limits: Limits,
}

impl Parsed {
    /// Reads a stored quota. Takes some 20 us.
    pub(super) fn from_entry(entry: &Entry) -> Self {
        let limits = Limits::from_quota(&entry.object().decode(entry.revision));
        Self { key: entry.key.clone(), revision: entry.revision, limits }
    }
}

impl Limits {
    /// Reads a quota.
    pub(super) fn from_quota(quota: &Object) -> Self {
        Self {
            name: quota.name().to_owned(),
            hard: Amounts::read(quota.get(&["status", "hard"])),
            used: Amounts::read(quota.get(&["status", "used"])),
            scopes: scopes::read(quota),
        }
    }

    /// The names of the limits that apply to objects of a resource.
    pub(super) fn names(&self, usage: Usage<'_>) -> impl Iterator<Item = &str> {
        self.hard.0.keys().map(String::as_str).filter(move |name| usage.has(name))
    }

    /// Refuses a pod that does not state an amount that the quota limits.
    pub(super) fn check_stated(&self, usage: Usage<'_>, object: &Object) -> Result<(), String> {
        let stated = usage.check_stated(self.names(usage), object);
        stated.map_err(|missing| format!("failed quota: {}: {missing}", self.name))
    }

    /// Refuses a write if the current usage of one of its names is not known.
    pub(super) fn check_known(&self, usage: Usage<'_>) -> Result<(), String> {
        if self.names(usage).all(|name| self.used.get(name).is_some()) {
            return Ok(());
        }
        let names: Vec<&str> = self.names(usage).collect();
        Err(format!("status unknown for quota: {}, resources: {}", self.name, names.join(",")))
    }

    /// Refuses a write that would exceed a limit.
    pub(super) fn check_room(&self, used: &Amounts, more: &Amounts) -> Result<(), String> {
        let is_exceeded = |name: &&String| {
            let (used, more, hard) = (used.get(name), more.get(name), self.hard.get(name));
            let sum = used.unwrap_or_default().plus(more.unwrap_or_default());
            hard.is_some_and(|hard| sum.quantity() > hard.quantity())
        };
        let exceeded: Vec<&String> = more.0.keys().filter(is_exceeded).collect();
        if exceeded.is_empty() {
            return Ok(());
        }
        let of = |amounts: &Amounts| {
            let named = exceeded.iter().filter_map(|name| Some(((*name).clone(), amounts.get(name)?)));
            Amounts(named.collect()).to_string()
        };
        let (requested, used, limited) = (of(more), of(used), of(&self.hard));
        Err(format!("exceeded quota: {}, requested: {requested}, used: {used}, limited: {limited}", self.name))
    }
}

/// Counts the usage of a stored quota, for the controller that maintains its status.
#[derive(Debug)]
pub struct QuotaUse {
    limits: Limits,
}

/// The usage of an object, for all quotas that count it.
pub struct ObjectUse<'o> {
    usage: Usage<'o>,
    object: &'o Object,
    amounts: Amounts,
}

/// The usage of an object of a resource.
pub fn object_use<'o>(group: &'o str, plural: &'o str, object: &'o Object) -> ObjectUse<'o> {
    let usage = Usage::new(group, plural);
    ObjectUse { usage, object, amounts: usage.amounts(object) }
}

/// The counter for the limits in the spec of a quota.
pub fn quota_use(quota: &Object) -> QuotaUse {
    let mut limits = Limits::from_quota(quota);
    limits.hard = Amounts::read(quota.get(&["spec", "hard"]));
    QuotaUse { limits }
}

impl QuotaUse {
    /// The group and plural name of each counted resource.
    pub fn resources(&self) -> Vec<(String, String)> {
        let resources: BTreeSet<_> = self.limits.hard.0.keys().filter_map(|name| counted_by(name)).collect();
        resources.into_iter().map(|(group, plural)| (group.to_owned(), plural.to_owned())).collect()
    }

    /// Returns true if only the number of a resource's objects counts, so that none is read.
    pub fn needs_number_only(&self, group: &str, plural: &str) -> bool {
        let usage = Usage::new(group, plural);
        self.limits.scopes.is_empty()
            && self
                .limits
                .names(usage)
                .all(|name| name == usage.count_name() || usage.is_number() || usage.is_of_claims() && name == plural)
    }

    /// Begins the count of a resource: the usage of all its names is zero.
    pub fn begin(&self, used: &mut Amounts, group: &str, plural: &str) {
        for name in self.limits.names(Usage::new(group, plural)) {
            used.add(name, Amount::default());
        }
    }

    /// Adds this number of objects of a resource.
    pub fn add_number(&self, used: &mut Amounts, group: &str, plural: &str, number: usize) {
        let number = Amount::units(i64::try_from(number).unwrap_or(i64::MAX));
        for name in self.limits.names(Usage::new(group, plural)) {
            used.add(name, number);
        }
    }

    /// Adds an object.
    pub fn add(&self, used: &mut Amounts, object: &ObjectUse<'_>) {
        if scopes::match_all(&self.limits.scopes, object.usage, object.object) {
            for (name, amount) in &object.amounts.0 {
                if self.limits.hard.get(name).is_some() {
                    used.add(name, *amount);
                }
            }
        }
    }
}
