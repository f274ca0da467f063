//! Kubernetes' defaults, filled in where a client left something out of an object of a built-in kind.
//!
//! Defaults are data wherever a field has one, whatever the rest of the object says: a [`TypeDefaults`](type_defaults::TypeDefaults) for
//! each kind names them. The few that depend on other fields are functions beside the defaults that use them. Knows JSON and nothing of
//! storage, time or other objects. Filling in twice changes nothing more. An object may still be of the wrong types: what is not as
//! expected is left to the schema to refuse.

mod missing;
pub(crate) mod type_defaults;

use keelson_codec::Checked;
use keelson_meta::{GroupVersionKind, Object};
use keelson_registry::Defaulter;

use self::type_defaults::TypeDefaults;
use crate::groups::group;

/// The defaults of a kind in one version, which are found once and then filled into as many objects as there are.
#[derive(Clone, Copy)]
pub struct Defaults {
    defaults: &'static TypeDefaults,
}

impl Defaults {
    /// The defaults of a kind in a version; `None` for one without any.
    pub fn of(kind: &GroupVersionKind) -> Option<Self> {
        let defaults = (group(&kind.group)?.defaults)(&kind.version, &kind.kind)?;
        Some(Self { defaults })
    }

    /// The defaulter as the registry calls it.
    pub(crate) fn defaulter(self) -> &'static dyn Defaulter {
        self.defaults
    }

    /// Fills in what the object, which is in that version, leaves out.
    pub fn fill(self, object: &mut Object) {
        self.defaults.fill(&mut object.0);
    }

    /// Returns true if defaults would change a stored object. Cost: about a third of checking its text.
    pub fn lacks(self, checked: &Checked) -> bool {
        self.defaults.lacks_root(checked.cursor())
    }
}

impl Defaulter for TypeDefaults {
    fn fill(&self, object: &mut Object) {
        Self::fill(self, &mut object.0);
    }
}

#[cfg(test)]
mod tests;
