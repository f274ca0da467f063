//! Access by the files of operators: issuers of tokens, webhooks that know users, and webhooks that decide what these may do.
//!
//! Reads and judges `AuthenticationConfiguration` and `AuthorizationConfiguration` in upstream's form and words, follows them, and asks
//! whom they name through `outbound`. Others are believed no further than their configuration says, and whoever can't be asked lets
//! nobody in.
//!
//! A file that is wrong leaves the one of before in force. Nothing here knows HTTP requests, objects or the store.

mod answers;
mod authentication;
mod authorization;
mod document;
mod expressions;
mod followed;
mod jwt;
mod reloads;
mod webhook;

pub use answers::{AnswerKey, Answers, answer_key};
pub use authentication::{
    Anonymous, AuthenticationConfiguration, ConfiguredIssuers, IssuerSample, IssuerTimes, OidcFlags, SIGNING_ALGORITHMS,
};
pub use authorization::{
    AuthorizationSource, AuthorizerEntry, AuthorizerKind, ConfiguredAuthorizers, DecisionCounts, LocalAuthorizers,
};
pub use document::ConfigurationError;
pub use reloads::{ReloadCounts, Reloads};
pub use webhook::{
    AskedCounts, HostCredentials, RETRY_WAIT, ReviewClient, ReviewVersion, TOKEN_CACHE, TokenCacheCounts,
    WebhookConnection, WebhookCounts, WebhookEndpoint, WebhookTokens, WebhookUsers,
};
