//! Validation of the built-in kinds: kube-apiserver's rules, with its messages and in its order.
//!
//! To add a rule, insert `("field", Rule)` into the rules of the kind, where upstream checks it. A rule about one field
//! is data. A rule that needs more is a [`Rule::Check`](type_rules::Rule::Check) with a short description for
//! `docs/reference/validation.md`, which is generated from the rules (`KEELSON_UPDATE=1` writes it). Rules for every
//! object are in the kind's `object`. Rules for updates are in `first` and `then`, which run before and after it. Rules
//! of subresources such as `/status` are in `below`. Formats of strings are in `formats`.
//!
//! Rules depend on JSON trees in the stored version with defaults, not on storage, time or other objects. Metadata is
//! validated elsewhere. The schema has already checked all types. A value of the wrong type reads as absent.

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
pub(crate) mod unions;

use std::sync::OnceLock;

use keelson_meta::field_error::FieldError;
use keelson_meta::{FeatureGates, Object};
use keelson_registry::Validator;

use self::at::At;
use self::type_rules::{Kind, Run, TypeRules};
use crate::group::Warn;
use crate::groups::GROUPS;

pub use self::document::document;

/// The rules of a kind. They are looked up once for many objects.
///
/// Objects must be in the stored version of the kind. A kind without rules has no errors.
pub struct Rules {
    kind: &'static Kind,
    warn: Warn,
    /// True if containers may be privileged.
    allow_privileged: bool,
}

/// The group, the feature gate, and the rules while the gate is on.
type GatedRules = (&'static str, &'static str, Rules);

impl Rules {
    /// The rules of a kind of a group; `None` if the group does not list the kind. Kinds that only need the rules for
    /// metadata are listed too.
    pub fn for_kind(group: &str, kind: &str) -> Option<&'static Self> {
        static ALL: OnceLock<Vec<(&str, Rules)>> = OnceLock::new();
        Self::find(ALL.get_or_init(|| Self::all(true)), group, kind)
    }

    /// The rules of a kind for a server that refuses privileged containers.
    fn without_privileges(group: &str, kind: &str) -> Option<&'static Self> {
        static ALL: OnceLock<Vec<(&str, Rules)>> = OnceLock::new();
        Self::find(ALL.get_or_init(|| Self::all(false)), group, kind)
    }

    fn all(allow_privileged: bool) -> Vec<(&'static str, Self)> {
        let kinds = GROUPS.into_iter().flat_map(|group| group.validation.iter().map(move |kind| (group, kind)));
        let rules = |kind, warn| Self { kind, warn, allow_privileged };
        kinds.map(|(group, kind)| (group.declaration.name, rules(kind, group.warnings))).collect()
    }

    fn find(all: &'static [(&'static str, Self)], group: &str, kind: &str) -> Option<&'static Self> {
        all.iter().find(|(known, rules)| *known == group && rules.kind.name == kind).map(|(_, rules)| rules)
    }

    /// The rules of a kind with these feature gates, for a server that allows privileged containers or refuses them.
    /// `None` as in [`Rules::for_kind`].
    pub(crate) fn with_gates(
        gates: &FeatureGates,
        allow_privileged: bool,
        group: &str,
        kind: &str,
    ) -> Option<&'static Self> {
        // By group and gate, for servers that refuse privileged containers and for those that allow them.
        static GATED: [OnceLock<Vec<GatedRules>>; 2] = [OnceLock::new(), OnceLock::new()];
        let all = GATED[usize::from(allow_privileged)].get_or_init(|| {
            let kinds =
                GROUPS.into_iter().flat_map(|group| group.gated_validation.iter().map(move |kind| (group, kind)));
            let rules = |kind, warn| Self { kind, warn, allow_privileged };
            kinds.map(|(group, (gate, kind))| (group.declaration.name, *gate, rules(kind, group.warnings))).collect()
        });
        let mut of_kind = all.iter().filter(|(known, _, rules)| *known == group && rules.kind.name == kind);
        let open = of_kind.find(|(_, gate, _)| gates.is_on(gate)).map(|(_, _, rules)| rules);
        let ungated = if allow_privileged { Self::for_kind } else { Self::without_privileges };
        open.or_else(|| ungated(group, kind))
    }
}

impl Validator for Rules {
    fn create(&self, object: &Object) -> Vec<FieldError> {
        self.check(&[self.kind.object], object, None)
    }

    fn alone(&self, old: Option<&Object>, object: &Object) -> Vec<FieldError> {
        self.check(&[self.kind.alone], object, old)
    }

    fn update(&self, subresource: Option<&str>, old: &Object, new: &Object) -> Vec<FieldError> {
        self.check(&self.kind.update(subresource), new, Some(old))
    }

    fn warnings(&self, old: Option<&Object>, object: &Object) -> Vec<String> {
        let mut warnings = Vec::new();
        (self.warn)(self.kind.name, ValidatedObject { at: &At::object(object, old), old, object }, &mut warnings);
        warnings
    }
}

/// A validated object, for warnings.
#[derive(Clone, Copy)]
pub(crate) struct ValidatedObject<'v> {
    /// The root of the object.
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

impl Rules {
    fn check(&self, sets: &[&'static TypeRules], object: &Object, before: Option<&Object>) -> Vec<FieldError> {
        let mut run = Run::new(object, before);
        run.allow_privileged = self.allow_privileged;
        let at = At::object(object, before);
        for type_rules in sets {
            type_rules.check(&at, &mut run);
        }
        run.faults
    }
}
