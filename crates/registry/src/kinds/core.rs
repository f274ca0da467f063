//! The strategies of the core group.
//!
//! The rules stand in a file for each family of kinds.

mod config;
mod limits;
mod namespaces;
mod nodes;
mod pod;
mod replication;
mod service_accounts;
mod services;
mod volume_claims;
mod volumes;

use super::strategy::{Ordinary, ReturnsDeleted, Strategy};

pub(crate) use namespaces::finalize_namespace;

/// The strategy of a resource of the group.
pub(super) fn strategy_of(plural: &str) -> &'static dyn Strategy {
    match plural {
        "limitranges" => &limits::LimitRanges,
        "namespaces" => &namespaces::Namespaces,
        "nodes" => &nodes::Nodes,
        "persistentvolumeclaims" => &volume_claims::Claims,
        "persistentvolumes" => &volumes::Volumes,
        "pods" => &pod::Pods,
        "podtemplates" => &ReturnsDeleted,
        "replicationcontrollers" => &replication::ReplicationControllers,
        "resourcequotas" => &limits::ResourceQuotas,
        "secrets" => &config::Secrets,
        "serviceaccounts" => &service_accounts::ServiceAccounts,
        "services" => &services::Services,
        _ => &Ordinary,
    }
}
