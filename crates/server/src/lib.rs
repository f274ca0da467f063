//! A whole API server from its parts: store, cache, registry, controllers and the HTTP edge, started and stopped in
//! the right order. Only this crate knows which engine is behind the store.

mod audit;
mod backup;
mod builtin;
mod certificate_ends;
mod config;
mod controllers;
mod copy;
mod data_directory;
mod documents;
mod health;
mod issuers;
mod keys;
mod metrics;
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
mod settings;
mod store;
mod tokens;

pub use audit::{AuditBackendConfig, AuditConfig, AuditLogConfig, AuditLogFormat, AuditWebhookConfig, audit_mode};
pub use backup::{Checked, backup, check, restore};
pub use builtin::catalogue;
pub use config::Config;
pub use copy::copy_store;
pub use issuers::{AuthenticationSources, TokenWebhook};
pub use keelson_access::audit::{AuditMode, Batching, Throttle, Truncation};
pub use keelson_access::kubeconfig::Kubeconfig;
pub use keelson_access::pki::first_end as certificate_end;
pub use keelson_access::{FrontProxyOptions, RequestHeaders, TokenKeyFiles, client_request, new_keys};
pub use keelson_access_config::{AuthorizationSource, AuthorizerEntry, AuthorizerKind, OidcFlags, ReviewVersion};
pub use keelson_admission::{PodSecurityConfiguration, Selection as AdmissionPlugins};
pub use keelson_controllers::Switches;
pub use keelson_http::version::{Build, GIT_VERSION as KUBERNETES_VERSION};
pub use keelson_outbound::{Proxy, ServiceRoute, ServiceRoutes};
pub use keelson_registry::{AddressRange, PartialRights, PortRange, RegistryConfig, ServiceRanges};
pub use keelson_storage::copy::CopyProgress;
pub use server::{RunningServer, Server};
pub use store::{StoreConfig, StoreRoom};
