//! Built-in admission plugins: one file for each plugin, or for a few related plugins.
//!
//! Their rules and messages are upstream's.

mod always_deny;
mod anti_affinity;
mod certificates;
mod claim_resize;
mod event_rate_limit;
mod extended_resources;
mod external_ips;
mod image_policy;
mod image_pulls;
mod limit_ranger;
mod namespaces;
mod node_restriction;
mod node_selector;
mod nodes;
mod owners;
mod pod_resize;
mod pod_security;
mod reading;
mod runtime_class;
mod service_account;
mod stored;
mod tolerations;
mod trust_bundles;

pub(crate) use always_deny::AlwaysDeny;
pub(crate) use anti_affinity::LimitPodHardAntiAffinityTopology;
pub(crate) use certificates::CertificateRules;
pub(crate) use claim_resize::PersistentVolumeClaimResize;
pub(crate) use event_rate_limit::{DEFAULT_KEYS, EventRateLimit};
pub use event_rate_limit::{EventLimit, EventLimitKind};
pub(crate) use extended_resources::ExtendedResourceToleration;
pub(crate) use external_ips::DenyServiceExternalIps;
pub use image_policy::ImagePolicy;
pub(crate) use image_policy::{CALL_TIME, ImagePolicyWebhook};
pub(crate) use image_pulls::AlwaysPullImages;
pub(crate) use limit_ranger::LimitRanger;
pub(crate) use namespaces::NamespaceExists;
pub(crate) use node_restriction::NodeRestriction;
pub use node_selector::NodeSelectors;
pub(crate) use node_selector::PodNodeSelector;
pub(crate) use nodes::{PodTopologyLabels, TaintNodesByCondition};
pub(crate) use owners::OwnerReferencesPermissionEnforcement;
pub(crate) use pod_resize::{NodeDeclaredFeatureValidator, PodResizeValidator};
pub(crate) use pod_security::PodSecurity;
pub use pod_security::{PodSecurityConfiguration, PodSecurityDecision, PodSecurityStats};
pub(crate) use runtime_class::RuntimeClasses;
pub(crate) use service_account::ServiceAccounts;
pub use tolerations::TolerationSettings;
pub(crate) use tolerations::{PodTolerationRestriction, Toleration, read_all};
pub(crate) use trust_bundles::ClusterTrustBundleAttest;
