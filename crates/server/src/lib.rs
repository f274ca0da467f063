//! A whole API server: creates the store, cache, registry, controllers and HTTP listener, and starts and stops them in
//! the right order. Only this crate knows the storage engines.

mod audit;
mod backup;
mod builtin;
mod certificate_ends;
mod config;
mod console;
mod controllers;
mod copy;
mod data_directory;
mod doctor;
mod documents;
mod egress;
mod encryption;
mod flow_control;
mod fork;
mod health;
mod issuers;
mod keys;
mod metrics;
mod node_access;
mod notices;
mod peer_access;
mod peers;
mod pipeline;
mod probe;
mod readiness;
mod registry;
mod remote;
mod rights;
mod server;
mod serving_pair;
mod settings;
mod settings_file;
mod store;
mod tokens;
mod traces;

pub use audit::{AuditBackendConfig, AuditConfig, AuditLogConfig, AuditLogFormat, AuditWebhookConfig, audit_mode};
pub use backup::{
    BackedUp, CheckResult, OnProgress, Restored, WorkProgress, WorkStage, backup, check, restore, unobserved,
};
pub use builtin::{catalogue, catalogue_of};
pub use config::Config;
pub use console::answer as console_pages;
pub use copy::copy_store;
pub use doctor::{disk_room, reach_store};
pub use egress::read_egress;
pub use encryption::{EncryptionConfig, EncryptionPauses};
pub use fork::{ForkOrigin, Inherited};
pub use http::HeaderValue;
pub use issuers::{AuthenticationSources, TokenWebhook};
pub use keelson_access::audit::{AuditMode, Batching, Throttle, Truncation};
pub use keelson_access::kubeconfig::Kubeconfig;
pub use keelson_access::pki::{KeyAndCertificate, Pki};
pub use keelson_access::pki::{first_end as certificate_end, last_begin as certificate_begin};
pub use keelson_access::tls::TlsProfile;
pub use keelson_access::{FrontProxyOptions, NamedFiles, RequestHeaders, TokenKeyFiles, client_request, new_keys};
pub use keelson_access_config::{
    AuthorizationSource, AuthorizerEntry, AuthorizerKind, OidcFlags, ReviewVersion, TracingConfiguration,
};
pub use keelson_admission::{AdmissionConfiguration, Selection as AdmissionPlugins};
pub use keelson_controllers::{LeadershipTimes, Switches};
pub use keelson_http::diagnostics::{Diagnostics, LogVerbosity, Profiler};
pub use keelson_http::filters::{AllowedOrigins, FlowLimits};
pub use keelson_http::listener::{Accept, Transport};
pub use keelson_http::shutdown::ShutdownTimes;
pub use keelson_http::version::{Build, GIT_VERSION as KUBERNETES_VERSION};
pub use keelson_outbound::{Proxy, ServiceRoute, ServiceRoutes};
pub use keelson_registry::{AddressRange, PartialRights, PortRange, RegistryConfig, ServiceRanges, TokenTimes};
pub use keelson_storage::copy::CopyProgress;
pub use keelson_supervision::STACK_BYTES;
pub use keelson_telemetry::SpanLayer;
pub use node_access::{KUBELET_ADDRESS_TYPES, NodeOptions};
pub use server::{RunningServer, Server};
pub use serving_pair::serving_pair;
pub use settings_file::read_settings;
pub use store::{StoreConfig, StoreLimits};
pub use traces::Traces;
