//! Authentication and authorization by configuration files: token issuers, and webhooks for both.
//!
//! This crate reads and validates `AuthenticationConfiguration` and `AuthorizationConfiguration` with upstream's fields
//! and messages. It reloads the files after changes, and calls remote servers through `outbound`. A remote server
//! grants only what its configuration permits. If it does not respond, it grants nothing.
//!
//! If a file is invalid, the previous version stays in force. This crate does not depend on HTTP requests, objects or
//! the store.

mod answers;
mod authentication;
mod authorization;
mod document;
mod egress;
mod expressions;
mod followed;
mod jwt;
mod kubeconfig;
mod reloads;
mod traces;
mod webhook;

pub use answers::{AnswerKey, Answers, answer_key};
pub use authentication::{
    Anonymous, AuthenticationConfiguration, ConfiguredIssuers, IssuerSample, IssuerTimes, OidcFlags, SIGNING_ALGORITHMS,
};
pub use authorization::{
    AuthorizationSource, AuthorizerEntry, AuthorizerKind, ConfiguredAuthorizers, DecisionCounts, LocalAuthorizers,
};
pub use document::{ConfigurationError, hash_of_parts};
pub use egress::EgressConfiguration;
pub use kubeconfig::{Kubeconfig, UserToken};
pub use reloads::{ReloadCounts, Reloads};
pub use traces::{CollectorEndpoint, TracingConfiguration};
pub use webhook::{
    CallCounts, HostCredentials, RETRY_WAIT, ReviewClient, ReviewVersion, TOKEN_CACHE, TokenCacheCounts,
    WebhookConnection, WebhookCounts, WebhookEndpoint, WebhookTokens, WebhookUsers,
};
