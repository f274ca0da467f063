//! Aggregated API servers: which server serves a version of a group, as the stored APIService objects say.
//!
//! Each server follows these objects in its cache and keeps what they say in one immutable value, [`ApiServices`], which a request takes
//! as it is. Servers on one store do the same without knowing of each other, unless they are to answer for each other (`peers`). What a
//! registered server is sent, and what becomes of its answers, is not here.

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
pub use peers::{PeerDescriptions, PeerServers, Rerouted};
