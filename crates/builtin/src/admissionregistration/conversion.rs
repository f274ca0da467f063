//! Webhook configurations of `admissionregistration.k8s.io/v1beta1`, which has the fields of `v1` but other defaults.
//!
//! A configuration may have been written before a field existed. The field then gets the default of `v1beta1`.

use keelson_meta::json::{Map, json};

use crate::converting::conversion::ConversionError;
use crate::converting::families::{Family, Form, family, hub};
use crate::converting::retired::{BETA, BOTH, RetiredVersions, row};
use crate::converting::tree::{each_in, fill};

const GROUP: &str = "admissionregistration.k8s.io";

pub(crate) const FAMILIES: &[Family] =
    &[family("MutatingAdmissionPolicy", FORMS), family("MutatingAdmissionPolicyBinding", FORMS)];

const FORMS: &[Form] = &[hub(GROUP, "v1"), hub(GROUP, "v1beta1"), hub(GROUP, "v1alpha1")];

pub(crate) const RETIRED: &[RetiredVersions] = &[
    row("MutatingWebhookConfiguration", GROUP, BETA).by(webhooks_from_v1beta1),
    row("ValidatingWebhookConfiguration", GROUP, BETA).by(webhooks_from_v1beta1),
    row("ValidatingAdmissionPolicy", GROUP, BOTH),
    row("ValidatingAdmissionPolicyBinding", GROUP, BOTH),
];

/// Converts from v1beta1 to v1.
pub(crate) fn webhooks_from_v1beta1(configuration: &mut Map) -> Result<(), ConversionError> {
    each_in(configuration, "webhooks", |webhook| {
        fill(webhook, "failurePolicy", json!("Ignore"));
        fill(webhook, "matchPolicy", json!("Exact"));
        fill(webhook, "sideEffects", json!("Unknown"));
        fill(webhook, "timeoutSeconds", json!(30));
        fill(webhook, "admissionReviewVersions", json!(["v1beta1"]));
        Ok(())
    })
}
