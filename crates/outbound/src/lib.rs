//! All that the server calls: webhooks, aggregated servers, and whatever else it will have to ask over the network.
//!
//! A call has a timeout and a bound for its answer, goes to an `https` URL or through a service of the cluster, follows no
//! redirect, and takes no proxy from the environment unless that is asked for. What is called is trusted no further than that:
//! it may hang, lie, answer without end or die in the middle, and delays only who waits for it. Failures are told in the words
//! that Kubernetes' own client has for them. What is asked, and what of it is believed, is for those who call.

mod begun;
mod client_config;
mod conversion;
mod dial;
mod fault;
mod outbound;
mod peer;
mod proxy;
mod rest;
mod review;
mod services;
mod stats;
mod tls;
mod upstream;
mod wire;

pub use client_config::{ClientConfig, Destination};
pub use conversion::{ConversionWebhook, WebhookConversion};
pub use dial::ClientCertificate;
pub use fault::CallError;
pub use outbound::Outbound;
pub use peer::{Answer, Call, Peer, Question};
pub use proxy::Proxy;
pub use rest::text_of;
pub use services::{ClusterServices, ServiceRoute, ServiceRoutes, Services};
pub use stats::{ConversionKey, Durations, LATENCY_BUCKETS, OutboundStats};
pub use upstream::{PassError, PassPlace, PassedBody, Upstream, UpstreamTarget, reading_fault};
