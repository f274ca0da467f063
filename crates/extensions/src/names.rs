//! The names in a group and their owners. A definition gets a free name. Others that request it wait until it is free.
//!
//! Names of a pending status write count as owned, so two definitions decided concurrently on one server never get the
//! same name. Reasons and texts are upstream's.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use keelson_meta::Revision;
use keelson_meta::go_format::quote;

use crate::conditions::{self, Condition};
use crate::definition::{Definition, Names};

/// The decision about the requested names of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The names it owns from now on.
    pub(crate) accepted: Names,
    /// The condition in its status.
    pub(crate) condition: Condition,
}

/// The names of all definitions.
#[derive(Default)]
pub(crate) struct NameIndex {
    groups: HashMap<String, Group>,
    claims: HashMap<String, Claim>,
}

#[derive(Default)]
struct Group {
    /// The owners of each name of a resource. Several exist only if servers decided concurrently.
    resources: HashMap<String, BTreeSet<String>>,
    kinds: HashMap<String, BTreeSet<String>>,
    /// Definitions that did not get all requested names.
    waiting: BTreeSet<String>,
}

/// The names of a definition.
struct Claim {
    group: String,
    revision: Revision,
    stored: Names,
    /// The names of a pending write.
    pending: Option<Names>,
}

impl NameIndex {
    /// Records the stored names of a definition. Returns the definitions that may get freed names.
    pub(crate) fn note(&mut self, definition: &Definition, revision: Revision) -> Vec<String> {
        let name = &definition.name;
        if self.claims.get(name).is_some_and(|claim| claim.revision > revision) {
            return Vec::new();
        }
        let pending = self.claims.get(name).and_then(|claim| claim.pending.clone());
        let stored = definition.accepted.clone();
        let claim = Claim { group: definition.group.clone(), revision, stored, pending };
        self.replace(name, Some(claim))
    }

    /// Removes a deleted definition. Returns the definitions that may get its names.
    pub(crate) fn forget(&mut self, name: &str) -> Vec<String> {
        self.replace(name, None)
    }

    /// Decides on the names of a definition, and reserves the free ones until [`NameIndex::settle`] reports the result
    /// of the write.
    pub(crate) fn judge(&mut self, definition: &Definition) -> Verdict {
        let verdict = self.verdict(definition);
        let name = &definition.name;
        let group = self.groups.entry(definition.group.clone()).or_default();
        if verdict.condition.holds {
            group.waiting.remove(name);
        } else {
            group.waiting.insert(name.clone());
        }
        let (revision, stored) = match self.claims.get(name) {
            Some(claim) => (claim.revision, claim.stored.clone()),
            None => (Revision::ZERO, definition.accepted.clone()),
        };
        let pending = Some(verdict.accepted.clone());
        self.replace(name, Some(Claim { group: definition.group.clone(), revision, stored, pending }));
        verdict
    }

    /// Records the result of a write of reserved names: its revision, or none. Returns the definitions that may get
    /// freed names.
    pub(crate) fn settle(&mut self, name: &str, written: Option<Revision>) -> Vec<String> {
        let Some(claim) = self.claims.get(name) else { return Vec::new() };
        let (mut revision, mut stored) = (claim.revision, claim.stored.clone());
        if let (Some(written), Some(pending)) = (written, &claim.pending)
            && written > revision
        {
            (revision, stored) = (written, pending.clone());
        }
        self.replace(name, Some(Claim { group: claim.group.clone(), revision, stored, pending: None }))
    }

    fn verdict(&self, definition: &Definition) -> Verdict {
        let (requested, mut accepted) = (&definition.requested, definition.accepted.clone());
        let group = self.groups.get(&definition.group);
        let taken = |names: fn(&Group) -> &HashMap<String, BTreeSet<String>>, wanted: &str| {
            let owners = group.and_then(|group| names(group).get(wanted));
            owners.is_some_and(|owners| owners.iter().any(|owner| *owner != definition.name))
        };
        let resource = |wanted: &str, has: &str| wanted != has && taken(|group| &group.resources, wanted);
        let kind = |wanted: &str, has: &str| wanted != has && taken(|group| &group.kinds, wanted);
        let in_use = |wanted: &str| format!("{} is already in use", quote(wanted));
        // Takes a free name, or records the conflict. The last conflict is reported.
        let take = |wanted: &str, has: &mut String, is_taken: bool, reason, conflict: &mut Option<_>| {
            if is_taken {
                *conflict = Some((reason, in_use(wanted)));
            } else {
                wanted.clone_into(has);
            }
        };
        let mut conflict = None;

        let plural = resource(&requested.plural, &accepted.plural);
        take(&requested.plural, &mut accepted.plural, plural, "PluralConflict", &mut conflict);
        let singular = resource(&requested.singular, &accepted.singular);
        take(&requested.singular, &mut accepted.singular, singular, "SingularConflict", &mut conflict);

        let owned = |short: &&String| !accepted.short_names.contains(short);
        let refused = requested.short_names.iter().filter(owned).filter(|short| resource(short, ""));
        let refused: Vec<String> = refused.map(|short| in_use(short)).collect();
        match refused.as_slice() {
            [] => accepted.short_names.clone_from(&requested.short_names),
            [only] => conflict = Some(("ShortNamesConflict", only.clone())),
            several => conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
        }

        let is_taken = kind(&requested.kind, &accepted.kind);
        take(&requested.kind, &mut accepted.kind, is_taken, "KindConflict", &mut conflict);
        let is_taken = kind(&requested.list_kind, &accepted.list_kind);
        take(&requested.list_kind, &mut accepted.list_kind, is_taken, "ListKindConflict", &mut conflict);
        accepted.categories.clone_from(&requested.categories);

        let condition = match conflict {
            None => Condition::new(conditions::NAMES_ACCEPTED, true, "NoConflicts", "no conflicts found"),
            Some((reason, message)) => Condition::new(conditions::NAMES_ACCEPTED, false, reason, message),
        };
        Verdict { accepted, condition }
    }

    /// Replaces a claim. Returns the waiting definitions of its group if a name was freed.
    fn replace(&mut self, name: &str, claim: Option<Claim>) -> Vec<String> {
        let is_gone = claim.is_none();
        let before = self.claims.remove(name);
        let mut had = ClaimedNames::default();
        if let Some(before) = &before {
            had.add(before);
            let group = self.groups.entry(before.group.clone()).or_default();
            had.resources.iter().for_each(|word| release(&mut group.resources, word, name));
            had.kinds.iter().for_each(|word| release(&mut group.kinds, word, name));
        }
        let mut has = ClaimedNames::default();
        if let Some(claim) = claim {
            has.add(&claim);
            let group = self.groups.entry(claim.group.clone()).or_default();
            for word in &has.resources {
                group.resources.entry(word.clone()).or_default().insert(name.to_owned());
            }
            for word in &has.kinds {
                group.kinds.entry(word.clone()).or_default().insert(name.to_owned());
            }
            self.claims.insert(name.to_owned(), claim);
        }
        let Some(before) = before else { return Vec::new() };
        let Some(group) = self.groups.get_mut(&before.group) else { return Vec::new() };
        if is_gone {
            group.waiting.remove(name);
        }
        let is_free = !had.resources.is_subset(&has.resources) || !had.kinds.is_subset(&has.kinds);
        let waiting = group.waiting.iter().filter(|waiting| is_free && *waiting != name).cloned().collect();
        if group.waiting.is_empty() && group.resources.is_empty() && group.kinds.is_empty() {
            self.groups.remove(&before.group);
        }
        waiting
    }
}

/// The names that a claim covers.
#[derive(Default)]
struct ClaimedNames {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl ClaimedNames {
    fn add(&mut self, claim: &Claim) {
        for names in [Some(&claim.stored), claim.pending.as_ref()].into_iter().flatten() {
            self.resources.extend(names.of_resource().map(str::to_owned));
            self.kinds.extend(names.of_kind().map(str::to_owned));
        }
    }
}

fn release(owners: &mut HashMap<String, BTreeSet<String>>, word: &str, name: &str) {
    if let Some(known) = owners.get_mut(word) {
        known.remove(name);
        if known.is_empty() {
            owners.remove(word);
        }
    }
}

/// The oldest definition of each group and kind, the only one that can be served.
pub(crate) fn oldest_of_each_kind<'d>(
    definitions: impl Iterator<Item = &'d Definition>,
) -> BTreeMap<(&'d str, &'d str), &'d Definition> {
    let mut oldest: BTreeMap<(&str, &str), &Definition> = BTreeMap::new();
    for definition in definitions {
        let place = (definition.group.as_str(), definition.accepted.kind.as_str());
        let age = |definition: &'d Definition| (&definition.created, &definition.name);
        let known = oldest.entry(place).or_insert(definition);
        if age(definition) < age(known) {
            *known = definition;
        }
    }
    oldest
}

#[cfg(test)]
mod tests {
    use keelson_meta::Object;
    use keelson_meta::json::{Value, json};

    use super::*;

    fn names(plural: &str, singular: &str, short_names: &[&str], kind: &str, list_kind: &str) -> Value {
        json!({ "plural": plural, "singular": singular, "shortNames": short_names, "kind": kind, "listKind": list_kind })
    }

    #[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
    fn definition(names: Value) -> Definition {
        let name = format!("{}.names.example.com", names["plural"].as_str().unwrap());
        let object = json!({ "metadata": { "name": name }, "spec": { "group": "names.example.com", "names": names } });
        Definition::read(&Object::from_value(object).unwrap())
    }

    /// An index in which apples owns all its requested names.
    fn apples() -> NameIndex {
        let mut index = NameIndex::default();
        let apples = definition(names("apples", "apple", &["ap", "app"], "Apple", "AppleList"));
        assert!(index.judge(&apples).condition.holds);
        index.settle(&apples.name, Some(Revision::new(2)));
        index
    }

    #[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
    fn check(wanted: Value, reason: &str, message: &str, expected: Value) {
        let verdict = apples().judge(&definition(wanted));
        assert_eq!((verdict.condition.reason, verdict.condition.message.as_str()), (reason, message));
        assert_eq!(verdict.accepted, Names::read(Some(&expected)));
    }

    #[test]
    fn a_name_that_another_has_is_refused_and_the_others_are_given() {
        let in_use = |name: &str| format!("\"{name}\" is already in use");
        check(
            names("apples2", "apple", &[], "Apple", "AppleList"),
            "ListKindConflict",
            &in_use("AppleList"),
            json!({ "plural": "apples2" }),
        );
        check(
            names("apples5", "other5", &["free", "ap"], "Other5", "Other5List"),
            "ShortNamesConflict",
            &in_use("ap"),
            names("apples5", "other5", &[], "Other5", "Other5List"),
        );
        check(
            names("apples9", "other9", &["ap", "app"], "Other9", "Other9List"),
            "ShortNamesConflict",
            "[\"ap\" is already in use, \"app\" is already in use]",
            names("apples9", "other9", &[], "Other9", "Other9List"),
        );
        check(
            names("apples8", "applelist", &[], "AppleList", "AppleListList"),
            "KindConflict",
            &in_use("AppleList"),
            names("apples8", "applelist", &[], "", "AppleListList"),
        );
        check(
            names("ap", "other9", &[], "Other9", "Other9List"),
            "PluralConflict",
            &in_use("ap"),
            names("", "other9", &[], "Other9", "Other9List"),
        );
        let other_case = names("applez", "applez1", &[], "APPLE", "APPLELIST");
        check(other_case.clone(), "NoConflicts", "no conflicts found", other_case);
    }

    #[test]
    fn a_freed_name_goes_to_the_waiting_definition() {
        let mut index = apples();
        let second = definition(names("apples2", "apple", &[], "Apple", "AppleList"));
        assert!(!index.judge(&second).condition.holds);
        assert!(index.settle(&second.name, Some(Revision::new(3))).is_empty(), "nothing became free");
        assert_eq!(index.forget("apples.names.example.com"), [&*second.name]);
        assert!(index.judge(&second).condition.holds);
    }

    #[test]
    fn names_of_a_running_write_are_reserved_until_it_fails() {
        let mut index = NameIndex::default();
        let first = definition(names("apples", "apple", &[], "Apple", "AppleList"));
        let second = definition(names("apples2", "apple2", &[], "Apple", "Apple2List"));
        assert!(index.judge(&first).condition.holds);
        index.note(&first, Revision::new(5));
        assert!(!index.judge(&second).condition.holds, "the store does not say yet what the first has");
        assert_eq!(index.settle(&first.name, None), [&*second.name]);
        assert!(index.judge(&second).condition.holds);
    }
}
