//! Authentication of clients by certificates, against authorities that may change while connections last.
//!
//! Those of an aggregated server are what the main server publishes; those of the main server stand in files that are read again. So the
//! handshake takes any certificate whose key the client has, and who that makes of it is judged afterwards, and anew when the authorities
//! have changed. A certificate that nobody signed who is believed proves nothing, and is a credential all the same: a request with it and
//! no better one is refused. The front proxy is known before any other client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};

use crate::authenticate::ClientIdentity;
use crate::front_proxy::AuthenticationInfo;
use crate::pki::KeyAndCertificate;
use crate::tls::{self, TlsError};

/// Tells who a client is by the certificates that it presented in the handshake.
pub trait ClientCertificates: std::fmt::Debug + Send + Sync {
    /// Which state of the authorities is current: who is known may change with it.
    fn generation(&self) -> u64;

    /// Who presented this chain, its own certificate first; `None` for a client that presented none.
    fn identify(&self, chain: &[CertificateDer<'_>]) -> Option<ClientIdentity>;
}

/// The authorities that are believed now. As long as none were published, nobody is.
#[derive(Debug, Default)]
pub struct PublishedAuthorities {
    generation: AtomicU64,
    current: ArcSwap<Authorities>,
}

#[derive(Debug, Default)]
struct Authorities {
    info: Option<AuthenticationInfo>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    proxies: Option<Arc<dyn ClientCertVerifier>>,
}

impl PublishedAuthorities {
    /// Takes in what is published now. Connections that are open are judged by it at their next request.
    pub fn publish(&self, info: AuthenticationInfo) {
        if self.current.load().info.as_ref() == Some(&info) {
            return;
        }
        let (clients, proxies) = (verifier(info.clients()), verifier(info.proxies()));
        // ORDER: the authorities before the number, so that nobody keeps a judgement of the old ones under the new number.
        self.current.store(Arc::new(Authorities { info: Some(info), clients, proxies }));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Settings for a listener that serves HTTP/2 and HTTP/1.1, and takes any certificate of a client. Clients are told of the
    /// authorities of now, by which browsers choose the certificates that they offer.
    ///
    /// # Errors
    /// When a PEM text cannot be used, or certificate and key do not fit.
    pub fn server_config(&self, serving: &KeyAndCertificate) -> Result<ServerConfig, TlsError> {
        let info = self.current.load().info.clone();
        let known = info.iter().flat_map(|info| info.clients().iter().chain(info.proxies()));
        let hints = roots(known).subjects();
        tls::serving(serving, |provider| Ok(Arc::new(AnyCertificate { provider: provider.clone(), hints })))
    }
}

impl ClientCertificates for PublishedAuthorities {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn identify(&self, chain: &[CertificateDer<'_>]) -> Option<ClientIdentity> {
        let (own, more) = chain.split_first()?;
        let current = self.current.load();
        let identity = match ClientIdentity::from_certificate(own) {
            Ok(identity) => identity,
            Err(error) => {
                tracing::debug!(%error, "a client certificate names nobody");
                return Some(ClientIdentity::nobody());
            }
        };
        let is_signed_by = |authorities: &Option<Arc<dyn ClientCertVerifier>>| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map(UnixTime::since_unix_epoch);
            authorities.as_ref().zip(now.ok()).is_some_and(|(authorities, now)| {
                let verified = authorities.verify_client_cert(own, more, now);
                verified.inspect_err(|error| tracing::debug!(%error, "a client certificate is not believed")).is_ok()
            })
        };
        let headers = current.info.as_ref().map(AuthenticationInfo::headers).filter(|headers| {
            let allowed = &headers.allowed_names;
            let is_allowed = allowed.is_empty() || allowed.iter().any(|name| identity.is_named(name));
            is_allowed && is_signed_by(&current.proxies)
        });
        let identity = if is_signed_by(&current.clients) { identity } else { identity.without_user() };
        Some(match headers {
            Some(headers) => identity.asking_for_others(Arc::new(headers.clone())),
            None => identity,
        })
    }
}

/// What verifies certificates of these authorities; `None` where there are none.
fn verifier(authorities: &[CertificateDer<'static>]) -> Option<Arc<dyn ClientCertVerifier>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authorities)), provider).build().ok()
}

fn roots<'a>(authorities: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.into_iter().cloned());
    roots
}

/// Takes any certificate whose key the client proves to have: by whom it is signed is asked later.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
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
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
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
    fn a_client_is_who_the_published_authorities_say_it_is() {
        let (main, other) = (server(), server());
        let authorities = PublishedAuthorities::default();
        let (admin, proxy) = (chain(&main.admin), chain(&main.front_proxy.client));
        let nobody = |chain: &[CertificateDer<'_>]| {
            let identity = authorities.identify(chain).unwrap();
            identity.user_at(SystemTime::now()).is_none() && !identity.is_front_proxy()
        };
        assert!(nobody(&admin), "nothing is published yet");
        assert_eq!(authorities.identify(&[]), None, "who presents none is no known nobody");
        authorities.publish(AuthenticationInfo::of(&main).unwrap());
        let first = authorities.generation();
        let identity = authorities.identify(&admin).unwrap();
        assert_eq!(identity.user_at(SystemTime::now()).unwrap().name, "keelson-admin");
        assert!(!identity.is_front_proxy());
        let identity = authorities.identify(&proxy).unwrap();
        assert_eq!(identity.asks_for_at(SystemTime::now()), Some(&main.front_proxy.headers));
        assert_eq!(identity.user_at(SystemTime::now()), None, "by itself it is no user");
        assert!(nobody(&chain(&main.serving)), "a certificate of a server is none of a client");
        assert!(nobody(&chain(&other.admin)) && nobody(&chain(&other.front_proxy.client)));
        authorities.publish(AuthenticationInfo::of(&main).unwrap());
        assert_eq!(authorities.generation(), first, "nothing has changed");
        let both =
            AuthenticationInfo::of(&main).unwrap().with(&AuthenticationInfo::of(&other).unwrap(), SystemTime::now());
        authorities.publish(both);
        assert!(authorities.generation() > first);
        assert!(authorities.identify(&chain(&other.front_proxy.client)).unwrap().is_front_proxy());
    }

    #[test]
    fn a_front_proxy_of_another_name_is_nobody() {
        let mut main = server();
        main.front_proxy.headers.allowed_names = vec!["somebody-else".to_owned()];
        let authorities = PublishedAuthorities::default();
        authorities.publish(AuthenticationInfo::of(&main).unwrap());
        let identity = authorities.identify(&chain(&main.front_proxy.client)).unwrap();
        assert!(!identity.is_front_proxy() && identity.user_at(SystemTime::now()).is_none());
    }
}
