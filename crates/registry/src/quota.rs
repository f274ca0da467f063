//! Quotas: the transaction that writes an object also charges its usage to the quotas of its namespace.
//!
//! The status of a quota has its usage. A write that uses more carries [`Charge`]s, which the same transaction adds to
//! the quotas. The transaction compares that the quotas are unchanged since they were read. Writes on many servers
//! together therefore never exceed a quota, and a crash leaves no charge without its object ([`desk`]).
//!
//! [`usage`] computes the usage of an object, and [`scopes`] decides which quotas count it. No usage is given back
//! here: a controller counts the existing objects again.

mod desk;
mod limited;
mod limits;
mod scopes;
mod usage;

use std::sync::Arc;

use keelson_meta::{Amounts, ApiError, Object, Revision};
use keelson_storage::{Compare, Condition, StoreKey};

pub(crate) use desk::{QuotaBatchers, WriteOutcome};
pub use limited::LimitedResource;
pub use limits::{ObjectUse, QuotaUse, object_use, quota_use};
pub use scopes::Scope as QuotaScope;

use crate::registry::Registry;
use crate::target::Target;
use limited::Coverage;
use limits::{Limits, Parsed};
use usage::Usage;

/// The largest number of quotas in a namespace that a write reads. Reading one takes some 20 us.
const MOST_QUOTAS: usize = 500;
/// The largest total size of these quotas, in bytes.
const MOST_QUOTA_BYTES: u64 = 1024 * 1024;
/// The largest number of quotas that a write is charged to. etcd takes 128 compares in a transaction, and the object
/// needs some of them.
const MOST_CHARGED: usize = 100;

/// The usage that a write adds to a quota.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    /// The quota, as it was when the amounts were computed.
    quota: Arc<Parsed>,
    /// The amounts, all of them positive.
    amounts: Amounts,
}

/// The charges of a write, and the condition under which they are complete.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// The charge of each quota.
    pub(crate) charges: Vec<Charge>,
    /// Compares that no other quota was added, unless the write compares that anyway.
    pub(crate) condition: Option<Compare>,
}

/// An object that is written: its endpoint, its old and its new state.
#[derive(Clone, Copy)]
pub(crate) struct ChargedWrite<'c> {
    target: &'c Target,
    old: Option<&'c Object>,
    new: &'c Object,
}

impl<'c> ChargedWrite<'c> {
    pub(crate) fn new(target: &'c Target, old: Option<&'c Object>, new: &'c Object) -> Self {
        Self { target, old, new }
    }

    fn refused(&self, message: String) -> ApiError {
        let (resource, name) = (self.target.group_resource(), self.new.name().to_owned());
        ApiError::Refused { resource, name, message, causes: Vec::new() }
    }
}

impl Registry {
    /// The charges of a write to the quotas of its namespace.
    ///
    /// # Errors
    /// 403 if the write exceeds a quota, or does not state an amount that a quota requires.
    pub(crate) async fn charges(&self, charged: ChargedWrite<'_>) -> Result<Charges, ApiError> {
        let (target, ChargedWrite { old, new, .. }) = (charged.target, charged);
        let Some(namespace) = target.namespace.as_deref().filter(|_| target.is_namespaced()) else {
            return Ok(Charges::default());
        };
        let usage = Usage::new(&target.resource.group, &target.resource.plural);
        let below = target.subresource_name();
        if !self.config.quotas || !usage.is_counted_at(below, old, new) {
            return Ok(Charges::default());
        }
        let mut charges = match self.charges_now(&charged, namespace, usage) {
            // The cache may not show yet that usage was given back.
            Err(_) => {
                self.catch_up().await?;
                self.charges_now(&charged, namespace, usage)?
            }
            Ok(charges) => charges,
        };
        if old.is_some_and(|old| usage.grows(old, new)) {
            charges.condition = self.unchanged_namespace(namespace)?;
        }
        Ok(charges)
    }

    fn charges_now(&self, charged: &ChargedWrite<'_>, namespace: &str, usage: Usage<'_>) -> Result<Charges, ApiError> {
        let mut charges = Charges::default();
        let mut coverage = Coverage::new(&self.config.limited_resources, usage, charged.old, charged.new);
        let quotas = self.desks.quotas(self, namespace)?;
        quotas.check_number().map_err(|message| charged.refused(message))?;
        for quota in quotas.parsed {
            let limits = &quota.limits;
            coverage.add_scopes(limits);
            if !limits.covers(usage, charged.new) {
                continue;
            }
            limits.check_stated(usage, charged.new).map_err(|message| charged.refused(message))?;
            limits.check_known(usage).map_err(|message| charged.refused(message))?;
            coverage.add_names(limits);
            let amounts = limits.charge(usage, charged.old, charged.new);
            if !amounts.0.is_empty() {
                charges.charges.push(Charge { quota, amounts });
            }
        }
        coverage.check().map_err(|message| charged.refused(message))?;
        check_charged(namespace, charges.charges.len()).map_err(|message| charged.refused(message))?;
        for Charge { quota, amounts } in &charges.charges {
            let limits = &quota.limits;
            limits.check_room(&limits.used, amounts).map_err(|message| charged.refused(message))?;
        }
        Ok(charges)
    }

    /// The condition that a namespace is unchanged. A namespace is written whenever another limit takes effect in it.
    fn unchanged_namespace(&self, namespace: &str) -> Result<Option<Compare>, ApiError> {
        let Ok(namespaces) = self.target("", "namespaces") else { return Ok(None) };
        let collection = self.collection(&namespaces)?;
        Ok(collection.get(namespace).map(|entry| Compare {
            key: StoreKey::new(format!("{}{namespace}", collection.prefix())),
            condition: Condition::At(entry.revision),
        }))
    }

    /// The namespace of a quota, which is written again with each quota whose limits change: its target, key, bytes and
    /// revision.
    pub fn namespace_to_touch(
        &self,
        namespace: &str,
    ) -> Result<Option<(Target, StoreKey, bytes::Bytes, Revision)>, ApiError> {
        let Ok(namespaces) = self.target("", "namespaces") else { return Ok(None) };
        let collection = self.collection(&namespaces)?;
        let Some(entry) = collection.get(namespace) else { return Ok(None) };
        let key = StoreKey::new(format!("{}{namespace}", collection.prefix()));
        Ok(Some((namespaces, key, entry.object().bytes(), entry.revision)))
    }
}

/// The quotas of a namespace.
struct QuotasOf<'n> {
    namespace: &'n str,
    /// The quotas. Empty if the namespace has more quotas than a write may read.
    parsed: Vec<Arc<Parsed>>,
    number: usize,
    bytes: u64,
}

impl QuotasOf<'_> {
    fn is_readable(&self) -> bool {
        self.number <= MOST_QUOTAS && self.bytes <= MOST_QUOTA_BYTES
    }

    /// Refuses a write if there are more quotas than it reads.
    fn check_number(&self) -> Result<(), String> {
        if self.is_readable() {
            return Ok(());
        }
        let Self { namespace, number, bytes, .. } = self;
        Err(format!(
            "namespace {namespace} has {number} resource quotas with {bytes} bytes, and a write looks at {MOST_QUOTAS} with \
             {MOST_QUOTA_BYTES} bytes at most: {}",
            way_out(namespace)
        ))
    }
}

/// Refuses a write that is charged to more quotas than one transaction can change.
fn check_charged(namespace: &str, number: usize) -> Result<(), String> {
    if number <= MOST_CHARGED {
        return Ok(());
    }
    let way_out = way_out(namespace);
    Err(format!("{number} resource quotas count it, and a write is charged to {MOST_CHARGED} at most: {way_out}"))
}

/// The advice for such errors. Deletions are never charged, so they work with any number of quotas.
fn way_out(namespace: &str) -> String {
    format!("delete some of them (kubectl delete resourcequotas NAME -n {namespace})")
}

/// The error for a write that does not fit into one transaction with its quotas.
pub(crate) fn too_large_together(target: &Target, name: &str, number: usize) -> ApiError {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let message = format!(
        "it and the {number} resource quotas that count it are too large for one transaction: shorten their annotations and managed fields, or {}",
        way_out(namespace)
    );
    ApiError::Refused { resource: target.group_resource(), name: name.to_owned(), message, causes: Vec::new() }
}

impl Limits {
    /// Returns true if the quota counts an object.
    fn covers(&self, usage: Usage<'_>, object: &Object) -> bool {
        self.names(usage).next().is_some() && scopes::match_all(&self.scopes, usage, object)
    }

    /// The charge of the quota for an object that becomes `new`.
    fn charge(&self, usage: Usage<'_>, old: Option<&Object>, new: &Object) -> Amounts {
        let before = old.filter(|old| scopes::match_all(&self.scopes, usage, old));
        let before = before.map(|old| usage.amounts(old)).unwrap_or_default();
        let after = usage.amounts(new).0.into_iter();
        let more = after.filter(|(name, _)| self.hard.get(name).is_some()).map(|(name, amount)| {
            let less = before.get(&name).unwrap_or_default();
            (name, amount.minus(less))
        });
        Amounts(more.filter(|(_, more)| more.quantity() > keelson_meta::Quantity::ZERO).collect())
    }
}
