//! The addresses of pods, services and nodes: those of kubelets, and the targets of proxied requests.
//!
//! Users with rights to the status of a pod or a node choose its addresses. As upstream, proxied requests go to global
//! unicast addresses only, so that no user reaches the loopback address of this server or the metadata service of a
//! cloud.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use keelson_cache::{Entry, IndexTerm, Snapshot};
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};

use super::reading::Reading;
use crate::registry::Registry;
use crate::target::Target;

/// The label of an EndpointSlice with the name of its service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The label with the host name of a node.
const HOST_LABEL: &str = "kubernetes.io/hostname";
/// The feature of nodes whose kubelets support the websocket protocols of clients.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";
/// The largest number of endpoints of a service among which one is chosen.
const ENDPOINTS: usize = 1000;
/// The largest number of slices of a service that are read.
const SLICES: usize = 1000;
/// The schemes that a proxied name may begin with.
const SCHEMES: [&str; 3] = ["", "http", "https"];

/// The settings that select the addresses of kubelets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddresses {
    /// The types of addresses, the preferred one first.
    pub preferred_types: Vec<String>,
    /// The port of a kubelet whose node does not state one.
    pub default_port: u16,
}

/// The kubelet that answers a request, and the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletEndpoint {
    /// The host: an address or a name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The name of the container; empty for a request about the pod.
    pub container: String,
    /// True if the kubelet supports the websocket protocols of clients.
    pub takes_websockets: bool,
}

/// The endpoint to which a request is proxied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedEndpoint {
    /// True for a connection with TLS.
    pub is_tls: bool,
    /// The host: an address, or the name of a node.
    pub host: String,
    /// The port.
    pub port: u16,
    /// True for a kubelet, whose certificate is verified.
    pub is_kubelet: bool,
}

/// The parts of `[scheme:]name[:port]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SchemeNamePort<'n> {
    pub(super) scheme: &'n str,
    pub(super) name: &'n str,
    pub(super) port: &'n str,
}

impl<'n> SchemeNamePort<'n> {
    /// Parses the name in a request to a `kind`.
    pub(super) fn parse(text: &'n str, kind: &str) -> Result<Self, ApiError> {
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match *parts.as_slice() {
            [name] => Some(Self { scheme: "", name, port: "" }),
            [name, port] => Some(Self { scheme: "", name, port }),
            [scheme, name, port] => Some(Self { scheme, name, port }),
            _ => None,
        };
        let valid = parsed.filter(|parsed| !parsed.name.is_empty() && SCHEMES.contains(&parsed.scheme));
        valid.ok_or_else(|| ApiError::BadRequest(format!("invalid {kind} request {}", quote(text))))
    }

    fn is_tls(&self) -> bool {
        self.scheme == "https"
    }

    fn port(&self) -> Result<u16, ApiError> {
        self.port.parse().map_err(|_| {
            let message = format!("error trying to reach service: dial tcp: lookup tcp/{}: unknown port", self.port);
            ApiError::ServiceUnavailable { message, retry_after_seconds: None }
        })
    }
}

/// Returns true for an address that requests may be proxied to: a global unicast address as Go defines it. An IPv4
/// address that is mapped into IPv6 counts as IPv4.
pub fn is_reachable(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_link_local()
                || address == Ipv4Addr::BROADCAST)
        }
        IpAddr::V6(address) => {
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_unicast_link_local())
        }
    }
}

/// The endpoint of a pod: its first address, at the port of the request or at the first port of its containers.
pub(super) fn of_pod(pod: &Object, asked: &SchemeNamePort<'_>) -> Result<ProxiedEndpoint, ApiError> {
    let first = pod.get(&["status", "podIPs"]).and_then(Value::as_array).and_then(|addresses| addresses.first());
    let host = first.and_then(|address| address.get("ip")?.as_str()).unwrap_or_default();
    if !host.parse().is_ok_and(is_reachable) {
        return Err(not_allowed());
    }
    let containers = pod.get(&["spec", "containers"]).and_then(Value::as_array).into_iter().flatten();
    let stated = containers.filter_map(|container| container["ports"].as_array()?.first()?["containerPort"].as_u64());
    let stated = stated.filter_map(|port| u16::try_from(port).ok()).next();
    let port = match (asked.port, stated) {
        ("", Some(stated)) => stated,
        ("", None) if asked.is_tls() => 443,
        ("", None) => 80,
        _ => asked.port()?,
    };
    Ok(ProxiedEndpoint { is_tls: asked.is_tls(), host: host.to_owned(), port, is_kubelet: false })
}

/// The endpoint of a node: its kubelet, or another port of its host.
pub(super) fn of_node(
    node: &Object,
    asked: &SchemeNamePort<'_>,
    nodes: &NodeAddresses,
) -> Result<ProxiedEndpoint, ApiError> {
    let (host, kubelet_port) = kubelet_address(node, nodes)?;
    if host.parse().is_ok_and(|address| !is_reachable(address)) {
        return Err(not_allowed());
    }
    if asked.port.is_empty() || asked.port == kubelet_port.to_string() {
        return Ok(ProxiedEndpoint { is_tls: true, host, port: kubelet_port, is_kubelet: true });
    }
    Ok(ProxiedEndpoint { is_tls: asked.is_tls(), host, port: asked.port()?, is_kubelet: false })
}

/// The kubelet of a node, for a container of a pod.
pub(super) fn kubelet(
    node: &Object,
    nodes: &NodeAddresses,
    namespace: String,
    pod: String,
    container: String,
) -> Result<KubeletEndpoint, ApiError> {
    let (host, port) = kubelet_address(node, nodes)?;
    let mut declared = node.get(&["status", "declaredFeatures"]).and_then(Value::as_array).into_iter().flatten();
    let takes_websockets = declared.any(|feature| feature == WEBSOCKETS);
    Ok(KubeletEndpoint { host, port, namespace, pod, container, takes_websockets })
}

fn kubelet_address(node: &Object, nodes: &NodeAddresses) -> Result<(String, u16), ApiError> {
    let addresses = node.get(&["status", "addresses"]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |address: &Value, field: &str| address[field].as_str().unwrap_or_default().to_owned();
    let of_type = |kind: &str| {
        let found = addresses.iter().find(|address| address["type"] == *kind).map(|address| text(address, "address"));
        let label = || node.get(&["metadata", "labels", HOST_LABEL]).and_then(Value::as_str).map(str::to_owned);
        found.or_else(|| label().filter(|name| kind == "Hostname" && !name.is_empty()))
    };
    let host = nodes.preferred_types.iter().find_map(|kind| of_type(kind)).ok_or_else(|| {
        let known =
            addresses.iter().map(|address| format!("{{{} {}}}", text(address, "type"), text(address, "address")));
        let known = known.collect::<Vec<_>>().join(" ");
        ApiError::Unclassified(format!("no preferred addresses found; known addresses: [{known}]"))
    })?;
    let port = node.get(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]).and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    Ok((host, port.unwrap_or(nodes.default_port)))
}

fn not_allowed() -> ApiError {
    ApiError::BadRequest("address not allowed".to_owned())
}

impl Registry {
    /// A random endpoint of a service, among those with addresses of pods in the service's namespace. Yields while it
    /// reads many objects.
    pub(super) async fn service_endpoint(
        &self,
        target: &Target,
        service: &Object,
        asked: &SchemeNamePort<'_>,
    ) -> Result<ProxiedEndpoint, ApiError> {
        let unavailable = |message: String| ApiError::ServiceUnavailable { message, retry_after_seconds: None };
        let port_name = match asked.port.parse::<i64>() {
            Ok(number) => {
                let port = u16::try_from(number).ok().and_then(|port| service_port_name(service, port));
                port.ok_or_else(|| {
                    let name = quote(asked.name);
                    unavailable(format!("no service port {number} found for service {name}"))
                })?
            }
            Err(_) => asked.port.to_owned(),
        };
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let mut reading = Reading::default();
        let found = self.endpoints_of(namespace, asked.name, &port_name, &mut reading).await?;
        let pods = self.target("", "pods")?.collection()?.clone();
        let first = usize::try_from(self.random.u64() % (found.len() as u64).max(1)).unwrap_or_default();
        for Endpoint { pod, address, port } in found.iter().skip(first).chain(found.iter().take(first)) {
            let Some(pod) = pod["name"].as_str().filter(|_| pod["namespace"] == *namespace) else { continue };
            let Some(pod) = pods.get(&format!("{namespace}/{pod}")) else { continue };
            if is_of_pod(&reading.decode(&pod).await, address) {
                let host = address.clone();
                return Ok(ProxiedEndpoint { is_tls: asked.is_tls(), host, port: *port, is_kubelet: false });
            }
        }
        let name = if found.is_empty() { asked.name.to_owned() } else { asked_as(asked) };
        Err(unavailable(format!("no endpoints available for service {}", quote(&name))))
    }

    /// The ready endpoints of a service at a port, at most [`ENDPOINTS`].
    async fn endpoints_of(
        &self,
        namespace: &str,
        service: &str,
        port_name: &str,
        reading: &mut Reading,
    ) -> Result<Vec<Endpoint>, ApiError> {
        let collection = |group, plural| self.target(group, plural)?.collection().cloned();
        let slices = collection("discovery.k8s.io", "endpointslices")?.snapshot();
        let mut found = Vec::new();
        for slice in service_slices(&slices, namespace, service).take(SLICES) {
            let slice = reading.decode(slice).await;
            let ready = ready_endpoints(&slice, port_name).take(ENDPOINTS - found.len());
            found.extend(ready.map(|(endpoint, address, port)| Endpoint {
                pod: endpoint["targetRef"].clone(),
                address: address.to_owned(),
                port,
            }));
            if found.len() == ENDPOINTS {
                break;
            }
        }
        if found.is_empty()
            && let Some(older) = collection("", "endpoints")?.get(&format!("{namespace}/{service}"))
        {
            found = ready_addresses(&reading.decode(&older).await, port_name);
        }
        Ok(found)
    }
}

/// A ready endpoint of a service.
struct Endpoint {
    /// The reference to its pod.
    pod: Value,
    address: String,
    port: u16,
}

/// Returns true if an address is one of a pod's, and reachable.
fn is_of_pod(pod: &Object, address: &str) -> bool {
    let addresses = pod.get(&["status", "podIPs"]).and_then(Value::as_array);
    address.parse().is_ok_and(is_reachable)
        && addresses.is_some_and(|addresses| addresses.iter().any(|own| own["ip"] == *address))
}

/// The name in the form of the request.
fn asked_as(asked: &SchemeNamePort<'_>) -> String {
    match (asked.scheme, asked.port) {
        ("", "") => asked.name.to_owned(),
        ("", port) => format!("{}:{port}", asked.name),
        (scheme, port) => format!("{scheme}:{}:{port}", asked.name),
    }
}

/// The ready addresses of a service's `Endpoints` at a port, each with the pod that it names. This is the older API.
fn ready_addresses(endpoints: &Object, port_name: &str) -> Vec<Endpoint> {
    let subsets = endpoints.get(&["subsets"]).and_then(Value::as_array).into_iter().flatten();
    let found = subsets.flat_map(|subset| {
        let port = port_named(&subset["ports"], port_name);
        let addresses = subset["addresses"].as_array().into_iter().flatten();
        addresses.filter_map(move |address| {
            let (pod, ip) = (address["targetRef"].clone(), address["ip"].as_str()?.to_owned());
            Some(Endpoint { pod, address: ip, port: port? })
        })
    });
    found.take(ENDPOINTS).collect()
}

/// The number of the port with this name in a list of ports. A port without a name has an empty one.
fn port_named(ports: &Value, name: &str) -> Option<u16> {
    let mut ports = ports.as_array()?.iter();
    let port = ports.find(|port| port["name"].as_str().unwrap_or_default() == name)?;
    u16::try_from(port["port"].as_u64()?).ok()
}

/// The ready endpoints of a slice at a port, each with its first address.
pub fn ready_endpoints<'s>(
    slice: &'s Object,
    port_name: &str,
) -> impl Iterator<Item = (&'s Value, &'s str, u16)> + use<'s> {
    let port = slice.get(&["ports"]).and_then(|ports| port_named(ports, port_name));
    let endpoints = slice.get(&["endpoints"]).and_then(Value::as_array).into_iter().flatten();
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"].as_bool() != Some(false));
    ready.filter_map(move |endpoint| Some((endpoint, endpoint["addresses"].as_array()?.first()?.as_str()?, port?)))
}

/// The slices of a service, in a snapshot of all slices.
pub fn service_slices<'s>(
    slices: &'s Snapshot,
    namespace: &str,
    name: &'s str,
) -> impl Iterator<Item = &'s Arc<Entry>> {
    let (from, to) = (format!("{namespace}/"), format!("{namespace}0"));
    slices
        .select(&[IndexTerm::Label { key: SERVICE_NAME_LABEL, value: name }], &from, Some(&to))
        .filter(move |slice| slice.labels.get(SERVICE_NAME_LABEL) == Some(name))
}

/// The name of a port of a service, which its slices have too. `None` if the service does not have the port.
pub fn service_port_name(service: &Object, port: u16) -> Option<String> {
    let ports = service.get(&["spec", "ports"]).and_then(Value::as_array)?;
    let stated = ports.iter().find(|stated| stated["port"].as_u64() == Some(port.into()))?;
    Some(stated["name"].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    #[test]
    fn a_proxied_name_may_have_a_scheme_and_a_port() {
        let check = |text: &str, expected: Option<(&str, &str, &str)>| {
            let parsed = SchemeNamePort::parse(text, "pod").ok();
            assert_eq!(parsed.map(|it| (it.scheme, it.name, it.port)), expected, "{text}");
        };
        check("a", Some(("", "a", "")));
        check("a:80", Some(("", "a", "80")));
        check("https:a:", Some(("https", "a", "")));
        check("http:a:web", Some(("http", "a", "web")));
        for bad in ["", ":80", "ftp:a:80", "http:a:80:b", "::"] {
            check(bad, None);
        }
    }

    #[test]
    fn only_global_unicast_addresses_are_reachable() {
        for good in ["10.0.0.7", "192.0.2.1", "2001:db8::1", "fd00::1", "::ffff:10.0.0.7"] {
            assert!(is_reachable(good.parse().unwrap()), "{good}");
        }
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
        ] {
            assert!(!is_reachable(bad.parse().unwrap()), "{bad}");
        }
    }

    #[test]
    fn a_kubelet_has_the_first_address_of_a_preferred_type() {
        let nodes = |types: &[&str]| NodeAddresses {
            preferred_types: types.iter().map(|&kind| kind.to_owned()).collect(),
            default_port: 10250,
        };
        let node = object(json!({
            "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "label"}},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "10.0.0.2"},
                {"type": "ExternalIP", "address": "192.0.2.1"},
            ], "daemonEndpoints": {"kubeletEndpoint": {"Port": 1234}}},
        }));
        let found = kubelet_address(&node, &nodes(&["ExternalIP", "InternalIP"])).unwrap();
        assert_eq!(found, ("192.0.2.1".to_owned(), 1234));
        let found = kubelet_address(&node, &nodes(&["Hostname", "InternalIP"])).unwrap();
        assert_eq!(found.0, "label");
        let error = kubelet_address(&node, &nodes(&["InternalDNS"])).unwrap_err().to_string();
        let known = "[{InternalIP 10.0.0.1} {InternalIP 10.0.0.2} {ExternalIP 192.0.2.1}]";
        assert_eq!(error, format!("no preferred addresses found; known addresses: {known}"));
        let bare = object(
            json!({"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "a"}]}}),
        );
        assert_eq!(kubelet_address(&bare, &nodes(&["InternalIP"])).unwrap().1, 10250);
    }

    #[test]
    fn a_pod_is_reached_at_the_stated_port_or_at_its_first() {
        let pod = |ip: &str| {
            object(json!({
                "metadata": {"name": "p"}, "status": {"podIPs": [{"ip": ip}]},
                "spec": {"containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": 8080}]}]},
            }))
        };
        let of = |ip: &str, name: &str| of_pod(&pod(ip), &SchemeNamePort::parse(name, "pod").unwrap());
        assert_eq!(of("10.0.0.7", "p").unwrap().port, 8080);
        let stated = of("10.0.0.7", "https:p:8443").unwrap();
        assert_eq!((stated.port, stated.is_tls), (8443, true));
        assert!(of("10.0.0.7", "p:web").is_err() && of("10.0.0.7", "p:99999").is_err());
        for bad in ["127.0.0.1", "::ffff:169.254.169.254", "localhost", ""] {
            assert_eq!(of(bad, "p").unwrap_err().to_string(), "address not allowed", "{bad}");
        }
    }
}
