//! Rules for certificate signing requests: approving and signing take a right on the signer, and no client becomes a member of
//! `system:masters` by a request.
//!
//! These are upstream's plugins CertificateApproval, CertificateSigning and CertificateSubjectRestriction, with their texts.

use futures::future::BoxFuture;
use keelson_access::user::MASTERS;
use keelson_access::{Attributes, CertificateRequest, ResourceAttributes};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};

use keelson_registry::{Admission, AdmissionAttributes, Caller, Interest, Operation};

pub(super) const GROUP: &str = "certificates.k8s.io";
/// The signer whose certificates make clients of this server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Checks the rights of writers of certificate signing requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CertificateRules {
    /// The approval.
    Approval,
    /// The signing.
    Signing,
    /// Whose name they may ask for.
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

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> Interest {
        let resource = &attributes.target.resource;
        if &*resource.group != GROUP || &*resource.plural != "certificatesigningrequests" {
            return Interest::None;
        }
        match (self, attributes.operation, attributes.subresource()) {
            (Self::Subject, Operation::Create, "")
            | (Self::Approval, Operation::Update, "approval")
            | (Self::Signing, Operation::Update, "status") => Interest::Object,
            _ => Interest::None,
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

/// A client's certificate may say that it is of any group but this.
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
    // A part that cannot be parsed here may name that group too.
    if let Some(ambiguity) = request.ambiguity() {
        return Err(attributes.refused(format!("use of {CLIENT_SIGNER} signer is not allowed: {ambiguity}")));
    }
    Ok(())
}

/// Refuses who may not do this with what the signer signs.
async fn check_signer(attributes: &AdmissionAttributes<'_>, request: &Object, verb: &str) -> Result<(), ApiError> {
    let signer = text(request, "signerName");
    if may_use_signer(attributes.caller, verb, signer).await {
        return Ok(());
    }
    Err(attributes.refused(format!("user not permitted to {verb} requests with signerName \"{signer}\"")))
}

/// Returns true if a caller has the right to a verb on a signer: by the signer's name, or on all of its domain.
pub(super) async fn may_use_signer(caller: &Caller, verb: &str, signer: &str) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    for name in [signer, &format!("{domain}/*")] {
        let asked = ResourceAttributes {
            verb,
            group: GROUP,
            version: "*",
            resource: "signers",
            name: Some(name),
            ..ResourceAttributes::default()
        };
        if caller.authorizer().authorize(caller.user(), &Attributes::Resource(asked)).await.is_allowed() {
            return true;
        }
    }
    false
}

/// Returns true for a change that only a signer makes.
fn hands_out(old: &Object, new: &Object) -> bool {
    let part = |object: &Object, field: &str| object.get(&["status", field]).cloned().unwrap_or_default();
    ["certificate", "conditions"].iter().any(|field| part(old, field) != part(new, field))
}

fn text<'o>(request: &'o Object, field: &str) -> &'o str {
    request.get(&["spec", field]).and_then(Value::as_str).unwrap_or_default()
}
