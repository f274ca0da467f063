//! The declarations of dynamic resource allocation: devices and claims.
//!
//! Some versions differ in their fields, so objects are converted. A kind without `v1` is stored in an older version.

use keelson_resources::FieldRefusal;
use keelson_resources::declare::{
    FieldDeclaration, GroupDeclaration, STATUS, cluster, namespaced, served, text, version,
};

use crate::deprecation::{Deprecation, goes};

const GROUP: &str = "resource.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16200,
    versions: &[version("v1", 21), version("v1beta2", 15), version("v1beta1", 12), version("v1alpha3", 9)],
    resources: &[
        cluster(GROUP, "deviceclasses", "deviceclass", "DeviceClass")
            .versions(&[served("v1"), served("v1beta2"), served("v1beta1")])
            .counts_generations(),
        cluster(GROUP, "devicetaintrules", "devicetaintrule", "DeviceTaintRule")
            .versions(&[
                served("v1").with(&[STATUS]).since(37),
                served("v1beta2").with(&[STATUS]),
                served("v1alpha3").with(&[STATUS]),
            ])
            .stored_as(GROUP, "v1alpha3")
            .later_stored_as(37, "v1beta2")
            .counts_generations(),
        namespaced(GROUP, "resourceclaims", "resourceclaim", "ResourceClaim").versions(&[
            served("v1").with(&[STATUS]),
            served("v1beta2").with(&[STATUS]),
            served("v1beta1").with(&[STATUS]),
        ]),
        namespaced(GROUP, "resourceclaimtemplates", "resourceclaimtemplate", "ResourceClaimTemplate").versions(&[
            served("v1"),
            served("v1beta2"),
            served("v1beta1"),
        ]),
        cluster(GROUP, "resourcepoolstatusrequests", "resourcepoolstatusrequest", "ResourcePoolStatusRequest")
            .versions(&[served("v1alpha3").with(&[STATUS])])
            .stored_as(GROUP, "v1alpha3")
            .updated_only_from_a_revision(),
        cluster(GROUP, "resourceslices", "resourceslice", "ResourceSlice")
            .versions(&[served("v1"), served("v1beta2"), served("v1beta1")])
            .fields(FieldRefusal::ForVersionedKind, RESOURCESLICE_FIELDS)
            .counts_generations(),
    ],
};

/// The field selectors of resourceslices.
const RESOURCESLICE_FIELDS: &[FieldDeclaration] =
    &[text(&["spec.nodeName"]), text(&["spec.driver"]), text(&["spec.pool.name"]).since(37)];

pub(crate) const DEPRECATIONS: &[Deprecation] =
    &[goes("v1beta2", DEVICES, 36), goes("v1beta1", DEVICES, 35), goes("v1alpha3", &["DeviceTaintRule"], 36)];

const DEVICES: &[&str] = &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"];
