//! Updates owners that were recorded under an older schema of their version.
//!
//! The schema of a custom resource may change between two writes. If a list or map has become atomic, the owner of a
//! part of it becomes an owner of the whole. Otherwise another manager could replace the whole without a conflict. In
//! the other direction nothing changes: an owner of the whole remains one.

use super::named::step;
use super::owners::Owners;
use super::schema::{FieldSchema, Granularity};
use super::set::{FieldSet, Node};
use super::view::View;
use super::{Fields, Versions};

impl Owners {
    /// Converts the owned fields to the current schemas of their versions. Costs nothing for built-in kinds. For other
    /// kinds the fields are parsed.
    pub(super) fn by_schemas_of_today<'a>(mut self, versions: &impl Versions<'a>) -> Self {
        for owned in self.0.values_mut() {
            let Some(schema) = versions.schema(&owned.version).filter(|schema| schema.may_change()) else { continue };
            // A clone is parsed, so that unchanged fields stay a text.
            if let Some(fields) = whole_where_atomic(&owned.fields.clone().into_set(), View::Known(schema)) {
                owned.fields = Fields::from(fields);
            }
        }
        self
    }
}

/// Returns the set in which each atomic value replaces its parts. `None` if nothing changes.
fn whole_where_atomic<'a>(set: &FieldSet, view: View<impl FieldSchema<'a>>) -> Option<FieldSet> {
    let mut changed = false;
    let mut today = |node: &Node| {
        if node.below.is_empty() {
            return node.clone();
        }
        let (view, _) = step(view, &node.element);
        let below = match view.form() {
            Granularity::AtomicList | Granularity::AtomicMap => {
                changed = true;
                return Node { element: node.element.clone(), member: true, below: FieldSet::new() };
            }
            _ => whole_where_atomic(&node.below, view),
        };
        changed |= below.is_some();
        let below = below.unwrap_or_else(|| node.below.clone());
        Node { element: node.element.clone(), member: node.member, below }
    };
    let nodes: Vec<Node> = set.nodes().iter().map(&mut today).collect();
    changed.then(|| FieldSet::from_nodes(nodes))
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::Value;

    use super::*;
    use crate::fields::{Member, Scalar};

    /// A schema of `spec` with an atomic list `l`, an atomic map `m`, a granular map `g`, and texts.
    #[derive(Clone, Copy)]
    enum CurrentSchema {
        Root,
        Spec,
        Atomic(Granularity),
        Granular,
        Text,
    }

    impl FieldSchema<'static> for CurrentSchema {
        fn form(self) -> Granularity {
            match self {
                Self::Root | Self::Spec | Self::Granular => Granularity::Map,
                Self::Atomic(form) => form,
                Self::Text => Granularity::Scalar(Scalar::String),
            }
        }

        fn member(self, name: &str) -> Member<Self> {
            Member::Field(match (self, name) {
                (Self::Root, "spec") => Self::Spec,
                (Self::Spec, "l") => Self::Atomic(Granularity::AtomicList),
                (Self::Spec, "m") => Self::Atomic(Granularity::AtomicMap),
                (Self::Spec, "g") => Self::Granular,
                (Self::Granular | Self::Spec, _) => Self::Text,
                _ => return Member::Undeclared,
            })
        }

        fn items(self) -> Option<Self> {
            None
        }

        fn keys(self) -> impl Iterator<Item = &'static str> {
            std::iter::empty()
        }

        fn key_default(self, _: &str) -> Option<Value> {
            None
        }
    }

    fn check(noted: &str, today: Option<&str>) {
        let set = FieldSet::from_text(noted).unwrap();
        let found = whole_where_atomic(&set, View::Known(CurrentSchema::Root)).map(|set| {
            let mut text = String::new();
            set.write_text(&mut text);
            text
        });
        assert_eq!(found.as_deref(), today, "{noted}");
    }

    #[test]
    fn owned_parts_of_atomic_fields_become_the_whole_field() {
        check(r#"{"f:spec":{"f:m":{"f:x":{},"f:y":{}},"f:t":{}}}"#, Some(r#"{"f:spec":{"f:m":{},"f:t":{}}}"#));
        check(
            r#"{"f:spec":{".":{},"f:g":{"f:x":{}},"f:l":{"k:{\"k\":\"a\"}":{".":{},"f:v":{}}}}}"#,
            Some(r#"{"f:spec":{".":{},"f:g":{"f:x":{}},"f:l":{}}}"#),
        );
    }

    #[test]
    fn valid_ownership_is_unchanged() {
        check(r#"{"f:spec":{".":{},"f:g":{".":{},"f:x":{}},"f:l":{},"f:m":{},"f:t":{}}}"#, None);
        check(r#"{"f:metadata":{"f:labels":{"f:a":{}}},"f:other":{"f:m":{"f:x":{}}}}"#, None);
    }
}
