//! The serving certificate of a connection, by the server name in its handshake (SNI).
//!
//! The rules are kube-apiserver's. A whole name counts before a wildcard for its first label. Names of a flag count
//! before names of a certificate, and earlier flags before later ones. A connection without a server name gets the
//! certificate that a flag assigns to its address, if there is one, and otherwise the default.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::pki::NamedPair;

/// The certificates of a listener.
#[derive(Clone, Debug)]
pub(super) struct CertificateByName {
    default: Arc<CertifiedKey>,
    by_name: Arc<HashMap<String, Arc<CertifiedKey>>>,
}

impl CertificateByName {
    /// The certificates by name. `named` has the operator's pairs in the order of the flags, each with its key.
    pub(super) fn new(default: Arc<CertifiedKey>, named: &[(&NamedPair, Arc<CertifiedKey>)]) -> Self {
        let mut by_name = HashMap::new();
        let explicit = named.iter().flat_map(|(pair, key)| pair.names.iter().map(move |name| (name.clone(), key)));
        let unnamed = named.iter().filter(|(pair, _)| pair.names.is_empty());
        let own = unnamed.flat_map(|(pair, key)| pair.pair.dns_names().into_iter().map(move |name| (name, key)));
        for (name, key) in explicit.chain(own) {
            by_name.entry(name.to_ascii_lowercase()).or_insert_with(|| key.clone());
        }
        Self { default, by_name: Arc::new(by_name) }
    }

    /// The certificates for connections to each address that a flag names.
    pub(super) fn by_address(&self) -> Vec<(IpAddr, Self)> {
        let address = |(name, key): (&String, &Arc<CertifiedKey>)| {
            Some((name.parse().ok()?, Self { default: key.clone(), by_name: self.by_name.clone() }))
        };
        self.by_name.iter().filter_map(address).collect()
    }

    fn named(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        let wildcard = || name.split_once('.').map_or_else(|| "*".to_owned(), |(_, rest)| format!("*.{rest}"));
        self.by_name.get(&name).or_else(|| self.by_name.get(&wildcard()))
    }
}

impl ResolvesServerCert for CertificateByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.named(name));
        Some(named.unwrap_or(&self.default).clone())
    }
}
