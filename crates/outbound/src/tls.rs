//! Verifies server certificates against a bundle of authorities, or against the system's authorities without a bundle.
//!
//! `webpki` verifies certificates. Its errors are translated to the words of Go's `crypto/x509`, in Go's order of
//! checks: time, name, signature. One case that `webpki` refuses is accepted: a certificate that is itself in the
//! bundle and is also an authority, as a single openssl command creates it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::clock::rfc3339;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::dialer::Trust;
use crate::host_meter::CertificateFaults;

/// The most names of a certificate that an error lists.
const TOLD_NAMES: usize = 100;

/// The TLS settings for trusted peers.
///
/// Cost: without a bundle, reads the system's certificates from disk.
///
/// # Errors
/// The bundle has no certificate, or the client certificate can't be used.
pub(crate) fn client_config(trust: &Trust) -> Result<ClientConfig, String> {
    let Trust { ca_bundle, insecure_skip_tls_verify, faults, certificate } = trust;
    let insecure_skip_tls_verify = *insecure_skip_tls_verify;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = if insecure_skip_tls_verify {
        Verifier { insecure_skip_tls_verify, ..Verifier::new(Vec::new(), provider.clone(), faults.clone())? }
    } else {
        let trusted = if ca_bundle.is_empty() { system_roots() } else { certificates(ca_bundle)? };
        Verifier::new(trusted, provider.clone(), faults.clone())?
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some(certificate) = certificate else { return Ok(config.with_no_client_auth()) };
    match certificate.fault() {
        Some(fault) => Err(fault),
        None => Ok(config.with_client_cert_resolver(certificate.clone())),
    }
}

fn certificates(bundle: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Vec<_> = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect();
    if read.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
    }
    Ok(read)
}

fn system_roots() -> Vec<CertificateDer<'static>> {
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::warn!(%error, "some of the system's certificates can't be read");
    }
    loaded.certs
}

struct Verifier {
    /// `None` if no authorities are trusted.
    roots: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
    /// True to accept any certificate. The peer must still prove that it has the certificate's key.
    insecure_skip_tls_verify: bool,
    faults: Arc<CertificateFaults>,
}

impl Verifier {
    fn new(
        trusted: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
        faults: Arc<CertificateFaults>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let algorithms = provider.signature_verification_algorithms;
        let roots = if roots.is_empty() {
            None
        } else {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
            Some(verifier.build().map_err(|error| error.to_string())?)
        };
        Ok(Self { roots, trusted, algorithms, insecure_skip_tls_verify: false, faults })
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("trusted", &self.trusted.len()).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.insecure_skip_tls_verify {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self
            .roots
            .as_ref()
            .ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))
            .and_then(|roots| roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now));
        let Err(error) = verified else { return verified };
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let is_named = rustls::client::verify_server_name(&parsed, server_name).is_ok();
        let Ok((_, certificate)) = X509Certificate::from_der(end_entity) else { return Err(error) };
        if is_sha1(&certificate) {
            self.faults.insecure_sha1.increment();
        }
        if let Some(told) = time_fault(&certificate, now) {
            return Err(x509(told));
        }
        if !is_named {
            let why = name_fault(&certificate, server_name);
            if why == LEGACY_NAME {
                self.faults.missing_san.increment();
            }
            return Err(x509(why));
        }
        if self.trusted.iter().any(|trusted| trusted == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(x509(match error {
            // The wrong authority may have been tried, since another one may have the same name.
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                UNKNOWN.to_owned()
            }
            // A server certificate that is also an authority is trusted only if the bundle contains it.
            Error::InvalidCertificate(CertificateError::Other(_)) if certificate.is_ca() => UNKNOWN.to_owned(),
            Error::InvalidCertificate(other) => format!("x509: {other}"),
            other => return Err(other),
        }))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

const LEGACY_NAME: &str = "x509: certificate relies on legacy Common Name field, use SANs instead";
const UNKNOWN: &str = "x509: certificate signed by unknown authority";

#[derive(Debug)]
struct X509Fault(String);

impl fmt::Display for X509Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for X509Fault {}

fn x509(text: String) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(X509Fault(text)))))
}

/// Returns true for a certificate signed with SHA-1.
fn is_sha1(certificate: &X509Certificate<'_>) -> bool {
    /// `sha1WithRSAEncryption` and `ecdsa-with-SHA1`.
    const SHA1: [&str; 2] = ["1.2.840.113549.1.1.5", "1.2.840.10045.4.1"];
    SHA1.contains(&&*certificate.signature_algorithm.algorithm.to_id_string())
}

fn time_fault(certificate: &X509Certificate<'_>, now: UnixTime) -> Option<String> {
    const WHAT: &str = "x509: certificate has expired or is not yet valid: current time";
    let seconds = i64::try_from(now.as_secs()).ok()?;
    let text = |seconds: i64| {
        let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        rfc3339(std::time::UNIX_EPOCH + since)
    };
    let (from, to) = (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
    if seconds > to {
        return Some(format!("{WHAT} {} is after {}", text(seconds), text(to)));
    }
    (seconds < from).then(|| format!("{WHAT} {} is before {}", text(seconds), text(from)))
}

fn name_fault(certificate: &X509Certificate<'_>, wanted: &ServerName<'_>) -> String {
    let wanted_text = wanted.to_str();
    let stated = certificate.subject_alternative_name().ok().flatten();
    let common = certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
    if stated.is_none() && common == Some(&*wanted_text) {
        return LEGACY_NAME.to_owned();
    }
    let names = stated.iter().flat_map(|stated| &stated.value.general_names);
    let is_address = matches!(wanted, ServerName::IpAddress(_));
    let messages: Vec<String> = names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) if !is_address => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) if is_address => address(bytes).map(|address| address.to_string()),
            _ => None,
        })
        .take(TOLD_NAMES)
        .collect();
    match (messages.is_empty(), is_address) {
        (true, true) => {
            format!("x509: cannot validate certificate for {wanted_text} because it doesn't contain any IP SANs")
        }
        (true, false) => {
            format!("x509: certificate is not valid for any names, but wanted to match {wanted_text}")
        }
        (false, _) => format!("x509: certificate is valid for {}, not {wanted_text}", messages.join(", ")),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// The error text for a certificate of `s.n.svc`, valid in January 2020, when the client expects this name at this
    /// time; `None` if it is accepted.
    fn certificate_error(name: &'static str, seconds: u64) -> Option<String> {
        let mut stated = CertificateParams::new(vec!["s.n.svc".to_owned()]).unwrap();
        (stated.not_before, stated.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 2, 1));
        let signed = stated.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Verifier::new(vec![signed.der().clone()], provider, Arc::default()).unwrap();
        let (name, now) =
            (ServerName::try_from(name).unwrap(), UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        match verifier.verify_server_cert(signed.der(), &[], &name, &[], now) {
            Ok(_) => None,
            Err(Error::InvalidCertificate(CertificateError::Other(other))) => Some(other.0.to_string()),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_certificate_counts_in_its_time_and_for_its_names() {
        const IN_TIME: u64 = 1_579_000_000;
        let outside = "x509: certificate has expired or is not yet valid: current time";
        assert_eq!(certificate_error("s.n.svc", IN_TIME), None);
        let late = format!("{outside} 2020-09-13T12:26:40Z is after 2020-02-01T00:00:00Z");
        assert_eq!(certificate_error("s.n.svc", 1_600_000_000), Some(late.clone()));
        assert_eq!(certificate_error("t.n.svc", 1_600_000_000), Some(late), "the time is looked at first");
        let early = format!("{outside} 2001-09-09T01:46:40Z is before 2020-01-01T00:00:00Z");
        assert_eq!(certificate_error("s.n.svc", 1_000_000_000), Some(early));
        let other = "x509: certificate is valid for s.n.svc, not t.n.svc";
        assert_eq!(certificate_error("t.n.svc", IN_TIME), Some(other.to_owned()));
    }
}
