//! Verifies the path from a client certificate to an authority by the rules of Go's `crypto/x509`, so that clients keep
//! the certificates that kube-apiserver accepts.
//!
//! Certificates of version 1 are accepted, and a certificate without extended key usages is valid for every use. Every
//! certificate of the path must be valid now, including the authority's. Signatures with SHA-1 or MD5 and unknown
//! critical extensions are refused. The search is limited, because clients choose the intermediate certificates.

mod constraints;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::version_1_of;

use std::time::{Duration, SystemTime};

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::asn1_rs::Oid;
use x509_parser::oid_registry::{
    OID_X509_EXT_BASIC_CONSTRAINTS, OID_X509_EXT_CERTIFICATE_POLICIES, OID_X509_EXT_CRL_DISTRIBUTION_POINTS,
    OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_KEY_USAGE, OID_X509_EXT_NAME_CONSTRAINTS,
    OID_X509_EXT_SUBJECT_ALT_NAME,
};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};

use crate::client_key::{PublicKey, SignatureFault, provider};
use crate::der::{self, BIT_STRING, SEQUENCE};

/// The largest number of certificates in a path, including the client's and the authority's.
const LONGEST_PATH: usize = 10;
/// The largest number of intermediate certificates that are read from a client.
const MOST_SENT: usize = 32;
/// The largest number of signatures that are verified for one client, as in Go.
const MOST_SIGNATURES: usize = 100;

/// The supported critical extensions (RFC 5280 section 4.2.1).
const UNDERSTOOD: [Oid<'static>; 7] = [
    OID_X509_EXT_BASIC_CONSTRAINTS,
    OID_X509_EXT_CERTIFICATE_POLICIES,
    OID_X509_EXT_CRL_DISTRIBUTION_POINTS,
    OID_X509_EXT_EXTENDED_KEY_USAGE,
    OID_X509_EXT_KEY_USAGE,
    OID_X509_EXT_NAME_CONSTRAINTS,
    OID_X509_EXT_SUBJECT_ALT_NAME,
];

/// The reason why no path leads to an authority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("it can't be read")]
    Unreadable,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("no accepted authority has signed it")]
    UnknownAuthority,
    #[error("it is not signed by the authority that it names")]
    Signature,
    #[error("its signature uses an unaccepted algorithm, such as SHA-1, or a key that is too short")]
    Algorithm,
    #[error("the certificate that has signed it may not sign others")]
    NotAnAuthority,
    #[error("too many certificates lie between it and the authority")]
    PathTooLong,
    #[error("it has an unknown critical extension: {0}")]
    CriticalExtension(String),
    #[error("its extended key usages do not include client authentication")]
    KeyUsage,
    #[error("the name {0} is not one that its authority may sign")]
    Name(String),
    #[error("more than {MOST_SIGNATURES} signatures would have to be verified")]
    TooManySignatures,
}

/// The authorities that may sign client certificates.
#[derive(Debug, Default)]
pub(crate) struct Authorities(Vec<Authority>);

#[derive(Debug)]
struct Authority {
    /// The subject's DER, the key for lookups.
    subject: Vec<u8>,
    certificate: CertificateDer<'static>,
}

impl Authorities {
    /// Creates the set of authorities. Certificates that cannot be parsed are omitted.
    pub(crate) fn new(certificates: &[CertificateDer<'static>]) -> Self {
        let read = |certificate: &CertificateDer<'static>| {
            let (_, read) = X509Certificate::from_der(certificate).ok()?;
            Some(Authority { subject: read.subject().as_raw().to_vec(), certificate: certificate.clone() })
        };
        Self(certificates.iter().filter_map(read).collect())
    }

    /// Verifies that a path leads from the client's certificate, the first in the chain, to an authority.
    ///
    /// # Errors
    /// The fault of the first path that was tried.
    pub(crate) fn verify(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<(), PathError> {
        let (own, sent) = chain.split_first().ok_or(PathError::Unreadable)?;
        let leaf = Certificate::read(own).ok_or(PathError::Unreadable)?;
        leaf.check_time(now)?;
        leaf.check_extensions()?;
        if !leaf.is_for_clients()? {
            return Err(PathError::KeyUsage);
        }
        if self.0.iter().any(|authority| authority.certificate == *own) {
            return Ok(());
        }
        let sent: Vec<_> = sent.iter().take(MOST_SENT).filter_map(|sent| Certificate::read(sent)).collect();
        let algorithms = provider().signature_verification_algorithms;
        let mut search = Search { authorities: self, sent: &sent, now, algorithms, signatures: 0 };
        search.extend(&mut vec![&leaf])
    }
}

/// Returns true if the key of `issuer` has signed `certificate`. Ignores validity and usages.
pub(crate) fn is_signed_by(certificate: &[u8], issuer: &[u8]) -> bool {
    let read = Certificate::read(certificate).zip(Certificate::read(issuer));
    let algorithms = provider().signature_verification_algorithms;
    read.is_some_and(|(certificate, issuer)| certificate.check_signature(&issuer, &algorithms).is_ok())
}

/// The search for a path, starting at the client's certificate.
struct Search<'a> {
    authorities: &'a Authorities,
    /// The intermediate certificates from the client.
    sent: &'a [Certificate<'a>],
    now: SystemTime,
    algorithms: WebPkiSupportedAlgorithms,
    signatures: usize,
}

impl<'a> Search<'a> {
    /// Extends a path from its last certificate to an authority.
    fn extend(&mut self, path: &mut Vec<&'a Certificate<'a>>) -> Result<(), PathError> {
        let Some(last) = path.last().copied() else { return Err(PathError::UnknownAuthority) };
        let issuer = last.read.issuer().as_raw();
        let mut fault = None;
        for authority in self.authorities.0.iter().filter(|authority| authority.subject == issuer) {
            let Some(authority) = Certificate::read(&authority.certificate) else { continue };
            match self.check_issuer(path, &authority, false) {
                Ok(()) => return Ok(()),
                Err(PathError::TooManySignatures) => return Err(PathError::TooManySignatures),
                Err(error) => drop(fault.get_or_insert(error)),
            }
        }
        if path.len() + 1 >= LONGEST_PATH {
            return Err(fault.unwrap_or(PathError::PathTooLong));
        }
        for between in self.sent.iter().filter(|between| between.read.subject().as_raw() == issuer) {
            if path.iter().any(|known| known.der == between.der) {
                continue;
            }
            let checked = self.check_issuer(path, between, true).and_then(|()| {
                path.push(between);
                let extended = self.extend(path);
                path.pop();
                extended
            });
            match checked {
                Ok(()) => return Ok(()),
                Err(PathError::TooManySignatures) => return Err(PathError::TooManySignatures),
                Err(error) => drop(fault.get_or_insert(error)),
            }
        }
        Err(fault.unwrap_or(PathError::UnknownAuthority))
    }

    /// Checks that a certificate has signed the last one of the path, and that it may sign certificates.
    fn check_issuer(
        &mut self,
        path: &[&Certificate<'_>],
        issuer: &Certificate<'_>,
        is_between: bool,
    ) -> Result<(), PathError> {
        let Some(last) = path.last() else { return Err(PathError::UnknownAuthority) };
        issuer.check_authority(is_between)?;
        self.signatures += 1;
        if self.signatures > MOST_SIGNATURES {
            return Err(PathError::TooManySignatures);
        }
        last.check_signature(issuer, &self.algorithms)?;
        issuer.check_time(self.now)?;
        issuer.check_extensions()?;
        if issuer.longest_path()?.is_some_and(|longest| path.len() - 1 > longest) {
            return Err(PathError::PathTooLong);
        }
        if !issuer.is_for_clients()? {
            return Err(PathError::KeyUsage);
        }
        path.iter().try_for_each(|certificate| constraints::check(issuer, certificate))
    }
}

/// A parsed certificate with the signed parts.
struct Certificate<'a> {
    der: &'a [u8],
    read: X509Certificate<'a>,
    key: PublicKey<'a>,
    /// The signed part.
    content: &'a [u8],
    /// The signature algorithm with its parameters.
    signed_with: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Certificate<'a> {
    fn read(der: &'a [u8]) -> Option<Self> {
        let (rest, read) = X509Certificate::from_der(der).ok()?;
        let (parts, _) = der::content(SEQUENCE, der)?;
        let (content, parts) = der::read(parts)?;
        let (signed_with, parts) = der::content(SEQUENCE, parts)?;
        let (signature, _) = der::content(BIT_STRING, parts)?;
        let is_whole = rest.is_empty() && read.tbs_certificate.signature == read.signature_algorithm;
        let (key, signature) = (PublicKey::from_certificate(der)?, signature.strip_prefix(&[0])?);
        is_whole.then_some(Self { der, read, key, content: content.raw, signed_with, signature })
    }

    fn check_time(&self, now: SystemTime) -> Result<(), PathError> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs().cast_signed();
        let validity = self.read.validity();
        match () {
            () if now < validity.not_before.timestamp() => Err(PathError::NotYetValid),
            () if now > validity.not_after.timestamp() => Err(PathError::Expired),
            () => Ok(()),
        }
    }

    /// Refuses unknown critical extensions, and extensions that are invalid or duplicate.
    fn check_extensions(&self) -> Result<(), PathError> {
        self.read.extensions_map().map_err(|_| PathError::Unreadable)?;
        for extension in self.read.extensions() {
            let is_understood = match extension.parsed_extension() {
                ParsedExtension::ParseError { .. } if UNDERSTOOD.contains(&extension.oid) => {
                    return Err(PathError::Unreadable);
                }
                // As in Go, names of other types are ignored. If there are only such names, the extension counts as
                // unhandled.
                ParsedExtension::SubjectAlternativeName(names) => names.general_names.iter().any(is_checked),
                ParsedExtension::NameConstraints(limits) => constraints::are_understood(limits),
                _ => UNDERSTOOD.contains(&extension.oid),
            };
            if extension.critical && !is_understood {
                return Err(PathError::CriticalExtension(extension.oid.to_id_string()));
            }
        }
        Ok(())
    }

    /// Checks that the certificate may sign others. A root of version 1 or 2 has no field for that.
    fn check_authority(&self, is_between: bool) -> Result<(), PathError> {
        let says_so = self.read.basic_constraints().map_err(|_| PathError::Unreadable)?;
        let is_authority = match says_so {
            Some(constraints) => constraints.value.ca,
            None => self.read.version() != X509Version::V3 && !is_between,
        };
        let usage = self.read.key_usage().map_err(|_| PathError::Unreadable)?;
        let may_sign = usage.is_none_or(|usage| usage.value.flags == 0 || usage.value.key_cert_sign());
        if is_authority && may_sign { Ok(()) } else { Err(PathError::NotAnAuthority) }
    }

    /// The limit of intermediate certificates between this one and the client's, if any.
    fn longest_path(&self) -> Result<Option<usize>, PathError> {
        let constraints = self.read.basic_constraints().map_err(|_| PathError::Unreadable)?;
        Ok(constraints.and_then(|constraints| constraints.value.path_len_constraint).map(|longest| longest as usize))
    }

    /// Returns true if the extended key usages permit client authentication.
    fn is_for_clients(&self) -> Result<bool, PathError> {
        let usage = self.read.extended_key_usage().map_err(|_| PathError::Unreadable)?;
        Ok(usage.is_none_or(|usage| usage.value.any || usage.value.client_auth))
    }

    fn check_signature(&self, issuer: &Self, algorithms: &WebPkiSupportedAlgorithms) -> Result<(), PathError> {
        if !issuer.key.is_supported(algorithms) {
            return Err(PathError::Algorithm);
        }
        issuer.key.verify(algorithms, self.signed_with, self.content, self.signature).map_err(|fault| match fault {
            SignatureFault::Algorithm => PathError::Algorithm,
            SignatureFault::Signature => PathError::Signature,
        })
    }

    /// The subject alternative names.
    fn names(&self) -> Result<&[GeneralName<'a>], PathError> {
        let names = self.read.subject_alternative_name().map_err(|_| PathError::Unreadable)?;
        Ok(names.map_or(&[][..], |names| &names.value.general_names))
    }
}

/// Returns true for types of names that name constraints apply to.
const fn is_checked(name: &GeneralName<'_>) -> bool {
    matches!(
        name,
        GeneralName::DNSName(_) | GeneralName::IPAddress(_) | GeneralName::RFC822Name(_) | GeneralName::URI(_)
    )
}
