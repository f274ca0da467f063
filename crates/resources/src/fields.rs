//! Selectable fields, and the refusal of unknown ones.
//!
//! In upstream, kinds with a field conversion function have their own refusal texts. Clients print them, so they are
//! part of the declaration.

use crate::resource::{Resource, Scope, Text};

/// A selectable field of a kind, in addition to name and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The name in a selector, by the version it is declared for.
    pub name: Text,
    /// The stored paths of its value, of which the first that is not empty counts. Without a path it is always empty.
    pub paths: Vec<Text>,
    /// The text of the field if all paths are absent, such as `false` for a boolean.
    pub absent: Text,
    /// The versions in which it is selectable. `None` for all.
    pub versions: Option<Vec<Text>>,
}

/// The meaning of a field in a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRef<'a> {
    /// `metadata.name`
    Name,
    /// `metadata.namespace`
    Namespace,
    /// A declared field.
    Declared(&'a SelectableField),
}

/// The text of the refusal of an unknown field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRefusal {
    /// `"x" is not a known field selector: only "metadata.name", "metadata.namespace"`, for kinds without declared
    /// fields.
    OnlyMetadata,
    /// `field label not supported: x`
    Plain,
    /// `field label "x" not supported for Job`
    QuotedForKind,
    /// `field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x`
    ForVersionedKind,
}

impl SelectableField {
    /// Returns true if it is selectable in a version.
    fn is_in(&self, version: &str) -> bool {
        self.versions.as_ref().is_none_or(|versions| versions.iter().any(|known| known == version))
    }

    /// The text of the field in an object. `stored` returns the text of a stored path, empty if absent.
    pub fn text<'a>(&'a self, stored: impl Fn(&str) -> &'a str) -> &'a str {
        self.paths.iter().map(|path| stored(path)).find(|text| !text.is_empty()).unwrap_or(&self.absent)
    }
}

impl Resource {
    /// The meaning of a selector's field in a version of this resource.
    ///
    /// # Errors
    /// The text of the 400 for an unknown field.
    pub fn field(&self, version: &str, field: &str) -> Result<FieldRef<'_>, String> {
        match field {
            "metadata.name" => return Ok(FieldRef::Name),
            "metadata.namespace" if self.knows_namespace_field() => return Ok(FieldRef::Namespace),
            _ => {}
        }
        let known = |declared: &&SelectableField| declared.name == field && declared.is_in(version);
        let declared = self.selectable_fields.iter().find(known);
        declared.map(FieldRef::Declared).ok_or_else(|| self.refusal(version, field))
    }

    /// As in upstream's default, kinds without declared fields accept the namespace even if they are cluster-scoped.
    fn knows_namespace_field(&self) -> bool {
        match self.field_refusal {
            FieldRefusal::OnlyMetadata => true,
            FieldRefusal::Plain | FieldRefusal::QuotedForKind | FieldRefusal::ForVersionedKind => {
                self.scope == Scope::Namespaced
            }
        }
    }

    fn refusal(&self, version: &str, field: &str) -> String {
        match self.field_refusal {
            FieldRefusal::OnlyMetadata => {
                format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            FieldRefusal::Plain => format!("field label not supported: {field}"),
            FieldRefusal::QuotedForKind => format!("field label \"{field}\" not supported for {}", self.kind),
            FieldRefusal::ForVersionedKind => {
                format!("field label not supported for {}/{version}, Kind={}: {field}", self.group, self.kind)
            }
        }
    }
}
