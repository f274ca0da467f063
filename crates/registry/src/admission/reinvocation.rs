//! The passes of one object through the mutating plugins.
//!
//! After a webhook or a policy has changed an object, all mutating plugins are called once more, since their earlier
//! changes may no longer hold. A webhook or policy is called again only if it requests this, and only if a later plugin
//! changed the object.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};

/// The record of the first pass.
#[derive(Debug, Default)]
pub struct Reinvocation(Mutex<FirstPass>);

#[derive(Debug, Default)]
struct FirstPass {
    is_again: bool,
    is_wanted: bool,
    of: HashMap<&'static str, OfPlugin>,
    marks: Vec<(&'static str, &'static str)>,
}

/// The record of one admission plugin that calls webhooks or evaluates policies.
#[derive(Debug, Default)]
struct OfPlugin {
    /// The webhooks or policies called that request reinvocation after a later change.
    asked: Vec<String>,
    /// The webhooks or policies that the second pass must call again.
    due: Vec<String>,
    /// The object as the plugin left it.
    left: Option<Object>,
}

impl Reinvocation {
    fn first_pass(&self) -> MutexGuard<'_, FirstPass> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an annotation that a validating plugin sets on the object. It is set after all of them.
    pub fn mark(&self, annotation: &'static str, value: &'static str) {
        self.first_pass().marks.push((annotation, value));
    }

    /// Sets the annotations of validating plugins. Returns true if there are any.
    pub(crate) fn set_marks(&self, object: &mut Object) -> bool {
        let marks = std::mem::take(&mut self.first_pass().marks);
        let is_marked = !marks.is_empty();
        if is_marked {
            let metadata = object.metadata_mut();
            if !matches!(metadata.get("annotations"), Some(Value::Object(_))) {
                metadata.insert("annotations", Map::new());
            }
            if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                marks.into_iter().for_each(|(annotation, value)| drop(annotations.insert(annotation, value)));
            }
        }
        is_marked
    }

    /// Begins the second pass, if a plugin requested it. There is no third pass.
    pub(crate) fn begin_again(&self) -> bool {
        let mut noted = self.first_pass();
        let begins = noted.is_wanted && !noted.is_again;
        noted.is_again |= begins;
        begins
    }

    /// Returns true in the second pass.
    pub fn is_again(&self) -> bool {
        self.first_pass().is_again
    }

    /// Records the call of a webhook or policy that requests reinvocation.
    pub fn add(&self, plugin: &'static str, asked: &str) {
        self.first_pass().of.entry(plugin).or_default().asked.push(asked.to_owned());
    }

    /// Returns true if a webhook or policy is to be called again.
    pub fn is_due(&self, plugin: &'static str, asked: &str) -> bool {
        self.first_pass().of.get(plugin).is_some_and(|of| of.due.iter().any(|due| due == asked))
    }

    /// Records that a plugin has changed the object. The webhooks and policies called before are then called again.
    pub fn changed(&self, plugin: &'static str) {
        let mut noted = self.first_pass();
        noted.is_wanted = true;
        noted.of.entry(plugin).or_default().due_again();
    }

    /// Compares the object at the beginning of the second pass with the plugin's result of the first pass. If they
    /// differ, the webhooks and policies called in the first pass are called again.
    pub fn compare(&self, plugin: &'static str, object: Option<&Object>) {
        let mut noted = self.first_pass();
        if !noted.is_again {
            return;
        }
        if let Some(of) = noted.of.get_mut(plugin)
            && of.left.as_ref() != object
        {
            of.due_again();
        }
    }

    /// Records the object that a plugin leaves after the first pass, if it is needed later.
    pub fn leave(&self, plugin: &'static str, object: Option<&Object>) {
        let mut noted = self.first_pass();
        if noted.is_again {
            return;
        }
        if let Some(of) = noted.of.get_mut(plugin).filter(|of| !of.asked.is_empty()) {
            of.left = object.cloned();
        }
    }
}

impl OfPlugin {
    fn due_again(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        self.due.extend(asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLUGIN: &str = "p";

    #[test]
    fn a_plugin_called_before_a_change_is_reinvoked_once() {
        let passages = Reinvocation::default();
        passages.add(PLUGIN, "first");
        assert!(!passages.is_due(PLUGIN, "first"));
        passages.changed(PLUGIN);
        passages.add(PLUGIN, "second");
        assert!(passages.is_due(PLUGIN, "first") && !passages.is_due(PLUGIN, "second"));
        assert!(passages.begin_again() && passages.is_again());
        assert!(!passages.begin_again(), "there is no third passage");
    }

    #[test]
    fn changes_between_plugins_reinvoke_all() {
        let object = |name: &str| {
            let mut object = Object::default();
            object.set_meta("name", name);
            object
        };
        for (found, is_due) in [("a", false), ("b", true)] {
            let passages = Reinvocation::default();
            passages.add(PLUGIN, "asked");
            passages.leave(PLUGIN, Some(&object("a")));
            passages.changed("other");
            assert!(passages.begin_again());
            passages.compare(PLUGIN, Some(&object(found)));
            assert_eq!(passages.is_due(PLUGIN, "asked"), is_due, "{found}");
        }
    }
}
