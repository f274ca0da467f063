//! Creates certificates and keys. All are ECDSA on P-256, which is fast to generate and which every client accepts. An
//! operator's authority may have another type of key.
//!
//! This file also has lifetimes and renewal times. The names in certificates are in `names`.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use keelson_meta::Random;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
};
use rustls::pki_types::DnsName;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::PkiError;
use super::key_text::key_pair;
use crate::certificate_path::is_signed_by;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The lifetime of an authority.
const CA_LIFETIME: Duration = DAY.saturating_mul(3650);
/// The lifetime of other certificates. They are renewed within [`RENEW_BEFORE`] of their expiry.
const LEAF_LIFETIME: Duration = DAY.saturating_mul(365);
/// The remaining lifetime from which a certificate is renewed.
pub(super) const RENEW_BEFORE: Duration = DAY.saturating_mul(30);
/// The tolerance for clients whose clock is slow.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyAndCertificate {
    /// The certificate, optionally followed by its chain.
    pub certificate_pem: String,
    /// The private key.
    pub key_pem: String,
}

/// Omits the key, which must never be logged.
impl std::fmt::Debug for KeyAndCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyAndCertificate").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

/// The purpose of a certificate.
pub(super) enum Purpose<'a> {
    /// A server with these names and addresses.
    Server {
        /// The names and addresses.
        names: &'a [String],
    },
    /// A client in these groups.
    Client {
        /// The groups.
        groups: &'a [&'a str],
    },
}

/// Creates a self-signed certificate authority.
pub(super) fn authority(
    common_name: &str,
    now: SystemTime,
    random: &dyn Random,
) -> Result<KeyAndCertificate, PkiError> {
    let key = key()?;
    let certificate_pem = self_signed(&key, common_name, now, random)?;
    Ok(KeyAndCertificate { certificate_pem, key_pem: key.serialize_pem() })
}

/// Creates a self-signed certificate authority with an existing key.
pub(super) fn authority_of(
    key_pem: String,
    common_name: &str,
    now: SystemTime,
    random: &dyn Random,
) -> Result<KeyAndCertificate, PkiError> {
    let certificate_pem = self_signed(&KeyPair::from_pem(&key_pem)?, common_name, now, random)?;
    Ok(KeyAndCertificate { certificate_pem, key_pem })
}

fn self_signed(key: &KeyPair, common_name: &str, now: SystemTime, random: &dyn Random) -> Result<String, PkiError> {
    let mut params = params(common_name, now, CA_LIFETIME, random);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    Ok(params.self_signed(key)?.pem())
}

/// Creates a certificate signed by `ca`.
pub(super) fn leaf(
    ca: &KeyAndCertificate,
    common_name: &str,
    purpose: &Purpose<'_>,
    now: SystemTime,
    random: &dyn Random,
) -> Result<KeyAndCertificate, PkiError> {
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate_pem, key_pair(&ca.key_pem)?)?;
    let key = key()?;
    let mut params = params(common_name, now, LEAF_LIFETIME, random);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    match purpose {
        Purpose::Server { names } => {
            params.subject_alt_names = names.iter().map(|name| alternative_name(name)).collect::<Result<_, _>>()?;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
        Purpose::Client { groups } => {
            for group in *groups {
                params.distinguished_name.push(DnType::OrganizationName, *group);
            }
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
    }
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(KeyAndCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
}

/// A new key pair without a certificate: private and public key in PEM.
pub(super) fn signing_key() -> Result<(String, String), PkiError> {
    let key = key()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// The public key of a private key.
pub(super) fn public_key(key_pem: &str) -> Result<String, PkiError> {
    Ok(key_pair(key_pem)?.public_key_pem())
}

/// Returns true if a key belongs to a certificate.
pub(super) fn is_pair(pair: &KeyAndCertificate) -> bool {
    let Ok(key) = key_pair(&pair.key_pem) else { return false };
    let Ok((_, pem)) = parse_x509_pem(pair.certificate_pem.as_bytes()) else { return false };
    X509Certificate::from_der(&pem.contents)
        .is_ok_and(|(_, certificate)| certificate.public_key().raw == key.subject_public_key_info())
}

/// Returns true if two texts start with the same certificate.
pub(super) fn is_same_certificate(one: &str, other: &str) -> bool {
    let first = |pem: &str| parse_x509_pem(pem.as_bytes()).ok().map(|(_, pem)| pem.contents);
    first(one).is_some_and(|one| first(other) == Some(one))
}

/// Returns true if a certificate is not due for renewal, matches its key, was signed by this authority, and has exactly
/// these names.
pub(super) fn is_current(pair: &KeyAndCertificate, ca_pem: &str, names: &[String], now: SystemTime) -> bool {
    let Ok(key) = key_pair(&pair.key_pem) else { return false };
    let (leaf, ca) = (parse_x509_pem(pair.certificate_pem.as_bytes()), parse_x509_pem(ca_pem.as_bytes()));
    let (Ok((_, leaf_pem)), Ok((_, ca))) = (leaf, ca) else { return false };
    let Ok((_, leaf)) = X509Certificate::from_der(&leaf_pem.contents) else { return false };
    let renew_from = seconds(now + RENEW_BEFORE);
    let known = known_names(&leaf);
    leaf.validity().not_after.timestamp() > renew_from
        && leaf.public_key().raw == key.subject_public_key_info()
        && is_signed_by(&leaf_pem.contents, &ca.contents)
        && names.len() == known.len()
        && names.iter().all(|name| known.contains(name))
}

/// The validity period of the first certificate in a text; `None` if it is invalid.
pub(super) fn validity(pem: &str) -> Option<(SystemTime, SystemTime)> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    let validity = certificate.validity();
    Some((instant(validity.not_before.timestamp()), instant(validity.not_after.timestamp())))
}

/// The time of a timestamp in seconds since 1970.
pub(super) fn instant(unix_seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(unix_seconds.unsigned_abs());
    if unix_seconds < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}

/// A unique name for a new authority, so that clients can tell authorities apart in errors.
pub(super) fn authority_name(prefix: &str, random: &dyn Random) -> String {
    format!("{prefix}-{:08x}", random.u64() >> 32)
}

fn known_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => None,
        },
        _ => None,
    };
    names.value.general_names.iter().filter_map(text).collect()
}

impl KeyAndCertificate {
    /// The names for which clients that state a server name get this certificate: its DNS names, and its common name if
    /// that is one. Addresses are left out, since clients state none.
    pub(crate) fn dns_names(&self) -> Vec<String> {
        let Ok((_, block)) = parse_x509_pem(self.certificate_pem.as_bytes()) else { return Vec::new() };
        let Ok((_, certificate)) = X509Certificate::from_der(&block.contents) else { return Vec::new() };
        let common = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let is_name = |name: &&str| {
            name.parse::<IpAddr>().is_err()
                && (*name == "*" || DnsName::try_from(name.strip_prefix("*.").unwrap_or(name)).is_ok())
        };
        let common = common.filter(is_name).map(str::to_owned);
        let names = known_names(&certificate).into_iter().filter(|name| name.parse::<IpAddr>().is_err());
        common.into_iter().chain(names).collect()
    }
}

fn seconds(time: SystemTime) -> i64 {
    time::OffsetDateTime::from(time).unix_timestamp()
}

fn key() -> Result<KeyPair, PkiError> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

fn params(common_name: &str, now: SystemTime, lifetime: Duration, random: &dyn Random) -> CertificateParams {
    let mut serial = [0u8; 16];
    random.fill(&mut serial);
    // RFC 5280 section 4.1.2.2: the serial number is positive, so the top bit is clear, and not zero, so one bit is
    // set.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + lifetime).into();
    params
}

fn alternative_name(name: &str) -> Result<SanType, PkiError> {
    Ok(match name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into()?),
    })
}
