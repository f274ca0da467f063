//! Signs client certificates for approved requests with the server's own authority.
//!
//! Other code decides which requests are approved. A certificate never outlives the authority.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_meta::Random;
use rcgen::{KeyPair, PublicKeyData as _};
use time::OffsetDateTime;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificate_request::CertificateRequest;
use crate::der::{self, BIT_STRING, INTEGER, OBJECT_ID, OCTET_STRING, SEQUENCE, element, extension};
use crate::pki::PkiError;
use crate::pki::key_text::key_pair;

/// The longest and default lifetime.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The shortest lifetime that can be requested.
const SHORTEST: Duration = Duration::from_secs(600);
/// The tolerance for servers whose clock is slow.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);
/// The length of a line of PEM in characters (RFC 7468 section 2).
const PEM_LINE: usize = 64;
/// The length of the hash in a key identifier, in bytes (RFC 7093, section 2, method 1).
const KEY_ID_BYTES: usize = 20;

/// Object identifiers of extensions (RFC 5280 section 4.2.1).
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
/// Bits of key usage, the most significant first.
const DIGITAL_SIGNATURE: u8 = 0x80;
const KEY_ENCIPHERMENT: u8 = 0x20;

/// An authority that signs client certificates.
pub struct ClientSigner {
    key: KeyPair,
    /// The DER of the authority's subject.
    name: Vec<u8>,
    key_id: Option<Vec<u8>>,
    not_after: OffsetDateTime,
}

/// The key usages in addition to client authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUsages {
    /// Digital signatures.
    pub digital_signature: bool,
    /// Key encipherment.
    pub key_encipherment: bool,
}

impl ClientSigner {
    /// Creates a signer from an authority: the first certificate in the text, and its key.
    ///
    /// # Errors
    /// The certificate or the key cannot be parsed.
    pub fn new(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let unreadable = || PkiError::Issue(rcgen::Error::CouldNotParseCertificate);
        let (_, pem) = parse_x509_pem(certificate_pem.as_bytes()).map_err(|_| unreadable())?;
        let (_, certificate) = X509Certificate::from_der(&pem.contents).map_err(|_| unreadable())?;
        let key_id = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        Ok(Self {
            key: key_pair(key_pem)?,
            name: certificate.subject().as_raw().to_vec(),
            key_id,
            not_after: certificate.validity().not_after.to_datetime(),
        })
    }

    /// Signs a certificate with the subject, alternative names and key of a request. Returns PEM. The lifetime is at
    /// most `lifetime`, and at most a year.
    ///
    /// # Errors
    /// The authority's key can't sign.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        usages: KeyUsages,
        lifetime: Option<Duration>,
        now: SystemTime,
        random: &dyn Random,
    ) -> Result<String, PkiError> {
        let lifetime = lifetime.unwrap_or(LONGEST).clamp(SHORTEST, LONGEST);
        let (from, until) = (OffsetDateTime::from(now - CLOCK_SKEW), OffsetDateTime::from(now + lifetime));
        let validity = element(SEQUENCE, &[&der::time(from), &der::time(until.min(self.not_after))]);
        let mut serial = [0u8; 16];
        random.fill(&mut serial);
        // RFC 5280 section 4.1.2.2: the serial number is positive, so the top bit is clear, and not zero, so one bit is
        // set.
        serial[0] = (serial[0] & 0x7f) | 0x40;
        let extensions = self.extensions(request, usages);
        let extensions = element(SEQUENCE, &extensions.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let content = element(
            SEQUENCE,
            &[
                // Version 3.
                &element(0xa0, &[&element(INTEGER, &[&[2]])]),
                &element(INTEGER, &[&serial]),
                &der::algorithm(&self.key)?,
                &self.name,
                &validity,
                request.subject_der(),
                request.public_key_der(),
                &element(0xa3, &[&extensions]),
            ],
        );
        Ok(pem("CERTIFICATE", &der::signed(&content, &self.key)?))
    }

    fn extensions(&self, request: &CertificateRequest, usages: KeyUsages) -> Vec<Vec<u8>> {
        let bits = if usages.digital_signature { DIGITAL_SIGNATURE } else { 0 }
            | if usages.key_encipherment { KEY_ENCIPHERMENT } else { 0 };
        let mut extensions = Vec::new();
        if bits != 0 {
            // DER drops trailing zeros.
            let unused = bits.trailing_zeros() as u8;
            extensions.push(extension(KEY_USAGE, true, &element(BIT_STRING, &[&[unused, bits]])));
        }
        let client = element(SEQUENCE, &[&element(OBJECT_ID, &[CLIENT_AUTH])]);
        extensions.push(extension(EXTENDED_KEY_USAGE, false, &client));
        extensions.push(extension(BASIC_CONSTRAINTS, true, &element(SEQUENCE, &[])));
        let key_hash = digest::digest(&digest::SHA256, request.public_key_der());
        let own_id = &key_hash.as_ref()[..KEY_ID_BYTES];
        extensions.push(extension(SUBJECT_KEY_ID, false, &element(OCTET_STRING, &[own_id])));
        if let Some(id) = &self.key_id {
            extensions.push(extension(AUTHORITY_KEY_ID, false, &element(SEQUENCE, &[&element(0x80, &[id])])));
        }
        extensions.extend(request.alternative_names_der().map(<[u8]>::to_vec));
        extensions
    }
}

/// Omits the key, which must never be logged.
impl fmt::Debug for ClientSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSigner").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// Creates a new key and a certificate request for a user in these groups, both in PEM.
///
/// # Errors
/// The key cannot be generated.
pub fn client_request(user: &str, groups: &[String]) -> Result<(String, String), PkiError> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let content = element(
        SEQUENCE,
        &[
            &element(INTEGER, &[&[0]]),
            &der::name(user, groups),
            &key.subject_public_key_info(),
            // No attributes.
            &element(0xa0, &[]),
        ],
    );
    Ok((pem("CERTIFICATE REQUEST", &der::signed(&content, &key)?), key.serialize_pem()))
}

fn pem(label: &str, der: &[u8]) -> String {
    let coded = BASE64.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for start in (0..coded.len()).step_by(PEM_LINE) {
        text.push_str(&coded[start..coded.len().min(start + PEM_LINE)]);
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use keelson_meta::clock::ManualClock;
    use keelson_meta::random::SystemRandom;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, UnixTime};
    use rustls::server::WebPkiClientVerifier;

    use super::*;
    use crate::authenticate::ClientIdentity;
    use crate::pki::{Pki, PkiOptions, ephemeral};

    const START: Duration = Duration::from_secs(1_800_000_000);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + START
    }

    fn pki() -> Pki {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let _ = provider.install_default();
        ephemeral(&PkiOptions::default(), &ManualClock::new(now()), &SystemRandom).unwrap()
    }

    fn signed(pki: &Pki, groups: &[&str], lifetime: Option<Duration>) -> CertificateDer<'static> {
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let (request, _) = client_request("ann", &groups).unwrap();
        let request = CertificateRequest::of_pem(request.as_bytes()).unwrap();
        assert!(request.is_signed_by_its_key());
        let usages = KeyUsages { digital_signature: true, key_encipherment: false };
        let pem = pki.client_signer().unwrap().sign(&request, usages, lifetime, now(), &SystemRandom).unwrap();
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_signed_certificate_identifies_its_user_until_it_expires() {
        let pki = pki();
        let certificate = signed(&pki, &["devs", "leads"], Some(DAY));
        let identity = ClientIdentity::from_certificate(&certificate).unwrap();
        let user = identity.user_at(now()).unwrap();
        assert_eq!((&*user.name, &user.groups[..2]), ("ann", &["devs".to_owned(), "leads".to_owned()][..]));
        assert!(identity.user_at(now() + DAY + Duration::from_secs(1)).is_none());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pki.ca_pem.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder(roots.into()).build().unwrap();
        let at = |seconds: u64| UnixTime::since_unix_epoch(START + Duration::from_secs(seconds));
        verifier.verify_client_cert(&certificate, &[], at(0)).unwrap();
        assert!(verifier.verify_client_cert(&certificate, &[], at(2 * DAY.as_secs())).is_err());
    }

    #[test]
    fn lifetimes_have_bounds() {
        let pki = pki();
        let holds_for = |asked: Option<Duration>| {
            let certificate = signed(&pki, &[], asked);
            let (_, read) = X509Certificate::from_der(&certificate).unwrap();
            let seconds = read.validity().not_after.timestamp() - i64::try_from(START.as_secs()).unwrap();
            Duration::from_secs(seconds.unsigned_abs())
        };
        assert_eq!(holds_for(None), LONGEST);
        assert_eq!(holds_for(Some(DAY * 4000)), LONGEST);
        assert_eq!(holds_for(Some(Duration::from_secs(1))), SHORTEST);
        assert_eq!(holds_for(Some(DAY)), DAY);
    }
}
