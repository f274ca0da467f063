//! The TLS settings of the listener.
//!
//! The handshake requests a client certificate, but clients need not send one. Each request checks its trust.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;

use crate::pki::KeyAndCertificate;

/// The reason why TLS can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A text does not contain the expected certificate or key.
    #[error("{what} is not usable PEM: {reason}")]
    Pem {
        /// The expected content of the text.
        what: &'static str,
        /// The fault.
        reason: String,
    },
    /// TLS cannot be set up, for example because the certificate and the key do not match.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// Settings for a listener with this certificate and this verifier for client certificates.
pub(crate) fn serving(
    pair: &KeyAndCertificate,
    verifier: impl FnOnce(&Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError>,
) -> Result<ServerConfig, TlsError> {
    // The provider is named. With two linked providers and no default, the process default would fail at run time.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = certificates("the serving certificate", &pair.certificate_pem)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())
        .map_err(|error| TlsError::Pem { what: "the serving key", reason: error.to_string() })?;
    let verifier = verifier(&provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(setup)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(setup)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Parses a text of authorities. It must have at least one, and all must be valid.
pub(crate) fn authorities(what: &'static str, pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, pem)? {
        roots.add(certificate).map_err(|error| TlsError::Pem { what, reason: error.to_string() })?;
    }
    Ok(roots)
}

/// Parses a text of certificates. It must have at least one.
pub(crate) fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let certificates = parsed.map_err(|error| TlsError::Pem { what, reason: error.to_string() })?;
    if certificates.is_empty() {
        return Err(TlsError::Pem { what, reason: "it holds no certificate".to_owned() });
    }
    Ok(certificates)
}

fn setup(error: impl std::fmt::Display) -> TlsError {
    TlsError::Setup(error.to_string())
}
