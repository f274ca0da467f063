//! Plugins that are built in: a file for each, or for those that belong together.
//!
//! Their rules and texts are upstream's.

mod certificates;
mod claim_resize;
mod limit_ranger;
mod node_restriction;
mod nodes;
mod pod_security;
mod reading;
mod runtime_class;
mod service_account;
mod stored;
mod trust_bundles;

pub(crate) use certificates::CertificateRules;
pub(crate) use claim_resize::PersistentVolumeClaimResize;
pub(crate) use limit_ranger::LimitRanger;
pub(crate) use node_restriction::NodeRestriction;
pub(crate) use nodes::{PodTopologyLabels, TaintNodesByCondition};
pub(crate) use pod_security::PodSecurity;
pub use pod_security::PodSecurityConfiguration;
pub(crate) use runtime_class::RuntimeClasses;
pub(crate) use service_account::ServiceAccounts;
pub(crate) use trust_bundles::ClusterTrustBundleAttest;
