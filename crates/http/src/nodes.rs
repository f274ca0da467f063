//! Access to nodes: requests that a kubelet, a pod or an endpoint of a service answers.
//!
//! The registry finds the endpoint (`keelson_registry::Remote`), and `keelson_outbound` makes the connection. This
//! module forwards requests and responses: logs (`logs.rs`), sessions with pods (`sessions.rs`) and proxied requests
//! (`proxied.rs`).
//!
//! If a client uses a websocket protocol that the kubelet does not support, `translated.rs` translates it to SPDY.
//! `tunnelled.rs` carries SPDY inside a client's websocket. Credentials of a client never leave this server. Each
//! session counts in the share of its user.

mod codes;
mod html;
mod logs;
mod proxied;
mod sessions;
mod spdy;
mod translated;
mod tunnelled;
mod websocket;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{HOST, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use keelson_meta::{ApiError, Object, host_port};
use keelson_outbound::{NodeAddress, NodeClient, NodeError};
use keelson_registry::{NodeAddresses, Registry, Remote, Target};
use keelson_resources::Verb;
use keelson_supervision::TaskGroup;
use tokio::time::Instant;

use self::codes::Codes;
use self::logs::LogOptions;
use crate::body::{ResponseBody, empty};
use crate::metrics::{MetricKind, Sample};
use crate::proxy::{ClientAddress, IdentityHeaders, forward};
use crate::service::ApiRequest;

/// The feature gate of selected streams of a log.
const SPLIT_STREAMS: &str = "PodLogsQuerySplitStreams";
/// The longest time to find an endpoint, which needs admission and reads of objects.
const LOCATE_TIME: Duration = Duration::from_secs(60);
/// The `Retry-After` when all connections to the node are in use, in seconds.
const RETRY_SECONDS: u32 = 1;

/// Returns the header fields that servers on the store currently trust.
type TrustedPeer = Box<dyn Fn() -> Arc<IdentityHeaders> + Send + Sync>;

/// Passes requests to kubelets, pods and services.
pub struct NodeAccess {
    client: Arc<NodeClient>,
    addresses: NodeAddresses,
    believed: TrustedPeer,
    tasks: TaskGroup,
    counts: Counts,
}

/// The numbers of requests, by the way they are forwarded.
#[derive(Default)]
struct Counts {
    logs: AtomicU64,
    insecure_logs: AtomicU64,
    /// Reads of logs that failed since the kubelet's certificate is not trusted.
    untrusted_logs: AtomicU64,
    sessions: AtomicU64,
    translated: AtomicU64,
    tunnelled: AtomicU64,
    proxied: AtomicU64,
    failed: AtomicU64,
    /// The codes of translated and tunnelled sessions.
    translations: Arc<Codes>,
    tunnels: Codes,
}

impl Counts {
    /// The metrics that upstream has of logs.
    fn log_samples(&self) -> [Sample; 3] {
        let sample = |name, help, labels, value: u64| Sample {
            name,
            help,
            kind: MetricKind::Counter,
            labels,
            value: value as f64,
        };
        let (all, insecure) = (self.logs.load(Ordering::Relaxed), self.insecure_logs.load(Ordering::Relaxed));
        let by_usage = |usage: &str, value| {
            let help = "Reads of logs of pods, by verification of the kubelet's certificate";
            sample("kube_apiserver_pod_logs_insecure_backend_total", help, vec![("usage", usage.to_owned())], value)
        };
        [
            sample(
                "kube_apiserver_pod_logs_backend_tls_failure_total",
                "Reads of logs of pods that failed since the kubelet's certificate is not trusted",
                Vec::new(),
                self.untrusted_logs.load(Ordering::Relaxed),
            ),
            by_usage("enforce_tls", all.saturating_sub(insecure)),
            by_usage("skip_tls_allowed", insecure),
        ]
    }
}

impl fmt::Debug for NodeAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAccess").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl NodeAccess {
    /// Connects to kubelets at these addresses through `client`. Header fields that `believed` returns are not
    /// forwarded.
    pub fn new(
        client: Arc<NodeClient>,
        addresses: NodeAddresses,
        believed: impl Fn() -> Arc<IdentityHeaders> + Send + Sync + 'static,
        tasks: TaskGroup,
    ) -> Self {
        Self { client, addresses, believed: Box::new(believed), tasks, counts: Counts::default() }
    }

    /// The metrics of this access.
    pub fn samples(&self) -> Vec<Sample> {
        let counter = |way: &'static str, count: &AtomicU64| Sample {
            name: "keelson_node_requests_total",
            help: "Requests that were passed to kubelets, pods and services, by their way",
            kind: MetricKind::Counter,
            labels: vec![("way", way.to_owned())],
            value: count.load(Ordering::Relaxed) as f64,
        };
        let Counts { logs, insecure_logs, sessions, translated, tunnelled, proxied, failed, .. } = &self.counts;
        let mut samples = vec![
            counter("log", logs),
            counter("log_without_verification", insecure_logs),
            counter("session", sessions),
            counter("session_translated", translated),
            counter("session_tunnelled", tunnelled),
            counter("proxy", proxied),
            counter("failed", failed),
            Sample {
                name: "keelson_node_connections",
                help: "Connections to kubelets, pods and services",
                kind: MetricKind::Gauge,
                labels: Vec::new(),
                value: self.client.connections() as f64,
            },
        ];
        samples.extend(self.counts.log_samples());
        let help = "Sessions over websockets that were translated to SPDY, by the code of their end";
        samples.extend(self.counts.translations.samples("apiserver_stream_translator_requests_total", help));
        let help = "Port forwarding over websockets that was tunnelled to SPDY, by the code of its begin";
        samples.extend(self.counts.tunnels.samples("apiserver_stream_tunnel_requests_total", help));
        samples
    }

    /// The head of a request to an endpoint: the client's header fields that may be forwarded, and the client's
    /// address.
    fn head(&self, of_client: &Parts, method: Method, address: &NodeAddress, path_and_query: &str) -> Option<Parts> {
        let uri: Uri = path_and_query.parse().ok()?;
        let mut headers = (self.believed)().cleared(&of_client.headers);
        forward(&mut headers, of_client.extensions.get::<ClientAddress>().map(|address| address.0))?;
        headers.insert(HOST, host_of(of_client, address)?);
        Some(head_of(method, uri, headers))
    }
}

fn head_of(method: Method, uri: Uri, headers: HeaderMap) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) = (method, uri, headers);
    parts
}

/// The host in the client's request, which upstream forwards, or else the endpoint's.
fn host_of(of_client: &Parts, address: &NodeAddress) -> Option<HeaderValue> {
    let stated = of_client.uri.authority().and_then(|authority| authority.as_str().parse().ok());
    let stated = stated.or_else(|| of_client.headers.get(HOST).cloned());
    stated.or_else(|| host_port(&address.host, address.port).parse().ok())
}

/// Answers a request for a subresource that a kubelet or pod answers. `nodes` is `None` in a server without node
/// access.
pub(crate) async fn answer(
    registry: &Registry,
    nodes: Option<&NodeAccess>,
    target: &Target,
    name: &str,
    said: Object,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let below = target.subresource.as_ref().ok_or(ApiError::MethodNotAllowed)?;
    // A log is read. All created or proxied subresources pass admission as a connection.
    let log = match below.verbs.contains(&Verb::Create) {
        true => None,
        false => {
            let splits = registry.config().gates.is_on(SPLIT_STREAMS);
            Some(LogOptions::read(request.query.pairs(), name, splits)?)
        }
    };
    let caller = request.caller.clone().until(Some(Instant::now() + LOCATE_TIME));
    let located = registry.remote(target, name, said.clone(), nodes.map(|nodes| &nodes.addresses), &caller).await?;
    if located == Remote::Nothing {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    // Without node access no request can be forwarded.
    let nodes = nodes.ok_or(ApiError::MethodNotAllowed)?;
    let answered = match (located, log) {
        (Remote::Nothing, _) => return Err(ApiError::MethodNotAllowed),
        (Remote::Kubelet(endpoint), Some(options)) => nodes.log(endpoint, &options, name, *request).await,
        (Remote::Kubelet(endpoint), None) => nodes.session(endpoint, &below.name, &said, *request).await,
        (Remote::Proxied(endpoint), _) => nodes.proxied(&endpoint, *request).await,
    };
    if answered.is_err() {
        nodes.counts.failed.fetch_add(1, Ordering::Relaxed);
    }
    answered
}

/// The error if all connections to the node are in use, or if its address is not allowed. For any other failure, its
/// reason.
fn refused_or(error: NodeError) -> Result<ApiError, String> {
    match error {
        NodeError::Busy(_) => {
            Ok(ApiError::ShareExceeded { message: error.to_string(), retry_after_seconds: RETRY_SECONDS })
        }
        NodeError::NotAllowed => Ok(ApiError::BadRequest(error.to_string())),
        NodeError::Dial(why) | NodeError::Failed(why) => Err(why),
    }
}

/// The error for a request whose head contains invalid characters.
fn unwritable() -> ApiError {
    ApiError::Internal("the request can't be passed on".to_owned())
}
