//! All that the server calls: webhooks, aggregated servers, and whatever else it will have to ask over the network.
//!
//! A call has a timeout and a bound for its answer, goes to an `https` URL or through a service of the cluster, follows no
//! redirect, and takes no proxy from the environment unless that is asked for. What is called is trusted no further than that:
//! it may hang, lie, answer without end or die in the middle, and delays only who waits for it. Failures are told in the words
//! that Kubernetes' own client has for them. What is asked, and what of it is believed, is for those who call.

mod budget;
mod client_config;
mod connection;
mod conversion;
mod credentials;
mod dialer;
mod exclusive;
mod fault;
mod host_meter;
mod layer;
mod measured;
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
mod stats;
mod tls;
mod upstream;

pub use budget::{ByteBudget, ByteReservation};
pub use client_config::{ClientConfig, Destination};
pub use conversion::{ConversionWebhook, WebhookConversion};
pub use credentials::Credentials;
pub use exclusive::ForwardedBody;
pub use fault::CallError;
pub use host_meter::{CertificateFaults, HostMeter, MethodMeter, NO_RESPONSE};
pub use layer::{Layer, Layered};
pub use node_client::{KubeletTrust, NODE_CONNECTIONS, NodeAddress, NodeClient, NodeError, Security};
pub use outbound::{Outbound, clean_path};
pub use presented::ClientCertificate;
pub use proxy::Proxy;
pub use remote_service::{PEER_PROXIED, REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER, RemoteService};
pub use repeat::Effect;
pub use response_status::{call_with_retries, failure_text, value_of};
pub use rest_client::{Call, RestClient, RestRequest, RestResponse};
pub use retry::RetryWaits;
pub use review::ReviewKind;
pub use services::{ClusterServices, ServiceRoute, ServiceRoutes, Services};
pub use stats::{ConversionKey, Durations, LATENCY_BUCKETS, OutboundStats};
pub use upstream::{AnswerStream, ForwardBody, ForwardError, ForwardPermit, Upstream, reading_fault};
