//! Quotas: what is used in a namespace is taken in the transaction that writes the object which uses it.
//!
//! A quota says in its status what is used of it. A write that uses more carries [`Charge`]s; they are added to the quotas in the same
//! transaction, on the condition that the quotas are as they were seen, so that writes on many servers together never use more
//! than there is, and a crash leaves nothing taken ([`desk`]). What objects use is told by [`usage`], which quotas they are counted
//! in by [`scopes`]. Nothing is given back here: a controller counts anew what is there.

mod desk;
mod limited;
mod limits;
mod scopes;
mod usage;

use std::sync::Arc;

use keelson_meta::{Amounts, ApiError, Object, Revision};
use keelson_storage::{Compare, Condition, StoreKey};

pub(crate) use desk::{Desks, Settled};
pub use limited::LimitedResource;
pub use limits::{ObjectUse, QuotaUse, object_use, quota_use};
pub use scopes::Scope as QuotaScope;

use crate::registry::Registry;
use crate::target::Target;
use limited::Coverage;
use limits::{Limits, Parsed};
use usage::Usage;

/// The most quotas of a namespace that a write looks at. Reading one takes some 20 us.
const MOST_QUOTAS: usize = 500;
/// The most bytes of them.
const MOST_QUOTA_BYTES: u64 = 1024 * 1024;
/// The most quotas that a write is charged to. etcd takes 128 compares in a transaction, and the object needs some of its own.
const MOST_CHARGED: usize = 100;

/// What a write takes of a quota.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    /// The quota, as it was when that was found.
    quota: Arc<Parsed>,
    /// The amounts, of which none is zero or negative.
    amounts: Amounts,
}

/// What a write takes, and what has to hold for that to be all.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// From each quota.
    pub(crate) charges: Vec<Charge>,
    /// That no other quota has come meanwhile, where the write does not compare that anyway.
    pub(crate) condition: Option<Compare>,
}

/// An object that is written: its endpoint, and what it was and will be.
#[derive(Clone, Copy)]
pub(crate) struct Charged<'c> {
    target: &'c Target,
    old: Option<&'c Object>,
    new: &'c Object,
}

impl<'c> Charged<'c> {
    pub(crate) fn of(target: &'c Target, old: Option<&'c Object>, new: &'c Object) -> Self {
        Self { target, old, new }
    }

    fn refused(&self, message: String) -> ApiError {
        let (resource, name) = (self.target.group_resource(), self.new.name().to_owned());
        ApiError::Refused { resource, name, message, causes: Vec::new() }
    }
}

impl Registry {
    /// What a write takes of the quotas of its namespace.
    ///
    /// # Errors
    /// 403 where it takes more than there is, or does not say how much.
    pub(crate) async fn charges(&self, charged: Charged<'_>) -> Result<Charges, ApiError> {
        let (target, Charged { old, new, .. }) = (charged.target, charged);
        let Some(namespace) = target.namespace.as_deref().filter(|_| target.is_namespaced()) else {
            return Ok(Charges::default());
        };
        let usage = Usage::of(&target.resource.group, &target.resource.plural);
        let below = target.subresource_name();
        if !self.config.quotas || !usage.is_counted_at(below, old, new) {
            return Ok(Charges::default());
        }
        let mut charges = match self.charges_now(&charged, namespace, usage) {
            // It may be known elsewhere that something was given back.
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

    fn charges_now(&self, charged: &Charged<'_>, namespace: &str, usage: Usage<'_>) -> Result<Charges, ApiError> {
        let mut charges = Charges::default();
        let mut coverage = Coverage::of(&self.config.limited_resources, usage, charged.old, charged.new);
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
            let amounts = limits.taken(usage, charged.old, charged.new);
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

    /// That a namespace is as it is now. It is written whenever another limit begins to hold in it.
    fn unchanged_namespace(&self, namespace: &str) -> Result<Option<Compare>, ApiError> {
        let Ok(namespaces) = self.target("", "namespaces") else { return Ok(None) };
        let collection = self.collection(&namespaces)?;
        Ok(collection.get(namespace).map(|entry| Compare {
            key: StoreKey::new(format!("{}{namespace}", collection.prefix())),
            condition: Condition::At(entry.revision),
        }))
    }

    /// The namespace of a quota, to be written again together with a quota whose limits change: its key, its bytes and its revision.
    pub fn namespace_to_touch(
        &self,
        namespace: &str,
    ) -> Result<Option<(Target, StoreKey, bytes::Bytes, Revision)>, ApiError> {
        let Ok(namespaces) = self.target("", "namespaces") else { return Ok(None) };
        let collection = self.collection(&namespaces)?;
        let Some(entry) = collection.get(namespace) else { return Ok(None) };
        let key = StoreKey::new(format!("{}{namespace}", collection.prefix()));
        Ok(Some((namespaces, key, entry.object.bytes(), entry.revision)))
    }
}

/// The quotas of a namespace.
struct QuotasOf<'n> {
    namespace: &'n str,
    /// Empty where there are more than a write looks at.
    parsed: Vec<Arc<Parsed>>,
    number: usize,
    bytes: u64,
}

impl QuotasOf<'_> {
    fn is_readable(&self) -> bool {
        self.number <= MOST_QUOTAS && self.bytes <= MOST_QUOTA_BYTES
    }

    /// Refuses a write where there are more than it looks at.
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

/// Refuses a write that more quotas count than one transaction changes.
fn check_charged(namespace: &str, number: usize) -> Result<(), String> {
    if number <= MOST_CHARGED {
        return Ok(());
    }
    let way_out = way_out(namespace);
    Err(format!("{number} resource quotas count it, and a write is charged to {MOST_CHARGED} at most: {way_out}"))
}

/// Deletions are never charged, so they work whatever quotas there are.
fn way_out(namespace: &str) -> String {
    format!("delete some of them (kubectl delete resourcequotas NAME -n {namespace})")
}

/// The refusal of a write that does not fit into one transaction with its quotas.
pub(crate) fn too_large_together(target: &Target, name: &str, number: usize) -> ApiError {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let message = format!(
        "it and the {number} resource quotas that count it are too large for one transaction: shorten their annotations and managed fields, or {}",
        way_out(namespace)
    );
    ApiError::Refused { resource: target.group_resource(), name: name.to_owned(), message, causes: Vec::new() }
}

impl Limits {
    /// Whether an object is counted in the quota.
    fn covers(&self, usage: Usage<'_>, object: &Object) -> bool {
        self.names(usage).next().is_some() && scopes::match_all(&self.scopes, usage, object)
    }

    /// What the quota is charged for an object that becomes `new`.
    fn taken(&self, usage: Usage<'_>, old: Option<&Object>, new: &Object) -> Amounts {
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
