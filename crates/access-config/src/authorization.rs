//! `AuthorizationConfiguration`: the authorizers and their order.
//!
//! `config` parses the file, and `validation` validates it. `configured` builds the chain, and reloads the file after
//! changes. Authorizers that need stored objects are passed in, since this module cannot create them.

mod config;
mod configured;
mod decisions;
mod validation;

pub use config::{AuthorizerEntry, AuthorizerKind};
pub(crate) use config::{FailurePolicy, WebhookSettings};
pub use configured::{AuthorizationSource, ConfiguredAuthorizers, LocalAuthorizers};
pub use decisions::DecisionCounts;
