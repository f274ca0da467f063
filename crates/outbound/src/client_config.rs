//! Destinations of calls: the `clientConfig` of webhook configurations.
//!
//! Configurations are read from stored objects, which were validated when they were written.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;
use keelson_meta::json::Value;

use crate::outbound::clean_path;
use crate::remote_service::service_host;

/// The port of a service reference that names none.
const DEFAULT_SERVICE_PORT: u16 = 443;

/// The destination of a call, and the authorities trusted for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// The destination.
    pub destination: Destination,
    /// The authorities of its certificate (PEM); empty for the system's.
    pub ca_bundle: Vec<u8>,
    /// True to accept any certificate.
    pub insecure_skip_tls_verify: bool,
}

/// The destination of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An `https` URL.
    Url(String),
    /// A service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The port of the service.
        port: u16,
        /// The path of the URL.
        path: String,
    },
    /// A known address of an aggregated server, to which this server presents the front proxy certificate.
    Server {
        /// The host: a name or an address.
        host: String,
        /// The port.
        port: u16,
        /// The name in the certificate.
        server_name: String,
    },
}

impl ClientConfig {
    /// Creates the configuration for a destination. `ca_bundle` has the trusted authorities (PEM); empty means the
    /// system's.
    pub fn new(destination: Destination, ca_bundle: Vec<u8>) -> Self {
        Self { destination, ca_bundle, insecure_skip_tls_verify: false }
    }

    /// Reads a `clientConfig`.
    ///
    /// # Errors
    /// The configuration has neither URL nor service, or is invalid.
    pub fn from_value(config: &Value) -> Result<Self, String> {
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let ca_bundle = match config["caBundle"].as_str() {
            Some(bundle) => BASE64.decode(bundle).map_err(|_| "the caBundle is not base64".to_owned())?,
            None => Vec::new(),
        };
        let service = &config["service"];
        let destination = match config["url"].as_str() {
            _ if service.is_object() => {
                let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
                Destination::Service {
                    namespace: text(service, "namespace"),
                    name: text(service, "name"),
                    port: port.filter(|port| *port > 0).unwrap_or(DEFAULT_SERVICE_PORT),
                    path: text(service, "path"),
                }
            }
            Some(url) => Destination::Url(url.to_owned()),
            None => return Err("webhook configuration must have either service or URL".to_owned()),
        };
        Ok(Self::new(destination, ca_bundle))
    }

    /// Returns host and port; for a service, the name in its certificate.
    ///
    /// # Errors
    /// The URL is not of the form `https://host[/path]`.
    pub fn host_and_port(&self) -> Result<(String, u16), String> {
        Ok(match &self.destination {
            Destination::Url(url) => CallUrl::parse(url).map(|url| (url.host, url.port))?,
            Destination::Service { namespace, name, port, .. } => (service_host(namespace, name), *port),
            Destination::Server { server_name, port, .. } => (server_name.clone(), *port),
        })
    }
}

/// The parts of an `https` URL.
pub(crate) struct CallUrl {
    /// Host and port as in the URL.
    pub(crate) authority: String,
    /// The host, an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

impl CallUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
        let (Some("https"), Some(authority), Some(host)) = (uri.scheme_str(), uri.authority(), uri.host()) else {
            return Err(format!("Unparsable URL: {url:?} is not of the form https://host[/path]"));
        };
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(443),
            path: clean_path(uri.path()),
        })
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn the_host_comes_from_the_url_or_the_service() {
        let check = |config: Value, expected: (&str, u16)| {
            let config = ClientConfig::from_value(&config).unwrap();
            let (host, port) = config.host_and_port().unwrap();
            assert_eq!((host.as_str(), port), expected, "{config:?}");
        };
        check(json!({"url": "https://example.com/a"}), ("example.com", 443));
        check(json!({"url": "https://example.com:8443"}), ("example.com", 8443));
        check(json!({"url": "https://trusted.example.com@other.example.com/"}), ("other.example.com", 443));
        check(json!({"url": "https://[::1]:9443/a"}), ("::1", 9443));
        check(json!({"service": {"namespace": "n", "name": "s"}}), ("s.n.svc", 443));
        assert!(ClientConfig::from_value(&json!({"url": "http://example.com"})).unwrap().host_and_port().is_err());
    }

    #[test]
    fn a_client_config_names_a_url_or_a_service() {
        let of = |value: Value| ClientConfig::from_value(&value);
        let url = of(json!({"url": "https://example.com/a", "caBundle": "YQ=="})).unwrap();
        assert_eq!(url.destination, Destination::Url("https://example.com/a".to_owned()));
        assert_eq!(url.ca_bundle, b"a");
        let service = |port| Destination::Service {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            port,
            path: "/p".to_owned(),
        };
        let stated = json!({"service": {"namespace": "n", "name": "s", "path": "/p"}});
        assert_eq!(of(stated).unwrap().destination, service(443));
        let stated = json!({"service": {"namespace": "n", "name": "s", "path": "/p", "port": 8443}});
        assert_eq!(of(stated).unwrap().destination, service(8443));
        assert!(of(json!({})).is_err() && of(json!({"url": "https://a", "caBundle": "*"})).is_err());
    }
}
