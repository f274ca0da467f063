//! Validation of the core group.
//!
//! This file lists the rules of each kind. The rules are in one file for each family of kinds.

mod config;
pub(crate) mod endpoints;
mod limits;
mod namespaces;
mod nodes;
pub(crate) mod pod;
pub(crate) mod replication;
pub(crate) mod services;
#[cfg(test)]
mod tests;
pub(crate) mod volume_claims;
mod volumes;

use crate::core::validation::pod::{EPHEMERAL_CONTAINERS, POD, RESIZE, STATUS, TEMPLATE, UPDATE};
use crate::events::validation as events;
use crate::validating::type_rules::Rule::Always;
use crate::validating::type_rules::{Kind, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("ConfigMap").first(&config::CONFIG_MAP_UPDATE).object(&config::CONFIG_MAP),
    kind("Endpoints").object(&endpoints::ENDPOINTS),
    kind("Event").object(&events::EVENT),
    kind("LimitRange").object(&limits::LIMIT_RANGE),
    kind("Namespace")
        .alone(&namespaces::LABELS)
        .object(&namespaces::NAMESPACE)
        .below(&[("status", &namespaces::STATUS)]),
    kind("Node").object(&nodes::NODE).then(&nodes::UPDATE).below(&[("status", &nodes::STATUS)]),
    kind("PersistentVolume").object(&volumes::VOLUME).then(&volumes::UPDATE),
    kind("PersistentVolumeClaim")
        .object(&volume_claims::CLAIM)
        .then(&volume_claims::UPDATE)
        .below(&[("status", &volume_claims::STATUS)]),
    kind("Pod").object(&POD).then(&UPDATE).below(&[
        ("ephemeralcontainers", &EPHEMERAL_CONTAINERS),
        ("resize", &RESIZE),
        ("status", &STATUS),
    ]),
    kind("PodTemplate").object(&const { TypeRules::new(&[("template", Always(&TEMPLATE))]) }),
    kind("ReplicationController")
        .object(&replication::CONTROLLER)
        .below(&[("status", &replication::CONTROLLER_STATUS)]),
    kind("ResourceQuota")
        .object(&limits::QUOTA)
        .then(&limits::QUOTA_UPDATE)
        .below(&[("status", &limits::QUOTA_STATUS)]),
    kind("Secret").first(&config::SECRET_UPDATE).object(&config::SECRET),
    kind("Service")
        .alone(&services::ADDRESSES)
        .first(&services::UPDATE)
        .object(&services::SERVICE)
        .below(&[("status", &services::STATUS)]),
    kind("ServiceAccount"),
];
