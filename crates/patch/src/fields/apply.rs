//! Server-side apply and the ownership that other writes take.
//!
//! A write takes the fields it adds or changes from their owners. An apply owns what it says, may not change what others
//! own unless it is forced to, and removes what it said last time, says no more and nobody else owns.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use keelson_meta::json::Value;

use super::compare::{Comparison, compare_shown, new_text};
use super::conflict::{Conflict, Conflicts};
use super::element::PathElement;
use super::extract::{extract, extract_text};
use super::listing::Hidden;
use super::merge::{lay_again, merge};
use super::named::with_named_fields;
use super::owned::Fields;
use super::owners::{Manager, Owned, Owners};
use super::remove::remove;
use super::schema::FieldSchema;
use super::set::FieldSet;
use crate::equal::equal;

/// The manager that owns what an object has when it is first applied to and nobody owns anything: an update from nothing.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Members of `metadata` that nobody owns, like `metadata` itself, `apiVersion` and `kind`.
const UNOWNED: [&str; 8] =
    ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"];

/// About how long the text of the fields of a common object is, in bytes.
const TEXT_SIZE: usize = 3072;

/// The versions that a resource has, such as `apps/v1`.
pub trait Versions<'a> {
    /// The schemas of the versions.
    type Schema: FieldSchema<'a>;

    /// The schema of a version; `None` if there is no such version any more.
    fn schema(&self, version: &str) -> Option<Self::Schema>;

    /// The object, which may be of any version, in this one; `None` if there is no such version any more.
    fn convert(&self, object: &Value, version: &str) -> Option<Value>;

    /// The fields that a write to this endpoint cannot change, which it therefore never owns.
    fn reset_fields(&self, version: &str) -> Cow<'_, FieldSet>;
}

/// A write: who does it, and when, as RFC 3339 text.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'w> {
    /// Who.
    pub manager: &'w Manager,
    /// The version in which the objects are given.
    pub version: &'w str,
    /// When; `None` for a write that its entry says no time of.
    pub now: Option<&'w str>,
}

/// What an apply makes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The object, without regard to `managedFields`.
    pub object: Value,
    /// Its owners.
    pub owners: Owners,
    /// Whether the object is another than before; the owners may be others all the same.
    pub changed: bool,
}

/// The owners of an object after a write other than apply. Cost: a comparison for each version that owners use.
///
/// Both objects have to be valid in the writer's version. When something is created, the object before is what its kind
/// always has (`{"metadata":{},"spec":{},...}`), and nobody owns that.
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
        return Owners::of(writer, fields);
    }
    let mut owners = owners.clone().by_schemas_of_today(versions);
    let mut comparisons = Comparisons::new(versions, writer.version, before, after);
    let keeps = comparisons.at(writer.version).is_some_and(|changes| owners.keeps(writer.manager, changes));
    let losses = comparisons.losses(&owners, keeps.then_some(writer.manager));
    owners.take(losses);
    // An item that an update repeats is both removed and added, so removed fields are not subtracted here.
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
                let owned = Owned { fields, version: writer.version.to_owned(), time };
                owners.0.insert(writer.manager.clone(), owned);
            }
        }
    }
    owners.limit_updates();
    owners
}

/// The fields of who writes where there are no owners, as far as that takes no comparison: as in a create.
fn first_fields<'a>(versions: &impl Versions<'a>, writer: Writer<'_>, before: &Value, after: &Value) -> Option<Fields> {
    let kept = versions.reset_fields(writer.version);
    let hidden = Hidden { whole: Some(&kept), alone: Some(&UNOWNED_FIELDS) };
    new_text(versions.schema(writer.version)?, before, after, hidden, TEXT_SIZE).map(Fields::of_text)
}

/// Applies an object to a live one. Cost: proportional to both objects, for each version that owners use.
///
/// Both have to be valid in the writer's version, and the applied one without duplicates. When something is created, the
/// live object is as for [`update`].
///
/// # Errors
/// The fields that others own and that would change, unless `force` is set.
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
    let hidden = Hidden { whole: Some(&kept), alone: Some(&UNOWNED_FIELDS) };
    let mut fields = Fields::of_text(extract_text(schema, applied, hidden, TEXT_SIZE));
    let last = owners.0.remove(writer.manager);
    let gives_up_nothing = |last: &Owned| last.version == writer.version && last.fields.are_shown_by(&fields);
    let object = match last.as_ref().filter(|last| !last.fields.has_none()) {
        Some(last) if !gives_up_nothing(last) => {
            let mut all = extract(schema, applied);
            all.subtract_with_below(&kept);
            let now = Owned { fields: all.into(), version: writer.version.to_owned(), time: None };
            owners.0.insert(writer.manager.clone(), now);
            let mut pruned = prune(versions, &owners, writer, merged, last);
            // An empty list has no fields and went with its items. An object that was emptied may be applied as null. The second of
            // two equal applies would bring both back.
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
        // What is the same keeps its form.
        fields = if last.fields == fields { last.fields } else { fields };
    }
    if !fields.has_none() {
        let owned = Owned { fields, version: writer.version.to_owned(), time };
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

/// How two objects differ in each version, found when it is asked for.
struct Comparisons<'o, 'a, V: Versions<'a>> {
    versions: &'o V,
    /// The version in which the objects are given.
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

    /// `None` if there is no such version any more.
    fn at(&mut self, version: &str) -> Option<&Comparison> {
        if !self.found.contains_key(version) {
            let comparison = self.compare(version);
            self.found.insert(version.to_owned(), comparison);
        }
        self.found.get(version)?.as_ref()
    }

    /// The same, when it is needed for the last time.
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
        // Nobody loses what nobody owns; a client that leaves it out of an update changes nothing.
        let hidden = Hidden { whole: Some(&kept), alone: Some(&UNOWNED_FIELDS) };
        Some(compare_shown(schema, &before, &after, hidden))
    }

    /// What all managers but one lose by the change.
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

/// What managers lose.
#[derive(Default)]
struct Losses {
    fields: Vec<Loss>,
    /// Managers of versions that do not exist any more.
    obsolete: Vec<Manager>,
}

struct Loss {
    manager: Manager,
    /// Fields with new values: these are conflicts.
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
    /// A writer who alone owns something.
    fn of(writer: Writer<'_>, fields: Fields) -> Self {
        let mut owners = Self::default();
        if !fields.has_none() {
            let owned = Owned { fields, version: writer.version.to_owned(), time: writer.now.map(str::to_owned) };
            owners.0.insert(writer.manager.clone(), owned);
        }
        owners
    }

    /// Whether some owners use another version than this one.
    fn have_other_versions(&self, version: &str) -> bool {
        self.0.values().any(|owned| owned.version != version)
    }

    /// Whether an update by this manager leaves it just the fields that it owns: it changes only those, and removes none.
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

/// The merged object, given in the writer's version, without what its manager applied last and nobody owns now.
fn prune<'a>(versions: &impl Versions<'a>, owners: &Owners, writer: Writer<'_>, merged: Value, last: &Owned) -> Value {
    // Most applies give up nothing, and what others own need not be looked at.
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
        // The version of the last apply is gone, and with it the knowledge of what it meant.
        None => merged,
    }
}

fn pruned<'a>(
    versions: &impl Versions<'a>,
    owned: &[(&str, FieldSet)],
    version: &str,
    merged: &Value,
    last: &Owned,
) -> Option<Value> {
    let schema = versions.schema(&last.version)?;
    let merged = converted(versions, merged, version, &last.version)?;
    let last_fields = with_named_fields(&last.fields, schema);
    let mut at = last.version.as_str();
    let mut left = remove(schema, &merged, &last_fields);
    // What goes with a removed field comes back if somebody owns it.
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
    // And what nobody owned comes back too: only what was applied last may go.
    let left = converted(versions, &left, at, &last.version)?;
    let all = with_named_fields(&extract(schema, &merged), schema);
    let kept = with_named_fields(&extract(schema, &left), schema);
    let pruned = remove(schema, &merged, &all.difference(&kept).intersection(&last_fields));
    Some(converted(versions, &pruned, &last.version, version)?.into_owned())
}
