//! Webhooks of access: others that are asked who the bearer of a token is, or whether a user may do something.
//!
//! Where they are, and by what they know this server, stands in files in the form of kubeconfigs (`kubeconfig`); `client` asks, and
//! asks again where that may help. One that can't be asked allows nothing.

mod authorizer;
mod client;
mod conditions;
mod connection;
mod host_credentials;
mod kubeconfig;
mod token_cache;
mod tokens;

pub use authorizer::{AskedCounts, WebhookCounts};
pub use client::{RETRY_WAIT, ReviewClient, ReviewVersion};
pub use connection::WebhookConnection;
pub use host_credentials::{HostCredentials, WebhookUsers};
pub use kubeconfig::WebhookEndpoint;
pub use token_cache::{TOKEN_CACHE, TokenCacheCounts};
pub use tokens::WebhookTokens;

pub(crate) use authorizer::{Counters, WebhookAuthorizer};
pub(crate) use conditions::MatchConditions;
