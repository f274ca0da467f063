//! Requests for certificates.
//!
//! Approval and status are written through subresources, by different users. Nothing here signs a certificate.

use crate::declare::{
    FieldDeclaration, GET_PATCH_UPDATE, GroupDeclaration, STATUS, cluster, served, subresource, text, version,
};
use crate::fields::FieldRefusal;

const GROUP: &str = "certificates.k8s.io";

pub(super) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17300,
    versions: &[version("v1", 15)],
    resources: &[cluster(
        GROUP,
        "certificatesigningrequests",
        "certificatesigningrequest",
        "CertificateSigningRequest",
    )
    .versions(&[served("v1").with(&[subresource("approval", GET_PATCH_UPDATE), STATUS])])
    .short_names(&["csr"])
    .fields(FieldRefusal::Plain, CSR_FIELDS)],
};

/// What selectors of certificatesigningrequests may name.
const CSR_FIELDS: &[FieldDeclaration] = &[text(&["spec.signerName"])];
