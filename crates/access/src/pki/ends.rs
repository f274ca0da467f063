//! The expiry of a server's certificates, for logs and metrics.
//!
//! This file renews no certificates and reads no objects.

use std::time::{Duration, SystemTime};

use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{Pki, PkiOptions, issue};

/// The expiry of one certificate, or the earliest of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateEnd {
    /// The name of the certificate: a fixed short name, or the object that contains it.
    pub name: String,
    /// The expiry.
    pub not_after: SystemTime,
    /// True if the server renews the certificate.
    pub is_renewed: bool,
}

impl Pki {
    /// The expiry of all certificates of the server and its operator.
    pub fn ends(&self, options: &PkiOptions) -> Vec<CertificateEnd> {
        let of = |name: &str, pem: &str, is_renewed| {
            let not_after = issue::validity(pem)?.1;
            Some(CertificateEnd { name: name.to_owned(), not_after, is_renewed })
        };
        let first = |name: &str, pem: &str| {
            let not_after = first_end(pem)?;
            Some(CertificateEnd { name: name.to_owned(), not_after, is_renewed: false })
        };
        let others = self.client_ca_pem.strip_prefix(&self.ca_pem).unwrap_or_default();
        [
            // The first certificate signs. The others belong to a rotation.
            of("ca", &self.ca_pem, false),
            of("serving", &self.serving.certificate_pem, options.serving.is_none()),
            of("admin", &self.admin.certificate_pem, true),
            of("front-proxy-client", &self.front_proxy.client.certificate_pem, options.front_proxy.client.is_none()),
            first("front-proxy-ca", &self.front_proxy.ca_pem),
            first("client-ca", others),
        ]
        .into_iter()
        .chain(self.named.iter().map(|named| of("serving-sni", &named.pair.certificate_pem, false)))
        .flatten()
        .collect()
    }
}

/// The earliest expiry of the certificates in a text; `None` if the text has no valid certificate.
pub fn first_end(pem: &str) -> Option<SystemTime> {
    let end = |block: Pem| {
        let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
        Some(issue::instant(certificate.validity().not_after.timestamp()))
    };
    Pem::iter_from_buffer(pem.as_bytes()).filter_map(Result::ok).filter_map(end).min()
}

/// The latest start of validity of the certificates in a text; `None` if the text has no valid certificate.
pub fn last_begin(pem: &str) -> Option<SystemTime> {
    let begin = |block: Pem| {
        let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
        Some(issue::instant(certificate.validity().not_before.timestamp()))
    };
    Pem::iter_from_buffer(pem.as_bytes()).filter_map(Result::ok).filter_map(begin).max()
}

/// The certificates that expire within this time, sorted by expiry.
pub fn ending_within(ends: &[CertificateEnd], time: Duration, now: SystemTime) -> Vec<CertificateEnd> {
    let mut found: Vec<_> = ends.iter().filter(|end| end.not_after < now + time).cloned().collect();
    found.sort_by_key(|end| end.not_after);
    found
}

#[cfg(test)]
mod tests {
    use keelson_meta::Clock as _;
    use keelson_meta::clock::ManualClock;
    use keelson_meta::random::SystemRandom;

    use super::*;
    use crate::pki::ephemeral;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn each_certificate_has_its_end_and_those_that_end_soon_are_found() {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let pki = ephemeral(&PkiOptions::default(), &clock, &SystemRandom).unwrap();
        let ends = pki.ends(&PkiOptions::default());
        let found = |within: Duration| -> Vec<String> {
            ending_within(&ends, within, clock.now()).into_iter().map(|end| end.name).collect()
        };
        assert!(found(DAY * 365).is_empty());
        assert_eq!(found(DAY * 366), ["serving", "admin", "front-proxy-client"]);
        assert_eq!(found(DAY * 3651), ["serving", "admin", "front-proxy-client", "ca", "front-proxy-ca"]);
        let not_renewed: Vec<_> = ends.iter().filter(|end| !end.is_renewed).map(|end| end.name.as_str()).collect();
        assert_eq!(not_renewed, ["ca", "front-proxy-ca"]);
    }
}
