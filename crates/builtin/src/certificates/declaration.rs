//! The declarations of certificate signing requests, trust bundles and pod certificate requests.
//!
//! Approval and status of requests are written through subresources, by different users. No code here signs
//! certificates.

use keelson_meta::names::NameRule;
use keelson_resources::FieldRefusal;
use keelson_resources::declare::{
    FieldDeclaration, GET_PATCH_UPDATE, GroupDeclaration, STATUS, cluster, namespaced, served, subresource, text,
    version,
};

use crate::deprecation::{Deprecation, goes};

const GROUP: &str = "certificates.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17300,
    versions: &[version("v1", 15), version("v1beta1", 9), version("v1alpha1", 1)],
    resources: &[
        cluster(GROUP, "certificatesigningrequests", "certificatesigningrequest", "CertificateSigningRequest")
            .versions(&[served("v1").with(&[subresource("approval", GET_PATCH_UPDATE), STATUS])])
            .short_names(&["csr"])
            .fields(FieldRefusal::Plain, OF_A_SIGNER),
        cluster(GROUP, "clustertrustbundles", "clustertrustbundle", "ClusterTrustBundle")
            .versions(&[served("v1").since(37), served("v1beta1"), served("v1alpha1").until(37)])
            .stored_as(GROUP, "v1beta1")
            // The valid names depend on the signer, so validation checks them.
            .names(NameRule::PathSegment)
            .fields(FieldRefusal::Plain, OF_A_SIGNER)
            .updated_only_from_a_revision(),
        namespaced(GROUP, "podcertificaterequests", "podcertificaterequest", "PodCertificateRequest")
            .versions(&[served("v1").with(&[STATUS]).since(37)])
            .fields(FieldRefusal::Plain, OF_A_POD)
            .updated_only_from_a_revision(),
    ],
};

/// The field selectors of pod certificate requests.
const OF_A_POD: &[FieldDeclaration] = &[text(&["spec.nodeName"]), text(&["spec.podName"]), text(&["spec.signerName"])];

/// The field selectors of the other kinds.
const OF_A_SIGNER: &[FieldDeclaration] = &[text(&["spec.signerName"])];

pub(crate) const DEPRECATIONS: &[Deprecation] = &[
    goes("v1beta1", &["ClusterTrustBundle"], 37).instead("certificates.k8s.io/v1 ClusterTrustBundle"),
    goes("v1alpha1", &["ClusterTrustBundle"], 34),
];
