//! Webhooks and policies that look at requests.

use crate::shape::Rule::{Each, Empty, In, Number, Text};
use crate::shape::{Shape, Step};

/// The shape of a kind of `admissionregistration.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "ValidatingWebhookConfiguration" => Some(&VALIDATING),
        "MutatingWebhookConfiguration" => Some(&MUTATING),
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => Some(&POLICY),
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => Some(&BINDING),
        _ => None,
    }
}

/// The service that is called.
pub(crate) const CLIENT: Shape = Shape::of(&[("service", In(&const { Shape::of(&[("port", Number(443))]) }))]);

const RULE: Shape = Shape::of(&[("scope", Text("*"))]);

const WEBHOOK: Shape = Shape::of(&[
    ("clientConfig", In(&CLIENT)),
    ("rules", Each(&RULE)),
    ("failurePolicy", Text("Fail")),
    ("matchPolicy", Text("Equivalent")),
    ("namespaceSelector", Empty),
    ("objectSelector", Empty),
    ("timeoutSeconds", Number(10)),
]);

const VALIDATING: Shape = Shape::of(&[("webhooks", Each(&WEBHOOK))]);

const MUTATING: Shape = Shape::of(&[(
    "webhooks",
    Each(&const { Shape { fields: &[("reinvocationPolicy", Text("Never"))], then: &[Step::Also(&WEBHOOK)] } }),
)]);

const MATCH: Shape = Shape::of(&[
    ("resourceRules", Each(&RULE)),
    ("excludeResourceRules", Each(&RULE)),
    ("matchPolicy", Text("Equivalent")),
    ("namespaceSelector", Empty),
    ("objectSelector", Empty),
]);

const POLICY: Shape = Shape::of(&[(
    "spec",
    In(&const { Shape::of(&[("matchConstraints", In(&MATCH)), ("failurePolicy", Text("Fail"))]) }),
)]);

const BINDING: Shape = Shape::of(&[("spec", In(&const { Shape::of(&[("matchResources", In(&MATCH))]) }))]);
