//! Defaults of the definitions of custom resources.
//!
//! The names that a definition leaves out follow from its kind.

use keelson_meta::json::{Map, json};

use super::admissionregistration::CLIENT;
use crate::shape::Rule::In;
use crate::shape::{Shape, Step, is_unset, set, text};

/// The shape of a kind of `apiextensions.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "CustomResourceDefinition" => Some(&DEFINITION),
        _ => None,
    }
}

const DEFINITION: Shape = Shape::of(&[(
    "spec",
    In(&const {
        Shape {
            fields: &[
                (
                    "names",
                    In(&const { Shape { fields: &[], then: &[Step::Run(&["kind", "singular", "listKind"], names)] } }),
                ),
                ("conversion", In(&CONVERSION)),
            ],
            then: &[Step::Run(&["conversion"], conversion)],
        }
    }),
)]);

const CONVERSION: Shape = Shape::of(&[("webhook", In(&const { Shape::of(&[("clientConfig", In(&CLIENT))]) }))]);

/// A conversion that is stated has to name its strategy.
fn conversion(spec: &mut Map) {
    if is_unset(spec, "conversion") {
        set(spec, "conversion", json!({ "strategy": "None" }));
    }
}

fn names(names: &mut Map) {
    let kind = text(names, "kind").to_owned();
    if kind.is_empty() {
        return;
    }
    if is_unset(names, "singular") {
        set(names, "singular", kind.to_lowercase());
    }
    if is_unset(names, "listKind") {
        set(names, "listKind", format!("{kind}List"));
    }
}
