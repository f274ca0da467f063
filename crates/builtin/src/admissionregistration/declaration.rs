//! Admission: webhooks and policies.
//!
//! Mutating policies are served in several versions.

use keelson_resources::declare::{GroupDeclaration, STATUS, cluster, served, version};

use crate::deprecation::{Deprecation, goes};

const GROUP: &str = "admissionregistration.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16700,
    versions: &[version("v1", 15), version("v1beta1", 12), version("v1alpha1", 9)],
    resources: &[
        cluster(GROUP, "mutatingadmissionpolicies", "mutatingadmissionpolicy", "MutatingAdmissionPolicy")
            .versions(&[served("v1"), served("v1beta1"), served("v1alpha1")])
            .categories(&["api-extensions"])
            .stored_as(GROUP, "v1beta1")
            .later_stored_as(37, "v1")
            .counts_generations()
            .updated_only_from_a_revision(),
        cluster(
            GROUP,
            "mutatingadmissionpolicybindings",
            "mutatingadmissionpolicybinding",
            "MutatingAdmissionPolicyBinding",
        )
        .versions(&[served("v1"), served("v1beta1"), served("v1alpha1")])
        .categories(&["api-extensions"])
        .stored_as(GROUP, "v1beta1")
        .later_stored_as(37, "v1")
        .counts_generations()
        .updated_only_from_a_revision(),
        cluster(GROUP, "mutatingwebhookconfigurations", "mutatingwebhookconfiguration", "MutatingWebhookConfiguration")
            .categories(&["api-extensions"])
            .counts_generations()
            .updated_only_from_a_revision(),
        cluster(GROUP, "validatingadmissionpolicies", "validatingadmissionpolicy", "ValidatingAdmissionPolicy")
            .versions(&[served("v1").with(&[STATUS])])
            .categories(&["api-extensions"])
            .counts_generations()
            .updated_only_from_a_revision(),
        cluster(
            GROUP,
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
            "ValidatingAdmissionPolicyBinding",
        )
        .categories(&["api-extensions"])
        .counts_generations()
        .updated_only_from_a_revision(),
        cluster(
            GROUP,
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
            "ValidatingWebhookConfiguration",
        )
        .categories(&["api-extensions"])
        .counts_generations()
        .updated_only_from_a_revision(),
    ],
};

pub(crate) const DEPRECATIONS: &[Deprecation] = &[
    goes("v1beta1", &["MutatingAdmissionPolicy"], 37)
        .instead("admissionregistration.k8s.io/v1 MutatingAdmissionPolicy"),
    goes("v1beta1", &["MutatingAdmissionPolicyBinding"], 37)
        .instead("admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding"),
    goes("v1alpha1", &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"], 35),
];
