//! Validation of the built-in kinds: kube-apiserver's rules, with its texts and in its order.
//!
//! To add a rule, find the rules of the kind in the file of its group, and put `("field", Rule)` where upstream checks it. A rule
//! about one field is data. A rule that needs more is a [`Rule::Check`](type_rules::Rule::Check) with a few words for
//! `docs/reference/validation.md`, which these rules generate (`KEELSON_UPDATE=1` writes it).
//! Rules of every object are in the kind's `object`. Rules of updates are in `first` or `then`, before or after it. Rules of
//! `/status` and other subresources are in `below`. Forms of texts are in `formats`.
//!
//! This module knows JSON trees in the stored version with their defaults, and no storage, time or other objects. Metadata is
//! validated elsewhere. The schema has checked all types, and a value of another type reads as absent.

pub(crate) mod at;
pub(crate) mod base64;
pub(crate) mod conditions;
mod document;
pub(crate) mod domains;
pub(crate) mod expressions;
pub(crate) mod formats;
pub(crate) mod go_form;
pub(crate) mod pem;
pub(crate) mod selectors;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod type_rules;

use std::sync::OnceLock;

use keelson_meta::Object;
use keelson_meta::field_error::FieldError;
use keelson_registry::Validator;

use self::at::At;
use self::type_rules::{Kind, Run, TypeRules};
use crate::group::Warn;
use crate::groups::GROUPS;

pub use self::document::document;

/// The rules of a kind, which are found once and then asked as often as there are objects.
///
/// Objects are in the version that their kind is stored in. A kind without rules has no faults.
pub struct Rules {
    kind: &'static Kind,
    warn: Warn,
}

impl Rules {
    /// The rules of a kind of a group; `None` for one that no list names. A kind that needs no rules beyond those for metadata is in the
    /// list of its group.
    pub fn of(group: &str, kind: &str) -> Option<&'static Self> {
        static ALL: OnceLock<Vec<(&str, Rules)>> = OnceLock::new();
        let all = ALL.get_or_init(|| {
            let kinds = GROUPS.into_iter().flat_map(|group| group.validation.iter().map(move |kind| (group, kind)));
            kinds.map(|(group, kind)| (group.declaration.name, Self { kind, warn: group.warnings })).collect()
        });
        all.iter().find(|(known, rules)| *known == group && rules.kind.name == kind).map(|(_, rules)| rules)
    }
}

impl Validator for Rules {
    fn create(&self, object: &Object) -> Vec<FieldError> {
        check(&[self.kind.object], object, None)
    }

    fn alone(&self, old: Option<&Object>, object: &Object) -> Vec<FieldError> {
        check(&[self.kind.alone], object, old)
    }

    fn update(&self, subresource: Option<&str>, old: &Object, new: &Object) -> Vec<FieldError> {
        check(&self.kind.update(subresource), new, Some(old))
    }

    fn warnings(&self, old: Option<&Object>, object: &Object) -> Vec<String> {
        let mut warnings = Vec::new();
        (self.warn)(self.kind.name, Written { at: &At::object(object, old), old, object }, &mut warnings);
        warnings
    }
}

/// An object that has been validated, for warnings about it.
#[derive(Clone, Copy)]
pub(crate) struct Written<'v> {
    /// Its root.
    pub(crate) at: &'v At<'v, 'v>,
    /// The stored object; `None` for a new one.
    pub(crate) old: Option<&'v Object>,
    /// The object.
    pub(crate) object: &'v Object,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("kind", &self.kind.name).finish()
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
