//! The service of an aggregated API server, and the authentication of that server.
//!
//! A connection goes to an endpoint of the service, but the certificate must name the service. Header fields with the
//! names of upstream's front proxy carry the user to the server.

use std::fmt;

use http::HeaderName;

use crate::client_config::{ClientConfig, Destination};
use crate::egress::EgressNetwork;
use crate::outbound::Outbound;
use crate::rest_client::RestClient;

/// The header field with the user name.
pub const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
/// The header field with the user's UID.
pub const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
/// The header field with a group of the user.
pub const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
/// The prefix of header fields with extra values of the user.
pub const REMOTE_EXTRA_PREFIX: &str = "x-remote-extra-";

/// The header field of a request that a peer has forwarded. With the value `true`, it keeps this server from forwarding
/// the request again.
pub const PEER_PROXIED: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");

/// A service, and the certificates that its servers may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteService {
    /// The service's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port of the service.
    pub port: u16,
    /// The authorities of the server's certificate (PEM); empty for the system's.
    pub ca_bundle: Vec<u8>,
    /// True to accept any certificate.
    pub insecure_skip_tls_verify: bool,
}

impl RemoteService {
    /// The name in the servers' certificates.
    pub fn server_name(&self) -> String {
        service_host(&self.namespace, &self.name)
    }

    /// The client configuration for an address of the service.
    pub fn client_config(&self, host: &str, port: u16) -> ClientConfig {
        let destination = Destination::Server { host: host.to_owned(), port, server_name: self.server_name() };
        ClientConfig {
            insecure_skip_tls_verify: self.insecure_skip_tls_verify,
            ..ClientConfig::new(destination, self.ca_bundle.clone())
        }
    }

    /// Clients for the addresses of the service: at least one, in the order to try.
    ///
    /// # Errors
    /// The service has no usable address, in upstream's words.
    pub fn clients(&self, outbound: &Outbound) -> Result<Vec<RestClient>, String> {
        let addresses = outbound.locate(&self.namespace, &self.name, self.port)?;
        let client = |(host, port): &(String, u16)| {
            outbound.client_in(&self.client_config(host, *port), Some(EgressNetwork::Cluster))
        };
        let clients: Result<Vec<RestClient>, String> = addresses.iter().map(client).collect();
        clients.and_then(|clients| if clients.is_empty() { Err("there is no address".to_owned()) } else { Ok(clients) })
    }

    /// A client for the first address.
    ///
    /// # Errors
    /// Errors of [`clients`](Self::clients).
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
