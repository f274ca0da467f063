//! Rules for certificate signing requests. Approving and signing need a right on the signer. A request cannot make a
//! client a member of `system:masters`.
//!
//! These are upstream's plugins CertificateApproval, CertificateSigning and CertificateSubjectRestriction, with their
//! texts.

use futures::future::BoxFuture;
use keelson_access::user::MASTERS;
use keelson_access::{Attributes, CertificateRequest, ResourceAttributes};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};

use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Caller, Operation};

pub(super) const GROUP: &str = "certificates.k8s.io";
/// The signer of client certificates for this server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Checks the rights of users who write certificate signing requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CertificateRules {
    /// Checks the right to approve.
    Approval,
    /// Checks the right to sign.
    Signing,
    /// Checks the subject of the requested certificate.
    Subject,
}

impl Admission for CertificateRules {
    fn name(&self) -> &'static str {
        match self {
            Self::Approval => "CertificateApproval",
            Self::Signing => "CertificateSigning",
            Self::Subject => "CertificateSubjectRestriction",
        }
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let resource = &attributes.target.resource;
        if &*resource.group != GROUP || &*resource.plural != "certificatesigningrequests" {
            return AttributesNeeded::None;
        }
        match (self, attributes.operation, attributes.subresource()) {
            (Self::Subject, Operation::Create, "")
            | (Self::Approval, Operation::Update, "approval")
            | (Self::Signing, Operation::Update, "status") => AttributesNeeded::Object,
            _ => AttributesNeeded::None,
        }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(object) = object else { return Ok(()) };
            match (self, attributes.old) {
                (Self::Subject, _) => check_subject(attributes, object),
                (Self::Approval, Some(old)) => check_signer(attributes, old, "approve").await,
                (Self::Signing, Some(old)) if hands_out(old, object) => check_signer(attributes, old, "sign").await,
                (Self::Approval | Self::Signing, _) => Ok(()),
            }
        })
    }
}

/// Refuses a request for a client certificate in the group `system:masters`.
fn check_subject(attributes: &AdmissionAttributes<'_>, object: &Object) -> Result<(), ApiError> {
    if text(object, "signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let request = CertificateRequest::of_base64(text(object, "request"));
    let request = request.map_err(|error| attributes.refused(format!("failed to parse CSR: {error}")))?;
    if request.organizations().iter().any(|group| group == MASTERS) {
        let message = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        return Err(attributes.refused(message));
    }
    // Other programs may read another subject from an ambiguous request, with that group.
    if let Some(ambiguity) = request.ambiguity() {
        return Err(attributes.refused(format!("use of {CLIENT_SIGNER} signer is not allowed: {ambiguity}")));
    }
    Ok(())
}

/// Refuses the write unless the user has the right `verb` on the signer of the request.
async fn check_signer(attributes: &AdmissionAttributes<'_>, request: &Object, verb: &str) -> Result<(), ApiError> {
    let signer = text(request, "signerName");
    if may_use_signer(attributes.caller, verb, signer).await {
        return Ok(());
    }
    Err(attributes.refused(format!("user not permitted to {verb} requests with signerName \"{signer}\"")))
}

/// Returns true if the user has the right `verb` on the signer, or on all signers of its domain (`<domain>/*`).
pub(super) async fn may_use_signer(caller: &Caller, verb: &str, signer: &str) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    for name in [signer, &format!("{domain}/*")] {
        let attributes = ResourceAttributes {
            verb,
            group: GROUP,
            version: "*",
            resource: "signers",
            name: Some(name),
            ..ResourceAttributes::default()
        };
        if caller.authorizer().authorize(caller.user(), &Attributes::Resource(attributes)).await.is_allowed() {
            return true;
        }
    }
    false
}

/// Returns true for a change that only signers make: of the certificate or the conditions.
fn hands_out(old: &Object, new: &Object) -> bool {
    let part = |object: &Object, field: &str| object.get(&["status", field]).cloned().unwrap_or_default();
    ["certificate", "conditions"].iter().any(|field| part(old, field) != part(new, field))
}

fn text<'o>(request: &'o Object, field: &str) -> &'o str {
    request.get(&["spec", field]).and_then(Value::as_str).unwrap_or_default()
}
