//! Server-side apply, and the changes of ownership by all other writes.
//!
//! A write takes the fields that it adds or changes from their owners. An apply owns all fields in the applied object.
//! Without `force` it must not change fields of other owners. An apply removes each field of the manager's last apply
//! that it no longer contains, unless the field has another owner.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use keelson_meta::json::Value;

use super::compare::{Comparison, compare_shown, new_text};
use super::conflict::{Conflict, Conflicts};
use super::element::PathElement;
use super::extract::{extract, extract_text};
use super::listing::OmittedFields;
use super::merge::{lay_again, merge};
use super::named::with_named_fields;
use super::owned::Fields;
use super::owners::{Manager, ManagerFields, Owners};
use super::remove::remove;
use super::schema::FieldSchema;
use super::set::FieldSet;
use crate::equal::equal;

/// The manager that gets the existing fields when the first apply finds an object without owners. Its operation is an
/// update.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Members of `metadata` that have no owners. `metadata` itself, `apiVersion` and `kind` have none.
const UNOWNED: [&str; 8] =
    ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"];

/// The approximate text length of a common object's fields, in bytes.
const TEXT_SIZE: usize = 3072;

/// The versions that a resource has, such as `apps/v1`.
pub trait Versions<'a> {
    /// The schemas of the versions.
    type Schema: FieldSchema<'a>;

    /// The schema of a version. `None` if the version no longer exists.
    fn schema(&self, version: &str) -> Option<Self::Schema>;

    /// Converts an object of any version to this one. `None` if the version no longer exists.
    fn convert(&self, object: &Value, version: &str) -> Option<Value>;

    /// The fields that a write to this endpoint can't change, so that its manager never owns them.
    fn reset_fields(&self, version: &str) -> Cow<'_, FieldSet>;
}

/// The author of a write, its version and its time.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'w> {
    /// The manager that writes.
    pub manager: &'w Manager,
    /// The version of the objects.
    pub version: &'w str,
    /// The time in RFC 3339. `None` for an entry without a time.
    pub now: Option<&'w str>,
}

/// The result of an apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The object. Its `managedFields` are not updated.
    pub object: Value,
    /// Its owners.
    pub owners: Owners,
    /// True if the object has changed. The owners may change without it.
    pub changed: bool,
}

/// Returns the owners of an object after a write other than an apply. Cost: a comparison for each version that owners
/// use.
///
/// Both objects must be valid in the writer's version. For a create, `before` has only the parts that objects of the
/// kind always have (`{"metadata":{},"spec":{},...}`), and no owners.
pub fn update<'a>(
    versions: &impl Versions<'a>,
    owners: &Owners,
    writer: Writer<'_>,
    before: &Value,
    after: &Value,
) -> Owners {
    if owners.is_empty()
        && let Some(fields) = first_fields(versions, writer, before, after)
    {
        return Owners::with_one(writer, fields);
    }
    let mut owners = owners.clone().by_schemas_of_today(versions);
    let mut comparisons = Comparisons::new(versions, writer.version, before, after);
    let keeps = comparisons.at(writer.version).is_some_and(|changes| owners.keeps(writer.manager, changes));
    let losses = comparisons.losses(&owners, keeps.then_some(writer.manager));
    owners.take(losses);
    // An item that an update repeats counts as both removed and added, so removed fields are not subtracted from the
    // writer's.
    let taken = comparisons.take(writer.version).map(|changes| {
        let mut taken = changes.added;
        taken.extend(changes.modified);
        taken
    });
    if let Some(taken) = taken.filter(|taken| !taken.is_empty()) {
        let time = writer.now.map(str::to_owned);
        match owners.0.get_mut(writer.manager) {
            Some(owned) if keeps => owned.time = time,
            owned => {
                let mut fields = owned.map(|owned| std::mem::take(&mut owned.fields)).unwrap_or_default();
                fields.extend(&taken);
                let owned = ManagerFields { fields, version: writer.version.to_owned(), time };
                owners.0.insert(writer.manager.clone(), owned);
            }
        }
    }
    owners.limit_updates();
    owners
}

/// The writer's fields for a write that needs no comparison, such as a create. `None` if owners or objects require one.
fn first_fields<'a>(versions: &impl Versions<'a>, writer: Writer<'_>, before: &Value, after: &Value) -> Option<Fields> {
    let kept = versions.reset_fields(writer.version);
    let hidden = OmittedFields { whole: Some(&kept), alone: Some(&UNOWNED_FIELDS) };
    new_text(versions.schema(writer.version)?, before, after, hidden, TEXT_SIZE).map(Fields::of_text)
}

/// Applies an object to a live object. Cost: proportional to both objects, for each version that owners use.
///
/// Both must be valid in the writer's version, and the applied object must have no repeated list items. For a create,
/// the live object is as for [`update`].
///
/// # Errors
/// Without `force`, the fields of other owners that would change.
pub fn apply<'a>(
    versions: &impl Versions<'a>,
    owners: &Owners,
    writer: Writer<'_>,
    live: &Value,
    applied: &Value,
    force: bool,
) -> Result<Applied, Conflicts> {
    let mut owners = owners.clone().by_schemas_of_today(versions);
    let Some(schema) = versions.schema(writer.version) else {
        return Ok(Applied { object: live.clone(), owners, changed: false });
    };
    let merged = merge(schema, live, applied);
    let kept = versions.reset_fields(writer.version);
    let hidden = OmittedFields { whole: Some(&kept), alone: Some(&UNOWNED_FIELDS) };
    let mut fields = Fields::of_text(extract_text(schema, applied, hidden, TEXT_SIZE));
    let last = owners.0.remove(writer.manager);
    let gives_up_nothing = |last: &ManagerFields| last.version == writer.version && last.fields.are_shown_by(&fields);
    let object = match last.as_ref().filter(|last| !last.fields.has_none()) {
        Some(last) if !gives_up_nothing(last) => {
            let mut all = extract(schema, applied);
            all.subtract_with_below(&kept);
            let now = ManagerFields { fields: all.into(), version: writer.version.to_owned(), time: None };
            owners.0.insert(writer.manager.clone(), now);
            let mut pruned = prune(versions, &owners, writer, merged, last);
            // An empty list has no fields, so it was removed with its items. An emptied object may be applied as null.
            // Both are added again here, since otherwise a second equal apply would add them.
            lay_again(schema, &mut pruned, applied);
            pruned
        }
        _ => merged,
    };

    let changed = !equal(&object, live);
    let losses = if changed || owners.have_other_versions(writer.version) {
        Comparisons::new(versions, writer.version, live, &object).losses(&owners, Some(writer.manager))
    } else {
        Losses::default()
    };
    if !force {
        losses.check()?;
    }
    owners.0.remove(writer.manager);
    owners.take(losses);
    let mut time = writer.now.filter(|_| changed).map(str::to_owned);
    if let Some(last) = last.filter(|_| !changed) {
        time = last.time;
        // If the fields are equal, the stored text is kept.
        fields = if last.fields == fields { last.fields } else { fields };
    }
    if !fields.has_none() {
        let owned = ManagerFields { fields, version: writer.version.to_owned(), time };
        owners.0.insert(writer.manager.clone(), owned);
    }
    Ok(Applied { object, owners, changed })
}

static UNOWNED_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
    let mut set = FieldSet::new();
    let metadata = PathElement::field("metadata");
    for name in ["apiVersion", "kind"] {
        set.insert(&[PathElement::field(name)]);
    }
    set.insert(std::slice::from_ref(&metadata));
    for name in UNOWNED {
        set.insert(&[metadata.clone(), PathElement::field(name)]);
    }
    set
});

/// The differences between two objects in each version, computed on demand.
struct Comparisons<'o, 'a, V: Versions<'a>> {
    versions: &'o V,
    /// The version of the objects.
    version: &'o str,
    before: &'o Value,
    after: &'o Value,
    found: BTreeMap<String, Option<Comparison>>,
    schema: std::marker::PhantomData<&'a ()>,
}

impl<'o, 'a, V: Versions<'a>> Comparisons<'o, 'a, V> {
    fn new(versions: &'o V, version: &'o str, before: &'o Value, after: &'o Value) -> Self {
        Self { versions, version, before, after, found: BTreeMap::new(), schema: std::marker::PhantomData }
    }

    /// Returns `None` if the version no longer exists.
    fn at(&mut self, version: &str) -> Option<&Comparison> {
        if !self.found.contains_key(version) {
            let comparison = self.compare(version);
            self.found.insert(version.to_owned(), comparison);
        }
        self.found.get(version)?.as_ref()
    }

    /// Returns a comparison by value, for its last use.
    fn take(mut self, version: &str) -> Option<Comparison> {
        match self.found.remove(version) {
            Some(found) => found,
            None => self.compare(version),
        }
    }

    fn compare(&self, version: &str) -> Option<Comparison> {
        let schema = self.versions.schema(version)?;
        let before = converted(self.versions, self.before, self.version, version)?;
        let after = converted(self.versions, self.after, self.version, version)?;
        let kept = self.versions.reset_fields(version);
        // Fields without owners are hidden, since no manager can lose them. An update that omits one of them does not
        // change it.
        let hidden = OmittedFields { whole: Some(&kept), alone: Some(&UNOWNED_FIELDS) };
        Some(compare_shown(schema, &before, &after, hidden))
    }

    /// The fields that the change takes from each manager except `except`.
    fn losses(&mut self, owners: &Owners, except: Option<&Manager>) -> Losses {
        let mut losses = Losses::default();
        for (manager, owned) in owners.0.iter().filter(|(manager, _)| Some(*manager) != except) {
            let Some(comparison) = self.at(&owned.version) else {
                losses.obsolete.push(manager.clone());
                continue;
            };
            if comparison.is_same() {
                continue;
            }
            let mut changed = owned.fields.intersection(&comparison.modified);
            if !comparison.added.is_empty() {
                changed = changed.union(&owned.fields.intersection(&comparison.added));
            }
            let removed = owned.fields.intersection(&comparison.removed);
            if !changed.is_empty() || !removed.is_empty() {
                losses.fields.push(Loss { manager: manager.clone(), changed, removed });
            }
        }
        losses
    }
}

/// The object of version `from` in version `to`.
fn converted<'o, 'a>(versions: &impl Versions<'a>, object: &'o Value, from: &str, to: &str) -> Option<Cow<'o, Value>> {
    if from == to { Some(Cow::Borrowed(object)) } else { versions.convert(object, to).map(Cow::Owned) }
}

/// The fields that each manager loses.
#[derive(Default)]
struct Losses {
    fields: Vec<Loss>,
    /// Managers whose version no longer exists.
    obsolete: Vec<Manager>,
}

struct Loss {
    manager: Manager,
    /// Fields with new values, which are conflicts.
    changed: FieldSet,
    removed: FieldSet,
}

impl Losses {
    fn check(&self) -> Result<(), Conflicts> {
        let conflicts = self.fields.iter().flat_map(|loss| {
            let paths = loss.changed.paths().into_iter();
            paths.map(|path| Conflict { manager: loss.manager.clone(), path })
        });
        let conflicts: Vec<_> = conflicts.collect();
        if conflicts.is_empty() { Ok(()) } else { Err(Conflicts(conflicts)) }
    }
}

impl Owners {
    /// Creates owners with only this writer.
    fn with_one(writer: Writer<'_>, fields: Fields) -> Self {
        let mut owners = Self::default();
        if !fields.has_none() {
            let owned =
                ManagerFields { fields, version: writer.version.to_owned(), time: writer.now.map(str::to_owned) };
            owners.0.insert(writer.manager.clone(), owned);
        }
        owners
    }

    /// Returns true if an owner uses another version.
    fn have_other_versions(&self, version: &str) -> bool {
        self.0.values().any(|owned| owned.version != version)
    }

    /// Returns true if an update leaves its manager's fields unchanged: it changes only fields that the manager owns
    /// and removes none.
    fn keeps(&self, manager: &Manager, changes: &Comparison) -> bool {
        let Some(owned) = self.0.get(manager).filter(|owned| owned.version == manager.version) else { return false };
        changes.removed.is_empty() && owned.fields.have(&changes.added) && owned.fields.have(&changes.modified)
    }

    fn take(&mut self, losses: Losses) {
        for manager in &losses.obsolete {
            self.0.remove(manager);
        }
        for loss in losses.fields {
            if let Some(owned) = self.0.get_mut(&loss.manager) {
                owned.fields.subtract(&loss.changed.union(&loss.removed));
            }
        }
        self.0.retain(|_, owned| !owned.fields.has_none());
    }

    /// All owned fields by version, those of `first` first.
    fn by_version(&self, first: &str) -> Vec<(&str, FieldSet)> {
        let mut versions: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for owned in self.0.values() {
            let fields = versions.entry(&owned.version).or_default();
            *fields = fields.union(&owned.fields);
        }
        let mut versions: Vec<_> = versions.into_iter().collect();
        versions.sort_by_key(|(version, _)| *version != first);
        versions
    }
}

/// Returns the merged object in the writer's version, without those fields of the last apply that have no owner any
/// more.
fn prune<'a>(
    versions: &impl Versions<'a>,
    owners: &Owners,
    writer: Writer<'_>,
    merged: Value,
    last: &ManagerFields,
) -> Value {
    // Most applies give up no field. Then the other owners need not be examined.
    let now = owners.get(writer.manager).filter(|now| now.version == last.version);
    if now.is_some_and(|now| last.fields.are_in(&now.fields)) {
        return merged;
    }
    let owned = owners.by_version(&last.version);
    if owned.first().is_some_and(|(first, now)| *first == last.version && last.fields.are_in(now)) {
        return merged;
    }
    match pruned(versions, &owned, writer.version, &merged, last) {
        Some(pruned) => pruned,
        // The version of the last apply no longer exists, so its fields are unknown.
        None => merged,
    }
}

fn pruned<'a>(
    versions: &impl Versions<'a>,
    owned: &[(&str, FieldSet)],
    version: &str,
    merged: &Value,
    last: &ManagerFields,
) -> Option<Value> {
    let schema = versions.schema(&last.version)?;
    let merged = converted(versions, merged, version, &last.version)?;
    let last_fields = with_named_fields(&last.fields, schema);
    let mut at = last.version.as_str();
    let mut left = remove(schema, &merged, &last_fields);
    // Fields that have an owner, but were removed together with their parent, are added again.
    for (version, fields) in owned {
        let (Some(schema), Some(whole), Some(part)) = (
            versions.schema(version),
            converted(versions, &merged, &last.version, version),
            converted(versions, &left, at, version),
        ) else {
            continue;
        };
        let all = with_named_fields(&extract(schema, &whole), schema);
        let kept = with_named_fields(&extract(schema, &part), schema).union(&with_named_fields(fields, schema));
        left = remove(schema, &whole, &all.difference(&kept));
        at = version;
    }
    // Fields that were not part of the last apply are added again too.
    let left = converted(versions, &left, at, &last.version)?;
    let all = with_named_fields(&extract(schema, &merged), schema);
    let kept = with_named_fields(&extract(schema, &left), schema);
    let pruned = remove(schema, &merged, &all.difference(&kept).intersection(&last_fields));
    Some(converted(versions, &pruned, &last.version, version)?.into_owned())
}
