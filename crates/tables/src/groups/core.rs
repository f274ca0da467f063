//! The core group. Its events are also those of events.k8s.io.
//!
//! The kinds are in files below, by what they are for.

mod basics;
mod endpoints;
mod events;
mod nodes;
mod pods;
mod volumes;
mod workloads;

use crate::printer::Printer;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "ComponentStatus" => basics::COMPONENT_STATUS,
        "ConfigMap" => basics::CONFIG_MAP,
        "Endpoints" => endpoints::ENDPOINTS,
        "Event" => events::EVENT,
        "Namespace" => basics::NAMESPACE,
        "Node" => nodes::NODE,
        "PersistentVolume" => volumes::VOLUME,
        "PersistentVolumeClaim" => volumes::CLAIM,
        "Pod" => pods::POD,
        "PodTemplate" => workloads::POD_TEMPLATE,
        "ReplicationController" => workloads::REPLICATION_CONTROLLER,
        "ResourceQuota" => basics::RESOURCE_QUOTA,
        "Secret" => basics::SECRET,
        "Service" => endpoints::SERVICE,
        "ServiceAccount" => basics::SERVICE_ACCOUNT,
        "Status" => basics::STATUS,
        _ => return None,
    })
}
