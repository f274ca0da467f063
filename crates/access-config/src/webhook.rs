//! Webhooks for authentication and authorization: remote servers that review tokens or requests.
//!
//! A file in the form of a kubeconfig has the address and this server's credentials (`endpoint`). `client` sends
//! requests, and retries temporary failures. A webhook that does not respond allows nothing.

mod authorizer;
mod client;
mod conditions;
mod connection;
mod endpoint;
mod host_credentials;
mod token_cache;
mod tokens;

pub use authorizer::{CallCounts, WebhookCounts};
pub use client::{RETRY_WAIT, ReviewClient, ReviewVersion};
pub use connection::WebhookConnection;
pub use endpoint::WebhookEndpoint;
pub use host_credentials::{HostCredentials, WebhookUsers};
pub use token_cache::{TOKEN_CACHE, TokenCacheCounts};
pub use tokens::WebhookTokens;

pub(crate) use authorizer::{Counters, WebhookAuthorizer};
pub(crate) use conditions::MatchConditions;
