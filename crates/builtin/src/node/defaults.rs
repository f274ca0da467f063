//! Defaults of runtime classes.
//!
//! The overhead of a class is rounded like the resources of pods.

use crate::defaulting::type_defaults::Rule::{Amounts, In};
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `node.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "RuntimeClass" => Some(&RUNTIME_CLASS),
        _ => None,
    }
}

const RUNTIME_CLASS: TypeDefaults =
    TypeDefaults::new(&[("overhead", In(&const { TypeDefaults::new(&[("podFixed", Amounts)]) }))]);
