//! Defaults of webhooks and policies that look at requests.
//!
//! Both kinds of webhooks share the shape of a client and of a rule, and differ in one field.

use crate::shape::Rule::{Always, Each, Empty, In, Number, TextIfAbsent};
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

const RULE: Shape = Shape::of(&[("scope", TextIfAbsent("*"))]);

const WEBHOOK: Shape = Shape::of(&[
    ("clientConfig", In(&CLIENT)),
    ("rules", Each(&RULE)),
    ("failurePolicy", TextIfAbsent("Fail")),
    ("matchPolicy", TextIfAbsent("Equivalent")),
    ("namespaceSelector", Empty),
    ("objectSelector", Empty),
    ("timeoutSeconds", Number(10)),
]);

const VALIDATING: Shape = Shape::of(&[("webhooks", Each(&WEBHOOK))]);

const MUTATING: Shape = Shape::of(&[(
    "webhooks",
    Each(&const { Shape { fields: &[("reinvocationPolicy", TextIfAbsent("Never"))], then: &[Step::Also(&WEBHOOK)] } }),
)]);

const MATCH: Shape = Shape::of(&[
    ("resourceRules", Each(&RULE)),
    ("excludeResourceRules", Each(&RULE)),
    ("matchPolicy", TextIfAbsent("Equivalent")),
    ("namespaceSelector", Empty),
    ("objectSelector", Empty),
]);

const POLICY: Shape = Shape::of(&[(
    "spec",
    Always(&const { Shape::of(&[("matchConstraints", In(&MATCH)), ("failurePolicy", TextIfAbsent("Fail"))]) }),
)]);

const BINDING: Shape = Shape::of(&[("spec", In(&const { Shape::of(&[("matchResources", In(&MATCH))]) }))]);
