//! Validation of the built-in kinds: the rules that kube-apiserver has, with its texts and order.
//!
//! To add a rule, find the group's file and the rules of the kind there, and put `("field", Rule)` where upstream checks it.
//! A rule about one field is data; one that needs more is a [`Rule::Check`](type_rules::Rule::Check) with a few words for
//! `docs/reference/validation.md`, which is made from these rules (`KEELSON_UPDATE=1` writes it anew). What holds for every
//! object stands in the kind's `object`; what an update may not do in `first` or `then`, before or after it; what holds
//! for `/status` and other subresources in `below`. Forms of texts go to `formats`.
//! Knows JSON trees in the stored version with their defaults, and nothing of storage, time or other objects. Metadata is
//! judged elsewhere. Types are right by now; what is not reads as absent.

mod at;
mod base64;
mod document;
mod domains;
mod expressions;
mod formats;
mod groups;
mod pem;
mod pod;
mod selectors;
#[cfg(test)]
mod tests;
mod type_rules;
mod warnings;

use keelson_meta::Object;
use keelson_meta::field_error::FieldError;

use at::At;
use type_rules::{Kind, Run, TypeRules};

pub use document::document;
pub use groups::apiextensions::{NonStructural, non_structural};
pub use pod::difference;

/// The rules of a kind, which are found once and then asked as often as there are objects.
///
/// Objects are in the version that their kind is stored in. A kind without rules finds nothing wrong.
#[derive(Clone, Copy)]
pub struct Rules {
    group: &'static str,
    kind: &'static Kind,
}

impl Rules {
    /// The rules of a kind of a group; `None` for one that has not been thought of. One that needs no rules beyond those for
    /// metadata has been.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        let (group, kinds) = groups::GROUPS.iter().find(|(name, _)| *name == group)?;
        let kind = kinds.iter().find(|rules| rules.name == kind)?;
        Some(Self { group, kind })
    }

    /// All that is wrong with a new object.
    pub fn create(self, object: &Object) -> Vec<FieldError> {
        check(&[self.kind.object], object, None)
    }

    /// What is wrong with an object, or with a change of one, that is told before all else and then alone.
    pub fn alone(self, old: Option<&Object>, object: &Object) -> Vec<FieldError> {
        check(&[self.kind.alone], object, old)
    }

    /// All that is wrong with a change of an object, or of the part of it that a subresource is.
    pub fn update(self, subresource: Option<&str>, old: &Object, new: &Object) -> Vec<FieldError> {
        check(&self.kind.update(subresource), new, Some(old))
    }

    /// What the writer of an object should be told though it is right; `old` is what it was, `None` for a new one.
    pub fn warnings(self, old: Option<&Object>, object: &Object) -> Vec<String> {
        warnings::warnings((self.group, self.kind.name), old, object)
    }
}

/// Those of a kind that has none.
impl Default for Rules {
    fn default() -> Self {
        const NONE: &Kind = &type_rules::kind("");
        Self { group: "", kind: NONE }
    }
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("group", &self.group).field("kind", &self.kind.name).finish()
    }
}

fn check(sets: &[&'static TypeRules], object: &Object, before: Option<&Object>) -> Vec<FieldError> {
    let mut run = Run::new(object, before);
    let at = At::object(object, before);
    for type_rules in sets {
        type_rules.check(&at, &mut run);
    }
    run.faults
}
