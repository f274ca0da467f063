//! Strategies of certificate signing requests and pod certificate requests. In signing requests the server sets the
//! requesting user in the spec, whatever the client sends.
//!
//! So a signer can trust the user, groups and extra values in the spec. The certificate and the approval are written
//! through subresources, which limit the fields that a client can change.

mod approval;
mod durations;
mod pod_requests;

use std::time::SystemTime;

pub use durations::{ISSUED_CERTIFICATES, IssuedCertificates};
use keelson_access::User;
use keelson_meta::Object;
use keelson_meta::json::{Value, json};
use keelson_registry::strategy::{AcceptedPart, CreateStrategy, FieldPath, Strategies, UpdateStrategy};

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "certificatesigningrequests" => {
            &const { Strategies::ORDINARY.create(&CertificateSigningRequests).update(&CertificateSigningRequests) }
        }
        "podcertificaterequests" => &const { Strategies::ORDINARY.update(&pod_requests::PodCertificateRequests) },
        _ => &Strategies::ORDINARY,
    }
}

fn sign_with(request: &mut Object, user: &User) {
    let spec = request.0.entry("spec").or_insert_with(|| json!({}));
    let Value::Object(spec) = spec else { return };
    spec.insert("username", json!(user.name));
    spec.insert("uid", json!(user.uid));
    spec.insert("groups", json!(user.groups));
    spec.insert("extra", json!(user.extra));
}

/// The strategy of certificate signing requests.
pub(super) struct CertificateSigningRequests;

impl CreateStrategy for CertificateSigningRequests {
    fn attribute(&self, object: &mut Object, user: &User) -> bool {
        sign_with(object, user);
        true
    }
}

impl UpdateStrategy for CertificateSigningRequests {
    fn confine(&self, subresource: &str, stored: &Object, sent: Object, now: SystemTime) -> AcceptedPart {
        match subresource {
            "approval" => approval::confine_approval(stored, sent, now),
            "status" => approval::confine_status(stored, sent, now),
            _ => AcceptedPart::AsSent(sent),
        }
    }

    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        match subresource {
            "" => &[&["spec"]],
            "approval" => &[&["spec"], &["status", "certificate"]],
            _ => &[],
        }
    }

    fn counts_updates(&self, subresource: &str) -> bool {
        subresource == "status"
    }

    fn count_update(&self, before: &Object, after: &Object) {
        durations::count(before, after);
    }

    fn shared(&self, subresource: &str) -> &'static [FieldPath] {
        if subresource == "status" { &[&["status", "conditions"]] } else { &[] }
    }
}
