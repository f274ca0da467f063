//! The known migrations by resource. With this index, work on one resource does not scan the migrations of all others,
//! however many clients create.
//!
//! The controller records every created or changed migration here. It misses a deletion while no server follows them,
//! so the caller checks that a migration still exists.

use std::collections::{BTreeSet, HashMap};

use keelson_meta::{GroupResource, Object};

use super::objects::{AUTOMATIC_LABEL, has_ended};
use crate::client::RevisedObject;

/// The open migrations of all resources.
#[derive(Default)]
pub(super) struct KnownMigrations {
    resources: HashMap<String, GroupResource>,
    names: HashMap<GroupResource, BTreeSet<String>>,
}

impl KnownMigrations {
    /// Records the state of a resource's migration.
    pub(super) fn note(&mut self, migration: &Object, resource: GroupResource) {
        let name = migration.name().to_owned();
        self.forget(&name);
        if !has_ended(migration) {
            self.names.entry(resource.clone()).or_default().insert(name.clone());
            self.resources.insert(name, resource);
        }
    }

    /// Removes a migration. Returns its resource if it was open.
    pub(super) fn forget(&mut self, name: &str) -> Option<GroupResource> {
        let resource = self.resources.remove(name)?;
        if let Some(names) = self.names.get_mut(&resource) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(&resource);
            }
        }
        Some(resource)
    }

    /// The names of a resource's open migrations.
    pub(super) fn open(&self, resource: &GroupResource) -> Vec<String> {
        self.names.get(resource).into_iter().flatten().cloned().collect()
    }
}

/// The ended automatic migrations of a resource, oldest first, without the newest `without`. Clients delete the
/// migrations that they created.
pub fn superseded(mut of_resource: Vec<RevisedObject>, without: usize) -> Vec<RevisedObject> {
    let is_automatic =
        |migration: &Object| migration.labels().any(|(key, value)| key == AUTOMATIC_LABEL && value == "true");
    of_resource.retain(|it| has_ended(&it.object) && is_automatic(&it.object));
    of_resource.sort_by_key(|it| it.revision);
    of_resource.truncate(of_resource.len().saturating_sub(without));
    of_resource
}

#[cfg(test)]
mod tests {
    use keelson_meta::Revision;
    use keelson_meta::json::json;

    use super::*;

    fn migration(name: &str, automatic: bool, ended: bool) -> Object {
        let mut metadata = json!({ "name": name });
        if automatic {
            metadata["labels"] = json!({ AUTOMATIC_LABEL: "true" });
        }
        let conditions = if ended { json!([{ "type": "Succeeded", "status": "True" }]) } else { json!([]) };
        Object::from_value(json!({ "metadata": metadata, "status": { "conditions": conditions } })).unwrap()
    }

    #[test]
    fn migrations_are_indexed_by_resource_until_they_end() {
        let [pods, maps] = ["pods", "configmaps"]
            .map(|resource| GroupResource { group: String::new(), resource: resource.to_owned() });
        let mut known = KnownMigrations::default();
        let mut note = |name: &str, resource: &GroupResource, ended| {
            known.note(&migration(name, true, ended), resource.clone());
        };
        note("a", &pods, false);
        note("b", &pods, false);
        note("c", &maps, false);
        note("a", &pods, true);
        note("d", &pods, true);
        assert_eq!((known.open(&pods), known.open(&maps)), (vec!["b".to_owned()], vec!["c".to_owned()]));
        assert_eq!(
            ["a", "b", "c", "d", "never"].map(|name| known.forget(name)),
            [None, Some(pods), Some(maps), None, None]
        );
        assert!(known.resources.is_empty() && known.names.is_empty());
    }

    #[test]
    fn of_the_ended_migrations_that_a_server_began_the_oldest_are_superseded() {
        let all = [
            ("d", true, true, 5),
            ("b", false, false, 2),
            ("a", true, true, 4),
            ("e", false, true, 6),
            ("f", true, false, 7),
        ];
        let over = |without: usize| -> Vec<String> {
            let stored = |(name, automatic, ended, at): (&str, bool, bool, u64)| RevisedObject {
                object: migration(name, automatic, ended),
                revision: Revision::new(at),
            };
            let superseded = superseded(all.map(stored).into(), without);
            superseded.iter().map(|it| it.object.name().to_owned()).collect()
        };
        assert_eq!(over(0), ["a", "d"], "a client's migrations stay");
        assert_eq!(over(1), ["a"]);
        assert!(over(3).is_empty());
        assert!(superseded(Vec::new(), 0).is_empty());
    }
}
