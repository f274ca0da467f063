//! Defaults of admission webhooks and policies.
//!
//! Both kinds of webhooks share the defaults of clients and rules, and differ in one field.

use crate::defaulting::type_defaults::Rule::{Always, Each, Empty, In, Number, TextIfAbsent};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults};

/// The defaults of a kind of `admissionregistration.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "ValidatingWebhookConfiguration" => Some(&VALIDATING),
        "MutatingWebhookConfiguration" => Some(&MUTATING),
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => Some(&POLICY),
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => Some(&BINDING),
        _ => None,
    }
}

/// The reference to the webhook's service.
pub(crate) const CLIENT: TypeDefaults =
    TypeDefaults::new(&[("service", In(&const { TypeDefaults::new(&[("port", Number(443))]) }))]);

const RULE: TypeDefaults = TypeDefaults::new(&[("scope", TextIfAbsent("*"))]);

const WEBHOOK: TypeDefaults = TypeDefaults::new(&[
    ("clientConfig", In(&CLIENT)),
    ("rules", Each(&RULE)),
    ("failurePolicy", TextIfAbsent("Fail")),
    ("matchPolicy", TextIfAbsent("Equivalent")),
    ("namespaceSelector", Empty),
    ("objectSelector", Empty),
    ("timeoutSeconds", Number(10)),
]);

const VALIDATING: TypeDefaults = TypeDefaults::new(&[("webhooks", Each(&WEBHOOK))]);

const MUTATING: TypeDefaults = TypeDefaults::new(&[(
    "webhooks",
    Each(
        &const {
            TypeDefaults { fields: &[("reinvocationPolicy", TextIfAbsent("Never"))], then: &[FollowUp::Also(&WEBHOOK)] }
        },
    ),
)]);

const MATCH: TypeDefaults = TypeDefaults::new(&[
    ("resourceRules", Each(&RULE)),
    ("excludeResourceRules", Each(&RULE)),
    ("matchPolicy", TextIfAbsent("Equivalent")),
    ("namespaceSelector", Empty),
    ("objectSelector", Empty),
]);

const POLICY: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(&const { TypeDefaults::new(&[("matchConstraints", In(&MATCH)), ("failurePolicy", TextIfAbsent("Fail"))]) }),
)]);

const BINDING: TypeDefaults =
    TypeDefaults::new(&[("spec", In(&const { TypeDefaults::new(&[("matchResources", In(&MATCH))]) }))]);
