//! Aggregated API servers: which server serves a version of a group, as the stored APIService objects say.
//!
//! Each server follows these objects in its cache and keeps what they say in one immutable value, [`Aggregated`], which a request takes
//! as it is. Servers on one store do the same without knowing of each other. What a registered server is sent, and what becomes of
//! its answers, is not here.

mod aggregated;
mod aggregator;
mod api_service;
mod asking;
mod automatic;
mod availability;
mod contents;
mod describing;
mod discovering;
mod endpoints;

pub use aggregated::Aggregated;
pub use aggregator::Aggregator;
pub use api_service::{ApiService, Backend, Condition, RemoteService};
pub use automatic::{AutomaticServices, builtin_services};
pub use availability::Availability;
pub use contents::AggregatedContents;
pub use discovering::Discovered;
