//! The declaration of APIServices, which register aggregated API servers.
//!
//! The crate `aggregator` reads the stored objects.

use keelson_meta::names::NameRule;
use keelson_resources::declare::{GroupDeclaration, STATUS, cluster, served, version};

const GROUP: &str = "apiregistration.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 20001,
    versions: &[version("v1", 15)],
    resources: &[cluster(GROUP, "apiservices", "apiservice", "APIService")
        .versions(&[served("v1").with(&[STATUS])])
        .categories(&["api-extensions"])
        .stored_at("apiregistration.k8s.io/apiservices")
        .names(NameRule::PathSegment)
        .updated_only_from_a_revision()],
};
