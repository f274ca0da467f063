//! Requests for certificates.

use crate::declare::{GET_PATCH_UPDATE, STATUS, cluster, served, subresource};
use crate::fields::{FieldRefusal, SelectableField, text};
use crate::group::{Group, version};

const GROUP: &str = "certificates.k8s.io";

pub(super) const DECLARATION: Group = Group {
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
const CSR_FIELDS: &[SelectableField] = &[text(&["spec.signerName"])];
