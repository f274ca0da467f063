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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogue;

    fn check(group: &str, version: &str, plural: &str, field: &str, expected: Result<&str, &str>) {
        let (resource, _) = Catalogue::builtin().lookup(group, version, plural).expect("a built-in resource");
        let found = resource.field(version, field).map(|found| match found {
            FieldRef::Name => "name",
            FieldRef::Namespace => "namespace",
            FieldRef::Declared(declared) => declared.paths.first().map_or("", |path| path),
        });
        assert_eq!(found, expected.map_err(str::to_owned), "{plural} {field}");
    }

    #[test]
    fn every_kind_knows_its_name() {
        for resource in Catalogue::builtin().resources() {
            assert_eq!(resource.field("v1", "metadata.name"), Ok(FieldRef::Name), "{}", resource.plural);
        }
    }

    #[test]
    fn kinds_without_fields_say_what_they_know() {
        let refusal = "\"nope\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
        check("", "v1", "configmaps", "nope", Err(refusal));
        check("", "v1", "configmaps", "metadata.namespace", Ok("namespace"));
        check("", "v1", "persistentvolumes", "metadata.namespace", Ok("namespace"));
    }

    #[test]
    fn kinds_with_fields_refuse_in_their_own_words() {
        check("", "v1", "pods", "nope", Err("field label not supported: nope"));
        check("", "v1", "nodes", "metadata.namespace", Err("field label not supported: metadata.namespace"));
        check("batch", "v1", "jobs", "nope", Err("field label \"nope\" not supported for Job"));
        let refusal = "field label not supported for resource.k8s.io/v1beta1, Kind=ResourceSlice: nope";
        check("resource.k8s.io", "v1beta1", "resourceslices", "nope", Err(refusal));
    }

    #[test]
    fn names_in_selectors_lead_to_stored_paths() {
        check("", "v1", "pods", "spec.host", Ok("spec.nodeName"));
        check("events.k8s.io", "v1", "events", "regarding.name", Ok("involvedObject.name"));
        check("batch", "v1", "jobs", "status.successful", Ok("status.succeeded"));
        check("", "v1", "events", "regarding.name", Err("field label not supported: regarding.name"));
    }

    #[test]
    fn an_absent_field_has_the_text_of_its_type() {
        let field = |plural, name| {
            let resource = Catalogue::builtin().resource("", plural).expect("a core resource");
            resource.selectable_fields.iter().find(|field| field.name == name).expect("a declared field")
        };
        assert_eq!(field("nodes", "spec.unschedulable").text(|_| ""), "false");
        assert_eq!(field("nodes", "spec.unschedulable").text(|_| "true"), "true");
        assert_eq!(field("replicationcontrollers", "status.replicas").text(|_| ""), "0");
        assert_eq!(field("pods", "spec.nodeName").text(|_| ""), "");
        let source = field("events", "source");
        assert_eq!(source.text(|path| if path == "reportingComponent" { "kubelet" } else { "" }), "kubelet");
        assert_eq!(source.text(|_| "both"), "both");
    }
}
