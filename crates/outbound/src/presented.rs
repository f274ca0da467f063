//! The client certificate that the server presents to its peers.
//!
//! The certificate can be replaced at run time. Later connections use the new one.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// A client certificate with its key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientCertificate {
    /// The certificate with its chain (PEM).
    pub certificate_pem: String,
    /// Its key (PEM).
    pub key_pem: String,
}

/// Keys must never be logged.
impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl ClientCertificate {
    /// Checks that a connection can use the certificate.
    ///
    /// # Errors
    /// The chain has no certificate, or the key does not match.
    pub fn check(&self) -> Result<(), String> {
        self.certified().map(drop)
    }

    fn certified(&self) -> Result<Arc<CertifiedKey>, String> {
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|error| error.to_string())?;
        let chain = CertificateDer::pem_slice_iter(self.certificate_pem.as_bytes()).filter_map(Result::ok).collect();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| error.to_string())?;
        Ok(Arc::new(certified))
    }
}

/// The current certificate, or the reason why it can't be used.
pub(crate) struct ClientCertificateState(RwLock<Result<Arc<CertifiedKey>, String>>);

impl ClientCertificateState {
    pub(crate) fn new(certificate: &ClientCertificate) -> Arc<Self> {
        Arc::new(Self(RwLock::new(certificate.certified())))
    }

    /// Replaces the certificate.
    pub(crate) fn change(&self, certificate: &ClientCertificate) {
        *self.0.write() = certificate.certified();
    }

    /// The reason why the certificate can't be used; `None` if it can.
    pub(crate) fn fault(&self) -> Option<String> {
        self.0.read().as_ref().err().cloned()
    }
}

impl ResolvesClientCert for ClientCertificateState {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.read().as_ref().ok().cloned()
    }

    fn has_certs(&self) -> bool {
        self.0.read().is_ok()
    }
}

impl fmt::Debug for ClientCertificateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> ClientCertificate {
        let made = rcgen::generate_simple_self_signed(vec!["proxy".to_owned()]).unwrap();
        ClientCertificate { certificate_pem: made.cert.pem(), key_pem: made.signing_key.serialize_pem() }
    }

    #[test]
    fn the_presented_client_certificate_can_be_replaced() {
        let (first, second) = (certificate(), certificate());
        let presented = ClientCertificateState::new(&first);
        let shown = || presented.resolve(&[], &[]).map(|certified| certified.cert.clone());
        let begin = shown().unwrap();
        presented.change(&second);
        assert_ne!(shown().unwrap(), begin);
        assert_eq!(presented.fault(), None);
        presented.change(&ClientCertificate { key_pem: first.key_pem.clone(), ..second });
        assert!(presented.fault().is_some() && shown().is_none(), "a key of another certificate presents nothing");
        presented.change(&first);
        assert_eq!(shown().unwrap(), begin);
    }
}
