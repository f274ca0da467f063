//! Ownership of fields: `metadata.managedFields` after each write.
//!
//! Ownership is computed in the version of the request, before fields are added that the client did not send and that
//! have no default in its version, as upstream. Fields that an endpoint cannot change get no owner through it. The
//! module [`endpoints`] lists these fields.

mod apply;
mod endpoints;
mod last_applied;
mod versions;

use std::time::{Instant, SystemTime};

use keelson_meta::clock::rfc3339;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_patch::equal::{equal, side_by_side};
use keelson_patch::fields::{self, Manager, Owners};

use crate::caller::Caller;
use crate::measured::{COMPARISONS, Comparison};
use crate::target::Target;

pub(crate) use apply::{Application, apply, check, check_applied};
pub(crate) use endpoints::confine;
use versions::KindVersions;

/// The field of the metadata that this module keeps.
pub(crate) const MANAGED_FIELDS: &str = "managedFields";

/// Records the owners of a new object, which is in the version of the request.
///
/// Valid `managedFields` of the client count: an object may move with its owners.
///
/// Returns the owners as text, unless the client sent some: then they are in the object, to be checked like all of it.
///
/// # Errors
/// 500 when owners use a version that the object cannot be converted to.
pub(crate) async fn track_new(
    target: &Target,
    object: &mut Object,
    caller: &Caller,
    now: SystemTime,
) -> Result<Option<String>, ApiError> {
    let sent = take_managed(object);
    let owners = sent.as_ref().and_then(|sent| Owners::read(sent).ok()).unwrap_or_default();
    let mut versions = KindVersions::new(target);
    loop {
        let after = updated(&versions, &owners, caller, now, target.version.empty(), object);
        if versions.convert_wanted().await? {
            return Ok(noted(object, &after, !owners.is_empty()));
        }
    }
}

/// Records the owners of a changed object. Both states are in the same version.
///
/// An object with unknown owners keeps them unknown: otherwise all its fields would belong to the next writer. Returns
/// the owners as [`track_new`] does.
///
/// # Errors
/// 500 when owners use a version that the objects cannot be converted to.
pub(crate) async fn track(
    target: &Target,
    current: &mut Object,
    next: &mut Object,
    known: Option<&str>,
    caller: &Caller,
    now: SystemTime,
) -> Result<Option<String>, ApiError> {
    let Some(stated) = Stated::take(target, next, known) else { return Ok(None) };
    let mut versions = KindVersions::new(target);
    loop {
        let before = lend(current);
        let after = updated(&versions, &stated.owners, caller, now, &before, next);
        give_back(current, before);
        if versions.convert_wanted().await? {
            return Ok(stated.noted(next, &after, known));
        }
    }
}

/// Records the owners of a change of metadata alone. Metadata is equal in every version, so no conversion is needed.
pub(crate) fn track_metadata(
    target: &Target,
    current: &mut Object,
    next: &mut Object,
    known: Option<&str>,
    caller: &Caller,
    now: SystemTime,
) -> Option<String> {
    let stated = Stated::take(target, next, known)?;
    let before = lend(current);
    let after = updated(&KindVersions::of_metadata(target), &stated.owners, caller, now, &before, next);
    give_back(current, before);
    stated.noted(next, &after, known)
}

/// The owners of an object before a write.
struct Stated {
    owners: Owners,
    /// True if the client sent them.
    is_wanted: bool,
}

impl Stated {
    /// Takes the owners that the client sent out of an object; `None` if there are none.
    fn take(target: &Target, next: &mut Object, known: Option<&str>) -> Option<Self> {
        let sent = take_managed(next).filter(|_| target.subresource.is_none());
        let sent = sent.filter(|sent| known != Some(sent.to_string().as_str()));
        let known_owners = known.and_then(|known| Owners::read_text(known).ok()).unwrap_or_default();
        let wanted = sent.and_then(|sent| wanted(&sent)).filter(|wanted| *wanted != known_owners);
        let is_wanted = wanted.is_some();
        let owners = wanted.unwrap_or(known_owners);
        (!owners.is_empty()).then_some(Self { owners, is_wanted })
    }

    fn noted(&self, next: &mut Object, after: &Owners, known: Option<&str>) -> Option<String> {
        // Unchanged owners keep their form too, so that a write without effect leaves the same bytes.
        if !self.is_wanted && after.are_still(&self.owners) {
            return known.map(str::to_owned);
        }
        noted(next, after, self.is_wanted)
    }
}

/// Puts owners into an object if they have to be checked, and returns them otherwise.
fn noted(object: &mut Object, owners: &Owners, are_checked: bool) -> Option<String> {
    if are_checked {
        set_managed(object, Some(owners.write()));
        return None;
    }
    (!owners.is_empty()).then(|| owners.write_text())
}

/// The owners that a client sets: those that it names, or none at all. `None` for owners that cannot be read, and for
/// an empty field of a client that does not know it.
fn wanted(sent: &Value) -> Option<Owners> {
    if Owners::is_reset(sent) {
        return Some(Owners::default());
    }
    Owners::read(sent).ok().filter(|owners| !owners.is_empty())
}

/// The owners to store. If a write would change only their times, the old times are kept, so that the write changes
/// nothing. Both objects are in their stored form. `known` has the owners of the current object, `managed` those of the
/// next one.
pub(crate) fn keep_times(
    current: &Object,
    known: Option<&str>,
    next: &mut Object,
    managed: Option<String>,
) -> Option<String> {
    let managed = managed.or_else(|| take_managed(next).map(|managed| managed.to_string()));
    match (known, &managed) {
        (Some(before), Some(after)) if before != after => {
            let begun = Instant::now();
            let outcome = match same_content(current, next) {
                false => Comparison::Different,
                true if same_but_for_times(before, after) => Comparison::Equal,
                true => Comparison::DifferentOwners,
            };
            COMPARISONS.note(outcome, begun.elapsed());
            if outcome == Comparison::Equal { Some(before.to_owned()) } else { managed }
        }
        _ => managed,
    }
}

fn same_but_for_times(left: &str, right: &str) -> bool {
    let untimed = |text: &str| Owners::read_text(text).ok().map(Owners::without_times);
    untimed(left).is_some_and(|left| untimed(right) == Some(left))
}

fn same_content(left: &Object, right: &Object) -> bool {
    fn metadata(object: &Object) -> impl Iterator<Item = (&str, &Value)> {
        object.metadata().into_iter().flatten().filter(|(name, _)| *name != "resourceVersion")
    }
    left.0.len() == right.0.len()
        && metadata(left).count() == metadata(right).count()
        && metadata(left).all(|(name, value)| right.meta(name).is_some_and(|other| equal(value, other)))
        && side_by_side(&left.0, &right.0)
            .all(|(name, value, other)| name == "metadata" || other.is_some_and(|other| equal(value, other)))
}

fn updated(
    versions: &KindVersions<'_>,
    owners: &Owners,
    caller: &Caller,
    now: SystemTime,
    before: &Value,
    after: &mut Object,
) -> Owners {
    let version = after.api_version().unwrap_or_default().to_owned();
    let subresource = versions.target().subresource_name().unwrap_or_default();
    let manager = Manager::updates(caller.field_manager(), &version, subresource);
    let time = (!is_untimed(subresource)).then(|| rfc3339(now));
    let writer = fields::Writer { manager: &manager, version: &version, now: time.as_deref() };
    let new = lend(after);
    let owners = fields::update(versions, owners, writer, before, &new);
    give_back(after, new);
    owners
}

/// Returns true if entries of this subresource have no time. Upstream loses it between a scale and its workload.
pub(crate) fn is_untimed(subresource: &str) -> bool {
    subresource == "scale"
}

pub(crate) fn take_managed(object: &mut Object) -> Option<Value> {
    let Some(Value::Object(metadata)) = object.0.get_mut("metadata") else { return None };
    metadata.remove(MANAGED_FIELDS)
}

/// Writes the owners. An object without owners has no such field.
pub(crate) fn set_managed(object: &mut Object, managed: Option<Value>) {
    match managed {
        Some(Value::Array(entries)) if !entries.is_empty() => object.set_meta(MANAGED_FIELDS, Value::Array(entries)),
        _ => object.remove_meta(MANAGED_FIELDS),
    }
}

/// Moves an object out as a value, since computations of fields take values. [`give_back`] returns it.
fn lend(object: &mut Object) -> Value {
    Value::Object(std::mem::take(&mut object.0))
}

fn give_back(object: &mut Object, value: Value) {
    if let Value::Object(map) = value {
        object.0 = map;
    }
}
