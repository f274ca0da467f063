//! Fields that a field selector may name, and how an unknown one is refused.
//!
//! Upstream, kinds with a field conversion function of their own word the refusal differently from the rest; clients
//! print these texts, so each kind's wording is part of its declaration.

use crate::resource::{Resource, Scope, Text};

/// A field of a kind that field selectors may name, beside the name and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The name that a selector uses, in the words of the version it is declared for.
    pub name: Text,
    /// Where its value lies in the stored object; the first that is not empty counts. Without a path it is always empty.
    pub paths: Vec<Text>,
    /// Its text when the object has none of the paths, such as `false` for a boolean.
    pub absent: Text,
    /// The versions in which selectors may name it; `None` for all.
    pub versions: Option<Vec<Text>>,
}

/// What a field in a selector stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRef<'a> {
    /// `metadata.name`
    Name,
    /// `metadata.namespace`
    Namespace,
    /// A field that the kind declares.
    Declared(&'a SelectableField),
}

/// The wording with which a kind refuses an unknown field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRefusal {
    /// `"x" is not a known field selector: only "metadata.name", "metadata.namespace"`; these kinds declare no fields.
    OnlyMetadata,
    /// `field label not supported: x`
    Plain,
    /// `field label "x" not supported for Job`
    QuotedForKind,
    /// `field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x`
    ForVersionedKind,
}

impl SelectableField {
    /// Whether selectors in a version may name it.
    fn is_in(&self, version: &str) -> bool {
        self.versions.as_ref().is_none_or(|versions| versions.iter().any(|known| known == version))
    }

    /// Its text in an object, given the text of each stored path (empty when absent).
    pub fn text<'a>(&'a self, stored: impl Fn(&str) -> &'a str) -> &'a str {
        self.paths.iter().map(|path| stored(path)).find(|text| !text.is_empty()).unwrap_or(&self.absent)
    }
}

impl Resource {
    /// What a field of a selector stands for, in a version of this resource.
    ///
    /// # Errors
    /// The text of the refusal (a 400) when the kind does not know the field.
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

    /// Kinds without fields of their own accept the namespace even when they have none, as upstream's default does.
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
