//! The strategies of the core group.
//!
//! The steps are in one file for each family of kinds.

mod config;
mod limits;
mod namespaces;
mod nodes;
pub(crate) mod pod;
mod replication;
mod service_accounts;
mod services;
pub(crate) mod template;
mod volume_claims;
mod volumes;

use keelson_registry::strategy::{ClosedFields, FieldPath, MetadataRules, Strategies};

use crate::strategy::RETURNS_DELETED;

/// The path of the pod spec in a workload.
pub(crate) const TEMPLATE: FieldPath = &["spec", "template", "spec"];

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "limitranges" => &const { Strategies::ORDINARY.create(&limits::LimitRanges) },
        "namespaces" => {
            &const {
                Strategies::ORDINARY
                    .create(&namespaces::Namespaces)
                    .update(&namespaces::Namespaces)
                    .delete(&namespaces::Namespaces)
            }
        }
        "nodes" => &const { Strategies::ORDINARY.create(&nodes::Nodes) },
        "persistentvolumeclaims" => {
            &const {
                Strategies::ORDINARY
                    .create(&volume_claims::Claims)
                    .update(&volume_claims::Claims)
                    .delete(&volume_claims::Claims)
            }
        }
        "persistentvolumes" => {
            &const { Strategies::ORDINARY.create(&volumes::Volumes).update(&volumes::Volumes).delete(&volumes::Volumes) }
        }
        "pods" => &const { Strategies::ORDINARY.create(&pod::Pods).update(&pod::Pods).delete(&pod::Pods) },
        "podtemplates" => &RETURNS_DELETED,
        "replicationcontrollers" => &const { Strategies::ORDINARY.delete(&replication::ReplicationControllers) },
        "resourcequotas" => {
            &const { Strategies::ORDINARY.write(&limits::ResourceQuotas).delete(&limits::ResourceQuotas) }
        }
        "secrets" => &const { Strategies::ORDINARY.create(&config::Secrets).update(&config::Secrets) },
        "serviceaccounts" => {
            &const {
                Strategies::ORDINARY
                    .create(&service_accounts::ServiceAccounts)
                    .update(&service_accounts::ServiceAccounts)
                    .delete(&service_accounts::ServiceAccounts)
            }
        }
        "services" => {
            &const {
                Strategies::ORDINARY
                    .write(&services::Services)
                    .create(&services::Services)
                    .update(&services::Services)
                    .delete(&services::Services)
            }
        }
        _ => &Strategies::ORDINARY,
    }
}

/// The fields of a resource that feature gates guard.
pub(crate) fn closed_fields(plural: &str) -> Vec<ClosedFields> {
    match plural {
        "pods" => pod::gated_fields(),
        "podtemplates" => template::gated_fields(&["template", "spec"]),
        "replicationcontrollers" => template::gated_fields(TEMPLATE),
        "nodes" => nodes::gated_fields(),
        "persistentvolumeclaims" => volume_claims::gated_fields(),
        _ => Vec::new(),
    }
}

/// The rules for metadata.
pub(crate) fn metadata_rules(plural: &str) -> MetadataRules {
    match plural {
        "events" => MetadataRules::PlainAndLast,
        _ => MetadataRules::DomainsForFinalizers,
    }
}
