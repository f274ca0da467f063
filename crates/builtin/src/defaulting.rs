//! Kubernetes' defaults for built-in kinds: fills in fields that a client omits.
//!
//! Most defaults are data: a [`TypeDefaults`](type_defaults::TypeDefaults) for each kind lists them. Defaults that
//! depend on other fields are functions, beside the defaults that use them. This module depends on JSON only, and not
//! on storage, time or other objects. Filling in twice changes nothing more. If a value has the wrong type, it is left
//! unchanged; the schema refuses it.

mod missing;
pub(crate) mod type_defaults;

use keelson_codec::ParsedObject;
use keelson_meta::{GroupVersionKind, Object};
use keelson_registry::Defaulter;

use self::type_defaults::TypeDefaults;
use crate::groups::group;

/// The defaults of a kind in one version. They are looked up once for many objects.
#[derive(Clone, Copy)]
pub struct Defaults {
    defaults: &'static TypeDefaults,
}

impl Defaults {
    /// The defaults of a kind in a version; `None` if it has none.
    pub fn for_kind(kind: &GroupVersionKind) -> Option<Self> {
        let defaults = (group(&kind.group)?.defaults)(&kind.version, &kind.kind)?;
        Some(Self { defaults })
    }

    /// The defaulter for the registry.
    pub(crate) fn defaulter(self) -> &'static dyn Defaulter {
        self.defaults
    }

    /// Fills in the fields that an object of this version omits.
    pub fn fill(self, object: &mut Object) {
        self.defaults.fill(&mut object.0);
    }

    /// Returns true if defaults would change a stored object. Cost: about a third of checking its JSON.
    pub fn lacks(self, checked: &ParsedObject) -> bool {
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
