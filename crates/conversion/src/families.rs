//! The families of versions: kinds that are served in several, and the steps by which each version leads to the others.
//!
//! Versions without steps have the same fields. Whether that is so was found by comparing their published schemas; what
//! upstream's hand-written conversions add to that is in the modules that the steps come from.

use crate::conversion::ConvertFn;
use crate::groups::{autoscaling, events, resource};

/// A kind in all the forms that it is served or stored in.
pub(crate) struct Family {
    pub(crate) kind: &'static str,
    pub(crate) forms: &'static [Form],
}

/// A kind in one version.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// What leads to the hub; `None` when the fields are the hub's.
    pub(crate) to_hub: Option<ConvertFn>,
    /// What leads here from the hub.
    pub(crate) from_hub: Option<ConvertFn>,
    /// What a request's object goes through when it is stored in this form.
    pub(crate) canonical: Option<[Option<ConvertFn>; 2]>,
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const AUTOSCALING: &str = "autoscaling";
const CERTIFICATES: &str = "certificates.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const EVENTS: &str = "events.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";

pub(crate) const FAMILIES: &[Family] = &[
    family("Event", &[hub("", "v1"), form(EVENTS, "v1", events::to_core, events::from_core)]),
    family(
        "HorizontalPodAutoscaler",
        &[
            hub(AUTOSCALING, "v2").canonical([Some(autoscaling::drop_annotations), None]),
            form(AUTOSCALING, "v1", autoscaling::v1_to_v2, autoscaling::v2_to_v1)
                .canonical([Some(autoscaling::v1_to_v2), Some(autoscaling::v2_to_v1)]),
        ],
    ),
    family("MutatingAdmissionPolicy", ADMISSION_FORMS),
    family("MutatingAdmissionPolicyBinding", ADMISSION_FORMS),
    family("ClusterTrustBundle", &[hub(CERTIFICATES, "v1beta1"), hub(CERTIFICATES, "v1alpha1")]),
    family("LeaseCandidate", &[hub(COORDINATION, "v1beta1"), hub(COORDINATION, "v1alpha2")]),
    family("IPAddress", NETWORKING_FORMS),
    family("ServiceCIDR", NETWORKING_FORMS),
    family("VolumeAttributesClass", &[hub(STORAGE, "v1"), hub(STORAGE, "v1beta1")]),
    family("DeviceClass", &[hub(RESOURCE, "v1"), hub(RESOURCE, "v1beta2"), hub(RESOURCE, "v1beta1")]),
    family("DeviceTaintRule", &[hub(RESOURCE, "v1beta2"), hub(RESOURCE, "v1alpha3")]),
    family(
        "ResourceClaim",
        &[
            hub(RESOURCE, "v1"),
            hub(RESOURCE, "v1beta2"),
            form(RESOURCE, "v1beta1", resource::nest_claim, resource::flatten_claim),
        ],
    ),
    family(
        "ResourceClaimTemplate",
        &[
            hub(RESOURCE, "v1"),
            hub(RESOURCE, "v1beta2"),
            form(RESOURCE, "v1beta1", resource::nest_template, resource::flatten_template),
        ],
    ),
    family(
        "ResourceSlice",
        &[
            hub(RESOURCE, "v1"),
            hub(RESOURCE, "v1beta2"),
            form(RESOURCE, "v1beta1", resource::lift_slice, resource::wrap_slice),
        ],
    ),
];

const ADMISSION_FORMS: &[Form] = &[hub(ADMISSION, "v1"), hub(ADMISSION, "v1beta1"), hub(ADMISSION, "v1alpha1")];

const NETWORKING_FORMS: &[Form] = &[hub(NETWORKING, "v1"), hub(NETWORKING, "v1beta1")];

impl Form {
    /// The group and version.
    pub(crate) fn gv(&self) -> (&'static str, &'static str) {
        (self.group, self.version)
    }

    /// The `apiVersion` of an object in this form.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    const fn canonical(mut self, steps: [Option<ConvertFn>; 2]) -> Self {
        self.canonical = Some(steps);
        self
    }
}

const fn family(kind: &'static str, forms: &'static [Form]) -> Family {
    Family { kind, forms }
}

/// A form with the fields of the hub.
const fn hub(group: &'static str, version: &'static str) -> Form {
    Form { group, version, to_hub: None, from_hub: None, canonical: None }
}

/// A form with fields of its own.
const fn form(group: &'static str, version: &'static str, to_hub: ConvertFn, from_hub: ConvertFn) -> Form {
    Form { group, version, to_hub: Some(to_hub), from_hub: Some(from_hub), canonical: None }
}
