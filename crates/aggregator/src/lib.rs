//! Aggregated API servers: the stored APIServices decide which server serves a version of a group.
//!
//! Each server follows these objects in its cache and keeps them in one immutable value, [`ApiServices`], which each
//! request reads. Servers on one store do not depend on each other, unless they forward requests to each other
//! (`peers`). The crate does not forward requests and responses itself.

mod aggregator;
mod api_service;
mod api_services;
mod automatic;
mod availability;
mod discovery;
mod endpoints;
mod namespace_contents;
mod objects;
mod openapi;
mod peers;
mod requester;

pub use aggregator::Aggregator;
pub use api_service::{ApiService, Backend, Condition};
pub use api_services::ApiServices;
pub use automatic::{AutomaticServices, builtin_services};
pub use availability::Availability;
pub use discovery::AggregatedDiscovery;
pub use namespace_contents::RemoteContents;
pub use objects::AggregatedObjects;
pub use peers::{PeerDescriptions, PeerForwarding, PeerServers};
