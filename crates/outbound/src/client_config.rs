//! Destinations of calls: what configurations of webhooks say under `clientConfig`.
//!
//! They are read as they are stored. Whether they may be said is validation's to judge, when they are written.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_meta::json::Value;

/// The port of a service that states none.
const DEFAULT_SERVICE_PORT: u16 = 443;

/// Where a call goes, and whose certificate is believed there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// Who is called.
    pub destination: Destination,
    /// The authorities that may have signed the certificate (PEM); the system's where there is nothing.
    pub ca_bundle: Vec<u8>,
    /// Whether any certificate is believed.
    pub insecure_skip_tls_verify: bool,
}

/// Who is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Whoever is behind an `https` URL.
    Url(String),
    /// Whoever is behind a service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The port of the service.
        port: u16,
        /// The path there.
        path: String,
    },
    /// Whoever is at an address, which was found beforehand: an aggregated server, which is shown the certificate of a front proxy.
    Server {
        /// The host: a name or an address.
        host: String,
        /// The port.
        port: u16,
        /// The name that the certificate has to have.
        server_name: String,
    },
}

impl ClientConfig {
    /// Somebody whose certificate these authorities have signed (PEM), or the system's where there is nothing.
    pub fn new(destination: Destination, ca_bundle: Vec<u8>) -> Self {
        Self { destination, ca_bundle, insecure_skip_tls_verify: false }
    }

    /// Reads a `clientConfig`.
    ///
    /// # Errors
    /// When it says neither of the two, or what can't be read.
    pub fn of(config: &Value) -> Result<Self, String> {
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
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn a_client_config_names_a_url_or_a_service() {
        let of = |value: Value| ClientConfig::of(&value);
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
