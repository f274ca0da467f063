//! The columns of the core group. The columns of events also apply to events.k8s.io.
//!
//! The kinds are in the files of this directory.

mod config;
mod endpoints;
mod limits;
mod namespaces;
mod nodes;
mod pod;
mod replication;
mod service_accounts;
mod services;
mod status;
mod volumes;

use keelson_tables::printer::Printer;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "ComponentStatus" => status::COMPONENT_STATUS,
        "ConfigMap" => config::CONFIG_MAP,
        "Endpoints" => endpoints::ENDPOINTS,
        "Event" => crate::events::columns::EVENT,
        "Namespace" => namespaces::NAMESPACE,
        "Node" => nodes::NODE,
        "PersistentVolume" => volumes::VOLUME,
        "PersistentVolumeClaim" => volumes::CLAIM,
        "Pod" => pod::POD,
        "PodTemplate" => replication::POD_TEMPLATE,
        "ReplicationController" => replication::REPLICATION_CONTROLLER,
        "ResourceQuota" => limits::RESOURCE_QUOTA,
        "Secret" => config::SECRET,
        "Service" => services::SERVICE,
        "ServiceAccount" => service_accounts::SERVICE_ACCOUNT,
        "Status" => status::STATUS,
        _ => return None,
    })
}
