//! A certificate request (PKCS #10, RFC 2986) in a `CertificateSigningRequest` object.
//!
//! Parsing does not verify the signature. That is a separate call, since callers that only check names do not need it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use x509_parser::asn1_rs::Tag;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::client_key::{PublicKey, provider};
use crate::der::{self, BIT_STRING, SEQUENCE};

/// The label of the PEM block.
const LABEL: &str = "CERTIFICATE REQUEST";

/// The reason why a text is not a certificate request.
#[derive(Debug, thiserror::Error)]
pub enum CertificateRequestError {
    /// The text is not base64.
    #[error("it is not base64")]
    NotBase64,
    /// The text has no PEM block with this label.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NoBlock,
    /// The PEM block is not a certificate request.
    #[error("{0}")]
    Malformed(String),
}

/// A request for a certificate.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    der: Vec<u8>,
    common_name: String,
    organizations: Vec<String>,
    ambiguity: Option<&'static str>,
    subject: Vec<u8>,
    public_key: Vec<u8>,
    /// The extension with the alternative names.
    alternative_names: Option<Vec<u8>>,
}

impl CertificateRequest {
    /// Parses the base64 of a PEM text, the form in `spec.request`.
    ///
    /// # Errors
    /// The text is not a certificate request.
    pub fn of_base64(text: &str) -> Result<Self, CertificateRequestError> {
        let pem = BASE64.decode(text).map_err(|_| CertificateRequestError::NotBase64)?;
        Self::of_pem(&pem)
    }

    /// Parses a PEM text.
    ///
    /// # Errors
    /// The text is not a certificate request.
    pub fn of_pem(pem: &[u8]) -> Result<Self, CertificateRequestError> {
        let block = Pem::iter_from_buffer(pem).next().and_then(Result::ok).filter(|block| block.label == LABEL);
        let block = block.ok_or(CertificateRequestError::NoBlock)?;
        let malformed = |error: &dyn std::fmt::Display| CertificateRequestError::Malformed(error.to_string());
        let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|error| malformed(&error))?;
        let subject = &request.certification_request_info.subject;
        let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().map(str::to_owned).ok();
        let common_name = subject.iter_common_name().next().and_then(text).unwrap_or_default();
        let organizations = subject.iter_organization().filter_map(text).collect();
        let (subject, public_key) =
            (subject.as_raw().to_vec(), request.certification_request_info.subject_pki.raw.to_vec());
        let ambiguity = ambiguity(&request.certification_request_info.subject);
        let alternative_names = alternative_names(&request);
        Ok(Self { common_name, organizations, ambiguity, subject, public_key, alternative_names, der: block.contents })
    }

    /// The common name of the subject; empty if there is none.
    pub fn common_name(&self) -> &str {
        &self.common_name
    }

    /// The organizations of the subject.
    pub fn organizations(&self) -> &[String] {
        &self.organizations
    }

    /// The reason why other programs may read another identity from the subject; `None` if it is unambiguous.
    pub fn ambiguity(&self) -> Option<&'static str> {
        self.ambiguity
    }

    /// Returns true if the request is signed by its own key, and clients may use keys of this type.
    pub fn is_signed_by_its_key(&self) -> bool {
        let algorithms = provider().signature_verification_algorithms;
        let verified = || {
            let (parts, _) = der::content(SEQUENCE, &self.der)?;
            let (content, parts) = der::read(parts)?;
            let (signed_with, parts) = der::content(SEQUENCE, parts)?;
            let (signature, _) = der::content(BIT_STRING, parts)?;
            let key = PublicKey::from_info(&self.public_key).filter(|key| key.is_supported(&algorithms))?;
            key.verify(&algorithms, signed_with, content.raw, signature.strip_prefix(&[0])?).ok()
        };
        verified().is_some()
    }

    /// The DER of the subject.
    pub(crate) fn subject_der(&self) -> &[u8] {
        &self.subject
    }

    /// The DER of the public key.
    pub(crate) fn public_key_der(&self) -> &[u8] {
        &self.public_key
    }

    /// The DER of the extension with alternative names.
    pub(crate) fn alternative_names_der(&self) -> Option<&[u8]> {
        self.alternative_names.as_deref()
    }
}

/// String types that all programs read in the same way: UTF8String, NumericString, PrintableString, IA5String.
const PLAIN_TEXTS: [Tag; 4] = [Tag::Utf8String, Tag::NumericString, Tag::PrintableString, Tag::Ia5String];

/// The reason why programs may read the subject differently. It has several common names, or a string type that some
/// programs cannot read.
fn ambiguity(subject: &X509Name<'_>) -> Option<&'static str> {
    if subject.iter_common_name().nth(1).is_some() {
        return Some("the subject has more than one common name");
    }
    let is_plain = |attribute: &AttributeTypeAndValue<'_>| {
        PLAIN_TEXTS.contains(&attribute.attr_value().tag()) && attribute.as_str().is_ok()
    };
    (!subject.iter_attributes().all(is_plain))
        .then_some("the subject has a value that is not a UTF8String, PrintableString, IA5String or NumericString")
}

/// The extension with alternative names, if the request has one.
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
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    fn subject_of(parts: &[(DnType, DnValue)]) -> CertificateRequest {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, text) in parts {
            params.distinguished_name.push(kind.clone(), text.clone());
        }
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        CertificateRequest::of_pem(pem.as_bytes()).unwrap()
    }

    #[test]
    fn subjects_that_are_read_in_several_ways_are_ambiguous() {
        let (name, group) = (DnType::CommonName, DnType::OrganizationName);
        let masters = DnValue::BmpString("system:masters".try_into().unwrap());
        let hidden = subject_of(&[(name.clone(), "evil".into()), (group.clone(), masters)]);
        assert!(hidden.organizations().is_empty() && hidden.ambiguity().is_some_and(|why| why.contains("UTF8String")));
        let printable = DnValue::PrintableString("staff".try_into().unwrap());
        assert_eq!(subject_of(&[(name, "ann".into()), (group, printable)]).ambiguity(), None);
        assert_eq!(subject_of(&[]).ambiguity(), None);
    }

    #[test]
    fn a_request_has_its_audience() {
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
