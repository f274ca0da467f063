//! The declarations of certificate signing requests and trust bundles.
//!
//! Approval and status of requests are written through subresources, by different users. No code here signs
//! certificates.

use keelson_meta::names::NameRule;
use keelson_resources::FieldRefusal;
use keelson_resources::declare::{
    FieldDeclaration, GET_PATCH_UPDATE, GroupDeclaration, STATUS, cluster, served, subresource, text, version,
};

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
            .versions(&[served("v1beta1"), served("v1alpha1")])
            .stored_as(GROUP, "v1beta1")
            // The valid names depend on the signer, so validation checks them.
            .names(NameRule::PathSegment)
            .fields(FieldRefusal::Plain, OF_A_SIGNER)
            .updated_only_from_a_revision(),
    ],
};

/// The field selectors of both kinds.
const OF_A_SIGNER: &[FieldDeclaration] = &[text(&["spec.signerName"])];
