//! Reads `EgressSelectorConfiguration`, with upstream's fields and messages.
//!
//! The file and the certificates that it names are read once, as upstream does. Beyond upstream, a gRPC proxy may be
//! reached by TCP.

use std::fs;
use std::path::Path;

use http::Uri;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value};
use keelson_outbound::{ClientCertificate, EgressNetwork, EgressProtocol, EgressProxy, EgressTls, EgressTransport};

use crate::document::{CONFIG_GROUP, ConfigurationError, DocumentKind, Fields};

const KIND: DocumentKind = DocumentKind {
    what: "egress selector",
    kind: "EgressSelectorConfiguration",
    // Upstream declares the kind in the older group only.
    groups: &["apiserver.k8s.io", CONFIG_GROUP],
    versions: &["v1", "v1beta1", "v1alpha1"],
};
/// The path of a connection's fields in upstream's messages.
const PATH: &str = "service.connection";
const NETWORKS: [(&str, EgressNetwork); 3] =
    [("cluster", EgressNetwork::Cluster), ("controlplane", EgressNetwork::ControlPlane), ("etcd", EgressNetwork::Etcd)];

/// The proxies of networks. A network without an entry, or with the protocol `Direct`, has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressConfiguration {
    /// The proxy of each network.
    pub proxies: Vec<(EgressNetwork, EgressProxy)>,
}

/// An entry of the file.
struct Selection {
    name: String,
    protocol: String,
    transport: Option<Transport>,
}

#[derive(Default)]
struct Transport {
    tcp: Option<Tcp>,
    socket: Option<String>,
}

struct Tcp {
    url: String,
    tls: Option<TlsFiles>,
}

struct TlsFiles {
    ca: String,
    key: String,
    certificate: String,
}

impl EgressConfiguration {
    /// Reads a file and the certificates that it names.
    ///
    /// # Errors
    /// A file cannot be read, or a value is invalid.
    pub fn load(file: &Path) -> Result<Self, ConfigurationError> {
        let selections = KIND.load(file, &["egressSelections"], |fields| {
            let selections = fields.objects("egressSelections", &["name", "connection"]);
            selections.iter().map(Selection::read).collect::<Vec<_>>()
        })?;
        let mut faults: Vec<FieldError> = selections.iter().flat_map(Selection::faults).collect();
        faults.extend(name_faults(&selections));
        if !faults.is_empty() {
            return Err(ConfigurationError::Invalid { what: KIND.what, faults });
        }
        let proxies = selections.into_iter().filter_map(|selection| selection.proxy().transpose());
        Ok(Self { proxies: proxies.collect::<Result<_, String>>().map_err(ConfigurationError::Unusable)? })
    }
}

fn name_faults(selections: &[Selection]) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for (at, selection) in selections.iter().enumerate() {
        let name = selection.name.to_lowercase();
        if seen.contains(&name) {
            faults.push(FieldError::duplicate(format!("{PATH}[{at}]"), name));
            continue;
        }
        if !NETWORKS.iter().any(|(known, _)| *known == name) {
            faults.push(FieldError::not_supported(PATH, &*name, &NETWORKS.map(|(known, _)| known)));
        }
        seen.push(name);
    }
    faults
}

impl Selection {
    fn read(fields: &Fields<'_>) -> Self {
        let connection = fields.object("connection", &["proxyProtocol", "transport"]);
        Self {
            name: fields.text("name"),
            protocol: connection.text("proxyProtocol"),
            transport: connection.optional_object("transport", &["tcp", "uds"]).as_ref().map(Transport::read),
        }
    }

    fn faults(&self) -> Vec<FieldError> {
        match self.protocol.as_str() {
            "Direct" if self.transport.is_some() => {
                let why = "config must be absent for direct connect";
                vec![FieldError::invalid(format!("{PATH}.transport"), "direct", why)]
            }
            "Direct" => Vec::new(),
            protocol @ ("HTTPConnect" | "GRPC") => match &self.transport {
                Some(transport) => transport.faults(protocol),
                None => {
                    let why = format!("transport must be set for {protocol}");
                    vec![FieldError::required(format!("{PATH}.transport"), why)]
                }
            },
            other => {
                let known = ["Direct", "HTTPConnect", "GRPC"];
                vec![FieldError::not_supported(format!("{PATH}.protocol"), other, &known)]
            }
        }
    }

    /// The proxy of a valid entry; `None` for a direct connection.
    fn proxy(self) -> Result<Option<(EgressNetwork, EgressProxy)>, String> {
        let name = self.name.to_lowercase();
        let network = NETWORKS.iter().find(|(known, _)| *known == name).map(|(_, network)| *network);
        let protocol = match self.protocol.as_str() {
            "HTTPConnect" => EgressProtocol::HttpConnect,
            "GRPC" => EgressProtocol::Grpc,
            _ => return Ok(None),
        };
        let (Some(network), Some(transport)) = (network, self.transport) else { return Ok(None) };
        let transport = match transport {
            Transport { socket: Some(socket), .. } => EgressTransport::Unix(socket.into()),
            Transport { tcp: Some(tcp), .. } => tcp.transport()?,
            Transport { tcp: None, socket: None } => return Ok(None),
        };
        Ok(Some((network, EgressProxy { protocol, transport })))
    }
}

impl Transport {
    fn read(fields: &Fields<'_>) -> Self {
        let tcp = fields.optional_object("tcp", &["url", "tlsConfig"]);
        let uds = fields.optional_object("uds", &["udsName"]);
        Self { tcp: tcp.as_ref().map(Tcp::read), socket: uds.map(|uds| uds.text("udsName")) }
    }

    fn faults(&self, protocol: &str) -> Vec<FieldError> {
        match (&self.tcp, &self.socket) {
            (Some(tcp), Some(_)) if protocol == "HTTPConnect" => {
                let why = "TCP and UDS cannot both be set";
                vec![FieldError::invalid(format!("{PATH}.tcp"), tcp.value(), why)]
            }
            (None, None) if protocol == "HTTPConnect" => {
                vec![FieldError::required(format!("{PATH}.tcp"), "One of TCP or UDS must be set")]
            }
            (None, None) => vec![FieldError::required(format!("{PATH}.uds"), "UDS must be set with GRPC")],
            (_, Some(socket)) if socket.is_empty() => {
                vec![FieldError::invalid(format!("{PATH}.udsName"), "nil", "must be present for UDS connections")]
            }
            (_, Some(_)) => Vec::new(),
            (Some(tcp), None) => tcp.faults(),
        }
    }
}

impl Tcp {
    fn read(fields: &Fields<'_>) -> Self {
        let tls = fields.optional_object("tlsConfig", &["caBundle", "clientKey", "clientCert"]);
        let tls = tls.map(|tls| TlsFiles {
            ca: tls.text("caBundle"),
            key: tls.text("clientKey"),
            certificate: tls.text("clientCert"),
        });
        Self { url: fields.text("url"), tls }
    }

    fn value(&self) -> Value {
        Value::Object(Map::from_iter([("url".to_owned(), Value::from(self.url.as_str()))]))
    }

    fn faults(&self) -> Vec<FieldError> {
        let invalid = |field: &str, value: &str, why: &str| FieldError::invalid(format!("{PATH}.{field}"), value, why);
        let Self { url, tls } = self;
        let address = self.address();
        match (url.starts_with("http://"), url.starts_with("https://"), tls) {
            (true, _, Some(_)) => vec![invalid("tlsConfig", "nil", "config must not be present when using HTTP")],
            (_, true, None) => {
                let why = "TLSConfig must be present when using HTTPS";
                vec![FieldError::required(format!("{PATH}.tlsConfig"), why)]
            }
            (false, false, _) => {
                vec![invalid("url", url, "supported connection protocols are http:// and https://")]
            }
            _ if address.is_none() => vec![invalid("url", url, "it must name a host and a port")],
            (_, _, tls) => tls.as_ref().map(TlsFiles::faults).unwrap_or_default(),
        }
    }

    /// The host and the port.
    fn address(&self) -> Option<(String, u16)> {
        let url: Uri = self.url.parse().ok()?;
        let default = if url.scheme_str() == Some("https") { 443 } else { 80 };
        let host = url.host()?.trim_matches(['[', ']']);
        (!host.is_empty()).then(|| (host.to_owned(), url.port_u16().unwrap_or(default)))
    }

    fn transport(self) -> Result<EgressTransport, String> {
        let (host, port) = self.address().ok_or_else(|| format!("invalid proxy server url {:?}", self.url))?;
        let tls = self.tls.map(TlsFiles::settings).transpose()?;
        Ok(EgressTransport::Tcp { host, port, tls })
    }
}

impl TlsFiles {
    fn faults(&self) -> Vec<FieldError> {
        const CERTIFICATE: [&str; 3] =
            ["clientCert", "Using TLS requires clientCert", "TLS client cert does not exist"];
        const KEY: [&str; 3] = ["clientKey", "Using TLS requires requires clientKey", "TLS client key does not exist"];
        let at = |name: &str| format!("{PATH}.tlsConfig.{name}");
        let is_missing = |file: &str| !Path::new(file).exists();
        let mut faults = Vec::new();
        if !self.ca.is_empty() && is_missing(&self.ca) {
            faults.push(FieldError::invalid(at("caBundle"), &*self.ca, "TLS config ca bundle does not exist"));
        }
        for (file, [name, absent, missing]) in [(&self.certificate, CERTIFICATE), (&self.key, KEY)] {
            if file.is_empty() {
                faults.push(FieldError::invalid(at(name), "nil", absent));
            } else if is_missing(file) {
                faults.push(FieldError::invalid(at(name), &**file, missing));
            }
        }
        faults
    }

    fn settings(self) -> Result<EgressTls, String> {
        let Self { ca, key, certificate } = self;
        let pair = |why: &str| format!("failed to read key pair {certificate} & {key}, got {why}");
        let text = |file: &str| fs::read_to_string(file).map_err(|error| pair(&error.to_string()));
        let certificate = ClientCertificate { certificate_pem: text(&certificate)?, key_pem: text(&key)? };
        certificate.check().map_err(|why| pair(&why))?;
        let ca_bundle = match ca.as_str() {
            "" => Vec::new(),
            file => fs::read(file).map_err(|error| format!("failed to read cert file {file}, got {error}"))?,
        };
        // An empty file must not mean that the system's authorities are trusted.
        if !ca.is_empty() && !ca_bundle.windows(BEGIN.len()).any(|part| part == BEGIN) {
            return Err("failed to append CA cert to the cert pool".to_owned());
        }
        Ok(EgressTls { ca_bundle, certificate })
    }
}

/// The begin of a certificate in PEM.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n";

    fn load(text: &str) -> Result<EgressConfiguration, String> {
        let directory = tempfile::TempDir::new().unwrap();
        let file = directory.path().join("egress.yaml");
        fs::write(&file, text).unwrap();
        EgressConfiguration::load(&file).map_err(|error| {
            let text = error.to_string();
            text.replace(&file.display().to_string(), "FILE")
        })
    }

    fn selections(entries: &[&str]) -> Result<EgressConfiguration, String> {
        let entries: Vec<String> = entries.iter().map(|entry| format!("- {entry}\n")).collect();
        load(&format!("{HEAD}{}", entries.concat()))
    }

    #[test]
    fn proxies_of_all_forms_are_read() {
        let read = selections(&[
            "{name: ControlPlane, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://p:8131'}}}}",
            "{name: cluster, connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock}}}}",
            "{name: etcd, connection: {proxyProtocol: Direct}}",
        ]);
        let tcp = EgressTransport::Tcp { host: "p".to_owned(), port: 8131, tls: None };
        let expected = vec![
            (EgressNetwork::ControlPlane, EgressProxy { protocol: EgressProtocol::HttpConnect, transport: tcp }),
            (
                EgressNetwork::Cluster,
                EgressProxy { protocol: EgressProtocol::Grpc, transport: EgressTransport::Unix("/run/k.sock".into()) },
            ),
        ];
        assert_eq!(read.unwrap().proxies, expected);
        for version in ["apiserver.k8s.io/v1beta1", "apiserver.config.k8s.io/v1"] {
            let text = format!("apiVersion: {version}\nkind: EgressSelectorConfiguration\n");
            assert_eq!(load(&text), Ok(EgressConfiguration::default()), "{version}");
        }
    }

    #[test]
    fn documents_of_other_forms_are_refused() {
        let refused = |text: &str| load(text).unwrap_err();
        assert_eq!(refused(""), "failed to load egress selector configuration from file \"FILE\": empty config data");
        let other = refused("apiVersion: apiserver.k8s.io/v2\nkind: EgressSelectorConfiguration\n");
        assert!(
            other
                .ends_with("no kind \"EgressSelectorConfiguration\" is registered for version \"apiserver.k8s.io/v2\""),
            "{other}"
        );
        let unknown = refused(&format!("{HEAD}- {{name: etcd, conection: {{}}}}\n"));
        assert!(
            unknown.ends_with("strict decoding error: unknown field \"egressSelections[0].conection\""),
            "{unknown}"
        );
        let missing = EgressConfiguration::load("/nonexistent/e.yaml".as_ref()).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/e.yaml"), "{missing}");
    }

    #[test]
    fn invalid_entries_have_upstreams_messages() {
        let check = |entry: &str, expected: &str| {
            let fault = selections(&[entry]).unwrap_err();
            assert_eq!(fault, format!("invalid egress selector configuration: {expected}"), "{entry}");
        };
        let with = |connection: &str| format!("{{name: cluster, connection: {{{connection}}}}}");
        let transport =
            |protocol: &str, transport: &str| with(&format!("proxyProtocol: {protocol}, transport: {{{transport}}}"));
        check(
            &with("proxyProtocol: SOCKS"),
            "service.connection.protocol: Unsupported value: \"SOCKS\": supported values: \"Direct\", \"HTTPConnect\", \"GRPC\"",
        );
        check(
            "{name: master, connection: {proxyProtocol: Direct}}",
            "service.connection: Unsupported value: \"master\": supported values: \"cluster\", \"controlplane\", \"etcd\"",
        );
        check(
            &transport("Direct", ""),
            "service.connection.transport: Invalid value: \"direct\": config must be absent for direct connect",
        );
        for protocol in ["HTTPConnect", "GRPC"] {
            check(
                &with(&format!("proxyProtocol: {protocol}")),
                &format!("service.connection.transport: Required value: transport must be set for {protocol}"),
            );
            check(
                &transport(protocol, "uds: {udsName: ''}"),
                "service.connection.udsName: Invalid value: \"nil\": must be present for UDS connections",
            );
        }
        check(&transport("HTTPConnect", ""), "service.connection.tcp: Required value: One of TCP or UDS must be set");
        check(&transport("GRPC", ""), "service.connection.uds: Required value: UDS must be set with GRPC");
        let both = selections(&[&transport("HTTPConnect", "tcp: {url: 'http://p'}, uds: {udsName: /s}")]);
        assert!(both.unwrap_err().ends_with("TCP and UDS cannot both be set"));
        let tcp = |tcp: &str| transport("HTTPConnect", &format!("tcp: {{{tcp}}}"));
        check(
            &tcp("url: 'ftp://p'"),
            "service.connection.url: Invalid value: \"ftp://p\": supported connection protocols are http:// and https://",
        );
        check(
            &tcp("url: 'http://p', tlsConfig: {}"),
            "service.connection.tlsConfig: Invalid value: \"nil\": config must not be present when using HTTP",
        );
        check(
            &tcp("url: 'https://p'"),
            "service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS",
        );
        check(
            &tcp("url: 'https://p', tlsConfig: {caBundle: /no/ca, clientCert: /no/cert}"),
            "[service.connection.tlsConfig.caBundle: Invalid value: \"/no/ca\": TLS config ca bundle does not exist, \
             service.connection.tlsConfig.clientCert: Invalid value: \"/no/cert\": TLS client cert does not exist, \
             service.connection.tlsConfig.clientKey: Invalid value: \"nil\": Using TLS requires requires clientKey]",
        );
        let direct = "{name: cluster, connection: {proxyProtocol: Direct}}";
        let twice = selections(&[direct, "{name: Cluster, connection: {proxyProtocol: Direct}}"]).unwrap_err();
        assert!(twice.ends_with("service.connection[1]: Duplicate value: \"cluster\""), "{twice}");
    }
}
