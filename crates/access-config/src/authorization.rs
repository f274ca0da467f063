//! `AuthorizationConfiguration`: who is asked what users may do, in which order.
//!
//! Read in `config` and judged in `validation`. The authorizers that know stored objects are not known here: `configured` is
//! given them, puts the chain together, and follows the file.

mod config;
mod configured;
mod decisions;
mod validation;

pub use config::{AuthorizerEntry, AuthorizerKind};
pub(crate) use config::{FailurePolicy, WebhookSettings};
pub use configured::{AuthorizationSource, ConfiguredAuthorizers, LocalAuthorizers};
pub use decisions::DecisionCounts;
