//! Admission of writes, under the names that upstream has for its plugins: what is built in, policies, webhooks.
//!
//! [`plugins`] has them in their order, and which of them are asked. What a plugin judges by it finds in the cache, through the registry
//! of the attributes that it is asked with; HTTP is unknown here, and whoever has to be called is called by `outbound`.

mod builtin;
mod conditions;
mod configuration;
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
pub use configuration::AdmissionConfiguration;
pub use plugins::{Parts, Selection, chain};
pub use policies::{ConditionCounts, ConditionKey, PolicyError, PolicyKey, PolicyStats, PolicyStatus};
pub use webhooks::{Rejection, WebhookKey, WebhookKind, WebhookStats, WebhookTimes};
