//! Definitions indexed by group, so that a change is compared with definitions of its group only, whatever the total
//! number. The code that uses an index defines its values.

use std::collections::HashMap;

/// A value for each definition.
pub(crate) struct ByGroup<T>(HashMap<String, HashMap<String, T>>);

impl<T> Default for ByGroup<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

/// The group of a definition. Validation requires its name to consist of the plural name, which has no dot, and the
/// group.
pub(crate) fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

impl<T> ByGroup<T> {
    /// The value of a definition.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.0.get(group_of(name))?.get(name)
    }

    /// Sets the value of a definition and returns the old one.
    pub(crate) fn insert(&mut self, name: &str, value: T) -> Option<T> {
        self.0.entry(group_of(name).to_owned()).or_default().insert(name.to_owned(), value)
    }

    /// Removes the value of a definition.
    pub(crate) fn remove(&mut self, name: &str) -> Option<T> {
        let group = self.0.get_mut(group_of(name))?;
        let removed = group.remove(name);
        if group.is_empty() {
            self.0.remove(group_of(name));
        }
        removed
    }

    /// The names of all definitions, in no order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.values().flat_map(HashMap::keys)
    }

    /// All values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values().flat_map(HashMap::values)
    }

    /// The values of a group, in no order.
    pub(crate) fn in_group(&self, group: &str) -> impl Iterator<Item = &T> {
        self.0.get(group).into_iter().flat_map(HashMap::values)
    }
}
