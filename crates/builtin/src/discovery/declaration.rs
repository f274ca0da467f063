//! The declaration of endpoint slices, which have the addresses of services.
//!
//! A service has as many slices as its endpoints need. Controllers outside of this server write them.

use keelson_resources::declare::{GroupDeclaration, namespaced, version};

const GROUP: &str = "discovery.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16200,
    versions: &[version("v1", 15)],
    resources: &[namespaced(GROUP, "endpointslices", "endpointslice", "EndpointSlice").counts_generations()],
};
