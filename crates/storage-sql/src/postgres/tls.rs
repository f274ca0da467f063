//! TLS to PostgreSQL: rustls under tokio-postgres, with libpq's modes of verification.
//!
//! The code names the crypto provider instead of using the process default. If two providers are linked without a
//! default, rustls would fail at run time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use super::error::PostgresError;

/// The verification of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsMode {
    /// No TLS.
    Disable,
    /// TLS if the server supports it. The certificate is not verified.
    Prefer,
    /// TLS. The certificate is not verified.
    Require,
    /// One of the roots must have signed the certificate.
    VerifyCa,
    /// In addition, the certificate must be for the name of the host.
    VerifyFull,
}

impl TlsMode {
    pub(crate) const fn negotiation(self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => SslMode::Require,
        }
    }
}

/// The settings of all connections of a store.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) mode: TlsMode,
    config: Arc<ClientConfig>,
}

/// The name and the content of a file.
type Named = (String, Vec<u8>);

impl Tls {
    pub(crate) fn new(
        mode: TlsMode,
        roots: Option<Named>,
        identity: Option<(Named, Named)>,
    ) -> Result<Self, PostgresError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let unusable = |file: &str| {
            let file = file.to_owned();
            move |error: &dyn std::fmt::Display| PostgresError::Certificate { file, reason: error.to_string() }
        };
        let checked = match (mode, roots) {
            (TlsMode::VerifyCa | TlsMode::VerifyFull, Some((file, pem))) => {
                let mut store = RootCertStore::empty();
                for root in CertificateDer::pem_slice_iter(&pem) {
                    store.add(root.map_err(|e| unusable(&file)(&e))?).map_err(|e| unusable(&file)(&e))?;
                }
                if store.is_empty() {
                    return Err(unusable(&file)(&"it holds no certificate"));
                }
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone());
                Some(verifier.build().map_err(|e| unusable(&file)(&e))?)
            }
            _ => None,
        };
        let verifier = Arc::new(Verifier { checked, by_name: mode == TlsMode::VerifyFull, provider: provider.clone() });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable("TLS")(&e))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(((file, chain), (key_file, key))) => {
                let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>();
                let chain = chain.map_err(|e| unusable(&file)(&e))?;
                let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| unusable(&key_file)(&e))?;
                builder.with_client_auth_cert(chain, key).map_err(|e| unusable(&file)(&e))?
            }
        };
        Ok(Self { mode, config: Arc::new(config) })
    }
}

/// Verifies the server's certificate as the mode requires.
#[derive(Debug)]
struct Verifier {
    /// The verifier. None accepts every certificate, which gives encryption without authentication.
    checked: Option<Arc<WebPkiServerVerifier>>,
    by_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(checked) = &self.checked else { return Ok(ServerCertVerified::assertion()) };
        match checked.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is verified last, so the chain is valid.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.by_name => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = ToHost;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<ToHost, Self::Error> {
        Ok(ToHost { name: ServerName::try_from(host.to_owned())?, config: self.config.clone() })
    }
}

/// A TLS handshake that has not started.
pub(crate) struct ToHost {
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl TlsConnect<Socket> for ToHost {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let connector = tokio_rustls::TlsConnector::from(self.config);
            connector.connect(self.name, socket).await.map(|stream| Encrypted(Box::new(stream)))
        })
    }
}

/// A connection with TLS.
pub(crate) struct Encrypted(Box<tokio_rustls::client::TlsStream<Socket>>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
