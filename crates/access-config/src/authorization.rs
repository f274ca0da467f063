//! `AuthorizationConfiguration`: the authorizers and their order.
//!
//! `config` reads it and `validation` validates it. `configured` builds the chain and follows the file. Authorizers
//! that need stored objects are passed in, since this module does not know them.

mod config;
mod configured;
mod decisions;
mod validation;

pub use config::{AuthorizerEntry, AuthorizerKind};
pub(crate) use config::{FailurePolicy, WebhookSettings};
pub use configured::{AuthorizationSource, ConfiguredAuthorizers, LocalAuthorizers};
pub use decisions::DecisionCounts;
