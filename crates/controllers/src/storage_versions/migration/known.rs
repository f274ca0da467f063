//! The migrations that are known, by the resource that they are of: the ones that have not ended, and the ended ones that the server had
//! begun by itself. Whoever looks at a resource need not look at those of all others, however many somebody has made.
//!
//! It is told of each migration that it is followed to, and of none that went while nobody followed them: who asks checks that.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use keelson_meta::{GroupResource, Object, Revision};

use super::objects::{AUTOMATIC_LABEL, has_ended};

/// The migrations of all resources.
#[derive(Default)]
pub(super) struct KnownMigrations {
    by_name: HashMap<String, Known>,
    /// The names of those that have not ended.
    open: HashMap<GroupResource, BTreeSet<String>>,
    /// Those that have and were begun by a server, in the order in which they ended.
    over: HashMap<GroupResource, BTreeMap<Revision, String>>,
}

struct Known {
    resource: GroupResource,
    /// When it was written last, if it has ended.
    over: Option<Revision>,
}

impl KnownMigrations {
    /// Notes how a migration of a resource is.
    pub(super) fn note(&mut self, migration: &Object, resource: GroupResource, revision: Revision) {
        let name = migration.name().to_owned();
        self.forget(&name);
        let is_automatic = || migration.labels().any(|(key, value)| key == AUTOMATIC_LABEL && value == "true");
        let over = has_ended(migration).then_some(revision);
        match over {
            None => {
                self.open.entry(resource.clone()).or_default().insert(name.clone());
            }
            Some(revision) if is_automatic() => {
                self.over.entry(resource.clone()).or_default().insert(revision, name.clone());
            }
            // Somebody else has made it, and takes it away.
            Some(_) => return,
        }
        self.by_name.insert(name, Known { resource, over });
    }

    /// Notes that there is no migration of this name.
    pub(super) fn forget(&mut self, name: &str) {
        let Some(Known { resource, over }) = self.by_name.remove(name) else { return };
        match over {
            None => {
                if let Some(names) = self.open.get_mut(&resource) {
                    names.remove(name);
                    if names.is_empty() {
                        self.open.remove(&resource);
                    }
                }
            }
            Some(revision) => {
                if let Some(names) = self.over.get_mut(&resource) {
                    names.remove(&revision);
                    if names.is_empty() {
                        self.over.remove(&resource);
                    }
                }
            }
        }
    }

    /// The names of those of a resource that have not ended.
    pub(super) fn open(&self, resource: &GroupResource) -> Vec<String> {
        self.open.get(resource).into_iter().flatten().cloned().collect()
    }

    /// The names of those of a resource that have ended and that a server had begun, without so many of the newest.
    pub(super) fn over(&self, resource: &GroupResource, without: usize) -> Vec<String> {
        let all = self.over.get(resource).into_iter().flat_map(BTreeMap::values);
        let mut names: Vec<String> = all.cloned().collect();
        names.truncate(names.len().saturating_sub(without));
        names
    }
}

#[cfg(test)]
mod tests {
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
    fn migrations_are_known_by_their_resource_until_they_go() {
        let [pods, maps] = ["pods", "configmaps"]
            .map(|resource| GroupResource { group: String::new(), resource: resource.to_owned() });
        let mut known = KnownMigrations::default();
        let mut note = |name: &str, resource: &GroupResource, automatic, ended, at: u64| {
            known.note(&migration(name, automatic, ended), resource.clone(), Revision::new(at));
        };
        note("a", &pods, true, false, 1);
        note("b", &pods, false, false, 2);
        note("c", &maps, true, false, 3);
        note("a", &pods, true, true, 4);
        note("d", &pods, true, true, 5);
        note("e", &pods, false, true, 6);
        assert_eq!(known.open(&pods), ["b"]);
        assert_eq!(known.over(&pods, 0), ["a", "d"], "what a client has made stays");
        assert_eq!(known.over(&pods, 1), ["a"]);
        assert!(known.over(&pods, 3).is_empty() && known.over(&maps, 0).is_empty());
        for name in ["a", "b", "c", "d", "e", "never"] {
            known.forget(name);
        }
        assert!(known.by_name.is_empty() && known.open.is_empty() && known.over.is_empty());
    }
}
