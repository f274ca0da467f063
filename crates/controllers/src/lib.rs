//! Controllers inside the server. Each watches objects and writes changes through the verbs of the API, like any other
//! client.
//!
//! Controllers use the registry's verbs and read its cache, but nothing below it. The client and the queue also serve
//! controllers of other crates.

mod authentication_info;
mod bootstrap;
mod certificate_signing;
mod client;
mod cluster_role_aggregation;
mod conflicts;
mod coordinated_election;
mod event_expiry;
mod flow_configuration;
mod flow_objects;
mod flow_schema_status;
mod follow;
mod garbage_collection;
mod identity;
mod kubernetes_service;
mod leadership;
mod leases;
mod namespace_deletion;
mod namespace_objects;
mod observed;
mod pod_garbage_collection;
mod queue;
mod quota_status;
mod servers;
mod storage_versions;
mod switches;

pub use authentication_info::AuthenticationPublication;
pub use bootstrap::{Bootstrap, Progress};
pub use certificate_signing::CertificateSigning;
pub use client::{Client, RevisedObject, SERVER_MANAGER};
pub use cluster_role_aggregation::ClusterRoleAggregation;
pub use conflicts::retry_conflicts;
pub use coordinated_election::CoordinatedElection;
pub use event_expiry::EventExpiry;
pub use flow_configuration::{FlowApplication, FlowConfiguration};
pub use flow_objects::FlowObjects;
pub use flow_schema_status::FlowSchemaStatus;
pub use follow::follow;
pub use garbage_collection::{GarbageCollection, RemoteAccess, RemoteEvent, RemoteKind, RemoteObject, RemotePage};
pub use identity::{
    AGGREGATED_IDENTITY, IDENTITY_LABEL, IDENTITY_VALUE, IdentityConfig, IdentityLease, UNPUBLISHED_ANNOTATION,
    identity_key,
};
pub use kubernetes_service::KubernetesService;
pub use leadership::{Leadership, LeadershipTimes};
pub use namespace_deletion::{Content, NamespaceDeletion, RemainingObjects, RemoteNamespaceContent};
pub use namespace_objects::NamespaceObjects;
pub use observed::{LeaseObservations, Observations};
pub use pod_garbage_collection::{PodGarbageCollection, QUARANTINE};
pub use queue::{Backoff, Outcome, Queue, QueueMeter};
pub use quota_status::QuotaStatus;
pub use servers::{IdentityCollection, RegisteredServer, RegisteredServers, ServerState};
pub use storage_versions::{
    Publication, StorageVersionCollection, StorageVersionEntry, StorageVersionMigrator, StorageVersionPublication,
    migrations, storage_state_definition,
};
pub use switches::{Controller, Switches};
