//! Defaults of CustomResourceDefinitions.
//!
//! Absent names are derived from the kind.

use keelson_meta::json::{Map, json};

use crate::admissionregistration::defaults::CLIENT;
use crate::defaulting::type_defaults::Rule::In;
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, is_unset, set, text};

/// The defaults of a kind of `apiextensions.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "CustomResourceDefinition" => Some(&DEFINITION),
        _ => None,
    }
}

const DEFINITION: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    In(&const {
        TypeDefaults {
            fields: &[
                (
                    "names",
                    In(&const {
                        TypeDefaults { fields: &[], then: &[FollowUp::Run(&["kind", "singular", "listKind"], names)] }
                    }),
                ),
                ("conversion", In(&CONVERSION)),
            ],
            then: &[FollowUp::Run(&["conversion"], conversion)],
        }
    }),
)]);

const CONVERSION: TypeDefaults =
    TypeDefaults::new(&[("webhook", In(&const { TypeDefaults::new(&[("clientConfig", In(&CLIENT))]) }))]);

/// Fills in an absent conversion. If the field is present, it must name its strategy.
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
