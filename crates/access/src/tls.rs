//! The TLS settings of the listener.
//!
//! A client certificate is asked for and not required: whether a request needs one is decided per request. A certificate
//! that is presented must be signed by the client CA, or the handshake fails.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

/// Why no TLS settings could be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A text that should hold a certificate or a key does not.
    #[error("{what} is not usable PEM: {reason}")]
    Pem {
        /// What the text should hold.
        what: &'static str,
        /// Why it does not.
        reason: String,
    },
    /// The certificate and the key do not belong together, or the like.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// Settings for a listener that serves HTTP/2 and HTTP/1.1.
///
/// `chain_pem` begins with the server's own certificate. Clients are verified against `client_ca_pem`.
///
/// # Errors
/// When a PEM text cannot be used, or certificate and key do not fit.
pub fn server_config(chain_pem: &str, key_pem: &str, client_ca_pem: &str) -> Result<ServerConfig, TlsError> {
    // The provider is named, not the process default: two linked providers without a default would fail at run time.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = certificates("the serving certificate", chain_pem)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
        .map_err(|error| TlsError::Pem { what: "the serving key", reason: error.to_string() })?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the client CA", client_ca_pem)? {
        roots.add(certificate).map_err(setup)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(setup)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(setup)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(setup)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
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
