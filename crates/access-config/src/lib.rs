//! Access by configuration files: token issuers, webhooks for authentication, and webhooks for authorization.
//!
//! Reads and validates `AuthenticationConfiguration` and `AuthorizationConfiguration` with upstream's form and texts,
//! follows their files, and calls remote parties through `outbound`. These are trusted no further than their
//! configuration says, and one that does not answer grants nothing.
//!
//! An invalid file leaves the previous version in force. Nothing here knows HTTP requests, objects or the store.

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
