//! The TLS settings of the listener.
//!
//! The handshake requests a client certificate, but clients need not send one. Each request checks its trust.

mod named;
mod profile;

use std::net::IpAddr;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;

use self::named::CertificateByName;
pub use self::profile::TlsProfile;
use crate::pki::{KeyAndCertificate, NamedPair};

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

/// The TLS settings of a listener.
#[derive(Clone, Debug)]
pub struct ServingConfig {
    /// The settings of all connections without others.
    pub all: ServerConfig,
    /// The settings of connections to some addresses of the host.
    pub by_address: Vec<(IpAddr, ServerConfig)>,
}

impl From<ServerConfig> for ServingConfig {
    fn from(all: ServerConfig) -> Self {
        Self { all, by_address: Vec::new() }
    }
}

/// Settings for a listener with these certificates, this profile and this verifier for client certificates.
pub(crate) fn serving(
    (pair, named): (&KeyAndCertificate, &[NamedPair]),
    profile: &TlsProfile,
    verifier: impl FnOnce(&Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError>,
) -> Result<ServingConfig, TlsError> {
    let provider = Arc::new(profile.provider());
    let default = Arc::new(key("the serving certificate", pair, &provider)?);
    let named: Result<Vec<_>, TlsError> = named
        .iter()
        .map(|named| Ok((named, Arc::new(key("a certificate of --tls-sni-cert-key", &named.pair, &provider)?))))
        .collect();
    let certificates = CertificateByName::new(default, &named?);
    let verifier = verifier(&provider)?;
    let builder =
        ServerConfig::builder_with_provider(provider).with_protocol_versions(profile.versions()).map_err(setup)?;
    let builder = builder.with_client_cert_verifier(verifier);
    let config = |certificates: CertificateByName| {
        let mut config = builder.clone().with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols = profile.protocols();
        config
    };
    let by_address = certificates.by_address().into_iter().map(|(address, own)| (address, config(own))).collect();
    Ok(ServingConfig { all: config(certificates), by_address })
}

/// A certificate with its key, which must match.
fn key(what: &'static str, pair: &KeyAndCertificate, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(what, &pair.certificate_pem)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())
        .map_err(|error| TlsError::Pem { what: "the serving key", reason: error.to_string() })?;
    CertifiedKey::from_der(chain, key, provider).map_err(setup)
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
