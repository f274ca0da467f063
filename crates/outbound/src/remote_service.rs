//! The Service behind which an aggregated API server stands, and how that server is authenticated.
//!
//! A connection goes to an endpoint of the service, but the certificate there has to name the service itself. What such a server is
//! told of who asks stands in header fields, which are named here as upstream's front proxy names them.

use std::fmt;

use http::HeaderName;

use crate::client_config::{ClientConfig, Destination};
use crate::outbound::Outbound;
use crate::rest_client::RestClient;

/// The header field with the name of the user who asks.
pub const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
/// The one with that user's UID.
pub const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
/// The one with a group of that user.
pub const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
/// How the names of the fields begin that have what else is known of the user.
pub const REMOTE_EXTRA_PREFIX: &str = "x-remote-extra-";

/// The one, with the value `true`, of requests that a server passes on to another on its store, which keeps that from doing the same.
pub const PEER_PROXIED: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");

/// A service, and how the servers behind it are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteService {
    /// The service's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port of the service.
    pub port: u16,
    /// The authorities that may have signed the server's certificate (PEM); the system's where there is nothing.
    pub ca_bundle: Vec<u8>,
    /// Whether any certificate is believed.
    pub insecure_skip_tls_verify: bool,
}

impl RemoteService {
    /// The name that the servers' certificates have to have.
    pub fn server_name(&self) -> String {
        service_host(&self.namespace, &self.name)
    }

    /// Whoever is at an address of the service.
    pub fn client_config(&self, host: &str, port: u16) -> ClientConfig {
        let destination = Destination::Server { host: host.to_owned(), port, server_name: self.server_name() };
        ClientConfig {
            insecure_skip_tls_verify: self.insecure_skip_tls_verify,
            ..ClientConfig::new(destination, self.ca_bundle.clone())
        }
    }

    /// Whoever is at each address of the service: one at least, in the order in which they are to be tried.
    ///
    /// # Errors
    /// Why the service leads nowhere, as upstream says it.
    pub fn clients(&self, outbound: &Outbound) -> Result<Vec<RestClient>, String> {
        let addresses = outbound.locate(&self.namespace, &self.name, self.port)?;
        let clients: Result<Vec<RestClient>, String> =
            addresses.iter().map(|(host, port)| outbound.client(&self.client_config(host, *port))).collect();
        clients.and_then(|clients| if clients.is_empty() { Err("there is no address".to_owned()) } else { Ok(clients) })
    }

    /// Whoever is to be tried first.
    ///
    /// # Errors
    /// Those of [`peers`](Self::peers).
    pub fn client(&self, outbound: &Outbound) -> Result<RestClient, String> {
        self.clients(outbound)?.into_iter().next().ok_or_else(|| "there is no address".to_owned())
    }
}

impl fmt::Display for RemoteService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.name, self.port)
    }
}

/// The host name of a service within its cluster.
pub(crate) fn service_host(namespace: &str, name: &str) -> String {
    format!("{name}.{namespace}.svc")
}
