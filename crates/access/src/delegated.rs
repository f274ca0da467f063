//! Authentication by client certificates. The trusted authorities may change while a connection is open.
//!
//! An aggregated server trusts the authorities that the main server publishes. The main server trusts those in files
//! that are reloaded. The handshake therefore accepts any certificate whose key the client has. The path is verified
//! after the handshake, and again after each change of the authorities. An untrusted certificate identifies no user but
//! is still a credential: a request without another credential is refused. Front proxies are checked before other
//! clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::authenticate::ClientIdentity;
use crate::certificate_path::{self, PathError};
use crate::client_certificate_log::ClientCertificateLog;
use crate::client_key::{PublicKey, provider};
use crate::front_proxy::AuthenticationInfo;
use crate::pki::{KeyAndCertificate, NamedPair};
use crate::tls::{self, ServingConfig, TlsError, TlsProfile};

/// Identifies a client by the certificates of the handshake.
pub trait ClientCertificates: std::fmt::Debug + Send + Sync {
    /// The generation of the authorities. A new generation may change identities.
    fn generation(&self) -> u64;

    /// The identity of a certificate chain, whose first certificate is the client's. `None` for an empty chain.
    fn identify(&self, chain: &[CertificateDer<'_>]) -> Option<ClientIdentity>;
}

/// The current authorities. Before the first publication no certificate is trusted.
#[derive(Debug, Default)]
pub struct PublishedAuthorities {
    generation: AtomicU64,
    current: ArcSwap<Authorities>,
    log: ClientCertificateLog,
}

#[derive(Debug, Default)]
struct Authorities {
    info: Option<AuthenticationInfo>,
    clients: certificate_path::Authorities,
    proxies: certificate_path::Authorities,
}

impl PublishedAuthorities {
    /// Replaces the authorities. Open connections verify their certificate again at the next request.
    pub fn publish(&self, info: AuthenticationInfo) {
        if self.current.load().info.as_ref() == Some(&info) {
            return;
        }
        let [clients, proxies] = [info.clients(), info.proxies()].map(certificate_path::Authorities::new);
        // ORDER: the authorities change before the generation. Otherwise a result of the old authorities could be
        // stored under the new generation.
        self.current.store(Arc::new(Authorities { info: Some(info), clients, proxies }));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// TLS settings for a listener with HTTP/2 and HTTP/1.1 that accepts any client certificate. The handshake lists
    /// the current authorities, so that browsers can choose a certificate.
    ///
    /// # Errors
    /// A PEM text is invalid, or the certificate and key do not match.
    pub fn server_config(&self, serving: &KeyAndCertificate) -> Result<ServerConfig, TlsError> {
        let config = self.serving_config((serving, &[]), &TlsProfile::default())?;
        Ok(config.all)
    }

    /// As [`server_config`](Self::server_config), with further certificates by name, and the operator's settings.
    ///
    /// # Errors
    /// A PEM text is invalid, or a certificate and its key do not match.
    pub fn serving_config(
        &self,
        pairs: (&KeyAndCertificate, &[NamedPair]),
        profile: &TlsProfile,
    ) -> Result<ServingConfig, TlsError> {
        let info = self.current.load().info.clone();
        let known = info.iter().flat_map(|info| info.clients().iter().chain(info.proxies()));
        let hints = roots(known).subjects();
        tls::serving(pairs, profile, |provider| Ok(Arc::new(AnyCertificate { provider: provider.clone(), hints })))
    }
}

impl ClientCertificates for PublishedAuthorities {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn identify(&self, chain: &[CertificateDer<'_>]) -> Option<ClientIdentity> {
        let own = chain.first()?;
        let now = SystemTime::now();
        let identity = match ClientIdentity::from_certificate(own) {
            Ok(identity) => identity,
            Err(error) => {
                self.log.refused(own, &error);
                return Some(ClientIdentity::nobody());
            }
        };
        // ORDER: this comes before all checks of trust. The handshake also accepts keys whose signatures it cannot
        // verify.
        if !PublicKey::from_certificate(own)
            .is_some_and(|key| key.is_supported(&provider().signature_verification_algorithms))
        {
            self.log.refused(own, &"its key has an unaccepted algorithm or length");
            return Some(ClientIdentity::nobody());
        }
        let current = self.current.load();
        let headers = current.info.as_ref().map(AuthenticationInfo::headers).filter(|headers| {
            let allowed = &headers.allowed_names;
            let is_allowed = allowed.is_empty() || allowed.iter().any(|name| identity.is_named(name));
            is_allowed && current.proxies.verify(chain, now).is_ok()
        });
        let verified: Result<(), PathError> = current.clients.verify(chain, now);
        match &verified {
            Ok(()) => self.log.accepted(&identity, now),
            Err(_) if headers.is_some() => {}
            Err(why) => self.log.refused(own, why),
        }
        let identity = if verified.is_ok() { identity } else { identity.without_user() };
        Some(match headers {
            Some(headers) => identity.asking_for_others(Arc::new(headers.clone())),
            None => identity,
        })
    }
}

fn roots<'a>(authorities: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.into_iter().cloned());
    roots
}

/// Accepts any certificate whose key the client has; the path is verified later. Also accepts keys whose signatures
/// cannot be verified, so that the client gets a response. [`PublishedAuthorities::identify`] then refuses them.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
}

impl AnyCertificate {
    /// Verifies the handshake signature, if the type of key is supported.
    fn proved(
        &self,
        certificate: &CertificateDer<'_>,
        verify: impl FnOnce(&PublicKey<'_>, &WebPkiSupportedAlgorithms) -> Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let key = PublicKey::from_certificate(certificate).ok_or(CertificateError::BadEncoding)?;
        if key.is_supported(algorithms) { verify(&key, algorithms) } else { Ok(HandshakeSignatureValid::assertion()) }
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.proved(certificate, |key, algorithms| key.verify_tls12(algorithms, message, signed))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.proved(certificate, |key, algorithms| key.verify_tls13(algorithms, message, signed))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::clock::SystemClock;
    use keelson_meta::random::SystemRandom;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::pki::{Pki, PkiOptions, ephemeral};

    fn server() -> Pki {
        ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom).unwrap()
    }

    fn chain(pair: &KeyAndCertificate) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pair.certificate_pem.as_bytes()).map(Result::unwrap).collect()
    }

    #[test]
    fn published_authorities_authenticate_clients() {
        let (main, other) = (server(), server());
        let authorities = PublishedAuthorities::default();
        let (admin, proxy) = (chain(&main.admin), chain(&main.front_proxy.client));
        let nobody = |chain: &[CertificateDer<'_>]| {
            let identity = authorities.identify(chain).unwrap();
            identity.user_at(SystemTime::now()).is_none() && !identity.is_front_proxy()
        };
        assert!(nobody(&admin), "nothing is published yet");
        assert_eq!(authorities.identify(&[]), None, "a client without a certificate has no identity");
        authorities.publish(AuthenticationInfo::new(&main).unwrap());
        let first = authorities.generation();
        let identity = authorities.identify(&admin).unwrap();
        assert_eq!(identity.user_at(SystemTime::now()).unwrap().name, "keelson-admin");
        assert!(!identity.is_front_proxy());
        let identity = authorities.identify(&proxy).unwrap();
        assert_eq!(identity.asks_for_at(SystemTime::now()), Some(&main.front_proxy.headers));
        assert_eq!(identity.user_at(SystemTime::now()), None, "by itself it is no user");
        assert!(nobody(&chain(&main.serving)), "a certificate of a server is none of a client");
        assert!(nobody(&chain(&other.admin)) && nobody(&chain(&other.front_proxy.client)));
        authorities.publish(AuthenticationInfo::new(&main).unwrap());
        assert_eq!(authorities.generation(), first, "nothing has changed");
        let both =
            AuthenticationInfo::new(&main).unwrap().with(&AuthenticationInfo::new(&other).unwrap(), SystemTime::now());
        authorities.publish(both);
        assert!(authorities.generation() > first);
        assert!(authorities.identify(&chain(&other.front_proxy.client)).unwrap().is_front_proxy());
    }

    /// Returns true if a client with this certificate and key completes the handshake.
    fn shakes_hands(
        main: &Pki,
        certificate: Vec<u8>,
        key_der: &[u8],
        version: &'static rustls::SupportedProtocolVersion,
    ) -> bool {
        use rustls::sign::{CertifiedKey, SingleCertAndKey};
        let config = PublishedAuthorities::default().server_config(&main.serving).unwrap();
        let mut server = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let trusted = chain(&KeyAndCertificate { certificate_pem: main.ca_pem.clone(), key_pem: String::new() });
        let builder =
            rustls::ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[version]).unwrap();
        let builder = builder.with_root_certificates(roots(&trusted));
        let key = rustls::pki_types::PrivateKeyDer::try_from(key_der).unwrap();
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
        let own = CertifiedKey::new(vec![CertificateDer::from(certificate)], key);
        let config = builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        let mut client = rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).unwrap();
            let mut sent = sent.as_slice();
            while !sent.is_empty() {
                server.read_tls(&mut sent).unwrap();
                if server.process_new_packets().is_err() {
                    return false;
                }
            }
            let mut answered = Vec::new();
            server.write_tls(&mut answered).unwrap();
            let mut answered = answered.as_slice();
            while !answered.is_empty() {
                client.read_tls(&mut answered).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        true
    }

    #[test]
    fn the_handshake_accepts_a_certificate_only_with_its_own_key() {
        let main = server();
        let key = |algorithm| rcgen::KeyPair::generate_for(algorithm).unwrap();
        let kinds = [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ECDSA_P521_SHA512,
            &rcgen::PKCS_ED25519,
        ];
        for kind in kinds {
            let (own, other) = (key(kind), key(kind));
            let certificate = crate::certificate_path::version_1_of(&own);
            for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
                assert!(
                    shakes_hands(&main, certificate.clone(), &own.serialize_der(), version),
                    "{kind:?} {version:?}"
                );
                assert!(
                    !shakes_hands(&main, certificate.clone(), &other.serialize_der(), version),
                    "{kind:?} {version:?}"
                );
            }
        }
    }

    #[test]
    fn certificates_with_unsupported_keys_identify_no_user() {
        let pem = include_bytes!("pki/testdata/rsa-1024.crt");
        let certificate = CertificateDer::from_pem_slice(pem).unwrap();
        let mut main = server();
        // With the certificate itself as an authority, only the unsupported key is left as a reason to refuse it.
        main.client_ca_pem = String::from_utf8(pem.to_vec()).unwrap();
        let authorities = PublishedAuthorities::default();
        authorities.publish(AuthenticationInfo::new(&main).unwrap());
        assert_eq!(authorities.identify(&[certificate]), Some(ClientIdentity::nobody()));
    }

    #[test]
    fn a_front_proxy_needs_an_allowed_name() {
        let mut main = server();
        main.front_proxy.headers.allowed_names = vec!["somebody-else".to_owned()];
        let authorities = PublishedAuthorities::default();
        authorities.publish(AuthenticationInfo::new(&main).unwrap());
        let identity = authorities.identify(&chain(&main.front_proxy.client)).unwrap();
        assert!(!identity.is_front_proxy() && identity.user_at(SystemTime::now()).is_none());
    }
}
