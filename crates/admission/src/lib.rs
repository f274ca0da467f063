//! Admission of writes: built-in plugins, policies and webhooks, with upstream's names.
//!
//! [`plugins`] lists the plugins in their order and selects the enabled ones. Plugins read stored objects from the
//! cache, through the registry in their attributes. Calls to webhooks go through the crate `outbound`. This crate does
//! not depend on HTTP.

mod builtin;
mod conditions;
mod configuration;
mod manifests;
mod matching;
mod plugins;
mod policies;
mod request;
mod scene;
mod shown;
mod told;
mod webhooks;

pub use keelson_cel::measured as expression_times;

pub use builtin::{
    EventLimit, EventLimitKind, ImagePolicy, NodeSelectors, PodSecurityConfiguration, PodSecurityDecision,
    PodSecurityStats, TolerationSettings,
};
pub use configuration::{AdmissionConfiguration, ConfigurationError};
pub use manifests::{ManifestError, ManifestPlugin, ManifestSet, Manifests};
pub use plugins::{Parts, Selection, SelectionError, chain};
pub use policies::{ConditionCounts, ConditionKey, PolicyError, PolicyKey, PolicyStats, PolicyStatus};
pub use webhooks::{Rejection, WebhookKey, WebhookKind, WebhookStats, WebhookTimes};
