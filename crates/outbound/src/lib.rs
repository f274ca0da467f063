//! The server's calls over the network: webhooks, aggregated servers, and others.
//!
//! A call has a timeout and a size limit for its response. It goes to an `https` URL or a service of the cluster and
//! follows no redirect. It uses an egress proxy or a proxy of the environment only if configured. The peer is not
//! trusted: it may hang, send false data, stream without end or fail halfway. That delays only the caller. Failures have
//! the texts of Kubernetes' own client. Callers define the content of requests and decide whether to trust responses.

mod budget;
mod client_config;
mod connection;
mod conversion;
mod credentials;
mod dialer;
mod egress;
mod exclusive;
mod fault;
mod host_meter;
mod layer;
mod measured;
mod network_stream;
mod node_client;
mod opening;
mod outbound;
mod presented;
mod proxy;
mod remote_service;
mod repeat;
mod response_start;
mod response_status;
mod rest_client;
mod retry;
mod review;
mod services;
mod spans;
mod stats;
mod tls;
mod upstream;

pub use budget::{ByteBudget, ByteReservation};
pub use client_config::{ClientConfig, Destination};
pub use conversion::{ConversionWebhook, WebhookConversion};
pub use credentials::Credentials;
pub use egress::{Egress, EgressNetwork, EgressProtocol, EgressProxy, EgressStats, EgressTls, EgressTransport};
pub use exclusive::ForwardedBody;
pub use fault::CallError;
pub use host_meter::{CertificateFaults, HostMeter, MethodMeter, NO_RESPONSE};
pub use layer::{Layer, LayeredStream};
pub use network_stream::NetworkStream;
pub use node_client::{KubeletTrust, NODE_CONNECTIONS, NodeAddress, NodeClient, NodeError, Security};
pub use outbound::{Outbound, Proxies, clean_path};
pub use presented::ClientCertificate;
pub use proxy::Proxy;
pub use remote_service::{PEER_PROXIED, REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER, RemoteService};
pub use repeat::Effect;
pub use response_status::{call_with_retries, cut, failure_text, status_of, value_of};
pub use rest_client::{Call, RestClient, RestRequest, RestResponse};
pub use retry::RetryWaits;
pub use review::ReviewKind;
pub use services::{ClusterServices, ServiceRoute, ServiceRoutes, Services};
pub use stats::{ConversionKey, Durations, LATENCY_BUCKETS, OutboundStats};
pub use upstream::{AnswerStream, ForwardBody, ForwardError, ForwardPermit, Upstream, reading_fault};
