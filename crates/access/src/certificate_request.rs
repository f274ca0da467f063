//! A request for a certificate (PKCS #10, RFC 2986), as `CertificateSigningRequest` objects carry it.
//!
//! What it asks for is read here. Whether whoever made it has the key is asked apart, since who only judges names need not know.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

use crate::der;

/// The label of its block.
const LABEL: &str = "CERTIFICATE REQUEST";

/// Why a text is no request.
#[derive(Debug, thiserror::Error)]
pub enum CertificateRequestError {
    /// It is not base64.
    #[error("it is not base64")]
    NotBase64,
    /// It has no block of a request.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NoBlock,
    /// The block is not one.
    #[error("{0}")]
    Malformed(String),
}

/// A request for a certificate.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    der: Vec<u8>,
    common_name: String,
    organizations: Vec<String>,
    subject: Vec<u8>,
    public_key: Vec<u8>,
    /// The extension for other names.
    alternative_names: Option<Vec<u8>>,
}

impl CertificateRequest {
    /// Reads the PEM of a request that stands as base64 in an object.
    ///
    /// # Errors
    /// When it is none.
    pub fn of_base64(text: &str) -> Result<Self, CertificateRequestError> {
        let pem = BASE64.decode(text).map_err(|_| CertificateRequestError::NotBase64)?;
        Self::of_pem(&pem)
    }

    /// Reads the PEM of a request.
    ///
    /// # Errors
    /// When it is none.
    pub fn of_pem(pem: &[u8]) -> Result<Self, CertificateRequestError> {
        let block = Pem::iter_from_buffer(pem).next().and_then(Result::ok).filter(|block| block.label == LABEL);
        let block = block.ok_or(CertificateRequestError::NoBlock)?;
        let malformed = |error: &dyn std::fmt::Display| CertificateRequestError::Malformed(error.to_string());
        let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|error| malformed(&error))?;
        let subject = &request.certification_request_info.subject;
        let text =
            |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().map(str::to_owned).ok();
        let common_name = subject.iter_common_name().next().and_then(text).unwrap_or_default();
        let organizations = subject.iter_organization().filter_map(text).collect();
        let (subject, public_key) =
            (subject.as_raw().to_vec(), request.certification_request_info.subject_pki.raw.to_vec());
        let alternative_names = alternative_names(&request);
        Ok(Self { common_name, organizations, subject, public_key, alternative_names, der: block.contents })
    }

    /// The common name of its subject; empty for none.
    pub fn common_name(&self) -> &str {
        &self.common_name
    }

    /// The organizations of its subject.
    pub fn organizations(&self) -> &[String] {
        &self.organizations
    }

    /// Whether whoever made it has the key that it is for.
    pub fn is_signed_by_its_key(&self) -> bool {
        let request = X509CertificationRequest::from_der(&self.der);
        request.is_ok_and(|(_, request)| request.verify_signature().is_ok())
    }

    /// Its subject as it stands there.
    pub(crate) fn subject_der(&self) -> &[u8] {
        &self.subject
    }

    /// The key that it is for, as it stands there.
    pub(crate) fn public_key_der(&self) -> &[u8] {
        &self.public_key
    }

    /// The extension in which it asks for other names, as it stands there.
    pub(crate) fn alternative_names_der(&self) -> Option<&[u8]> {
        self.alternative_names.as_deref()
    }
}

/// The extension for other names of a certificate, if a request asks for any.
fn alternative_names(request: &X509CertificationRequest<'_>) -> Option<Vec<u8>> {
    let asked = request.certification_request_info.iter_attributes().find_map(|attribute| {
        match attribute.parsed_attribute() {
            ParsedCriAttribute::ExtensionRequest(asked) => Some(asked),
            _ => None,
        }
    })?;
    let names = asked.extensions.iter().find(|extension| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME)?;
    Some(der::extension(names.oid.as_bytes(), names.critical, names.value))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn a_request_says_for_whom_it_is() {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let request = CertificateRequest::of_base64(&BASE64.encode(&pem)).unwrap();
        assert_eq!(
            (request.common_name(), request.organizations()),
            ("system:node:a", &["system:nodes".to_owned()][..])
        );
        for text in [
            "",
            "%",
            "eA==",
            &BASE64.encode("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"),
        ] {
            assert!(CertificateRequest::of_base64(text).is_err(), "{text}");
        }
    }
}
