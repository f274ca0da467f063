//! The HTTP layer: the only crate that knows incoming HTTP.
//!
//! A request arrives at the [`listener`] and passes the [`filters`] in their order. The [`router`] sends it to the verb
//! handlers (an [`ApiService`]) or to one of the [`pages`]. Handlers decode, call the registry and encode. Rules for
//! objects are in the registry and below. Only [`respond`] builds error responses.

mod audited;
pub mod body;
pub mod diagnostics;
pub mod filters;
pub mod handlers;
pub mod health;
pub mod listener;
pub mod metrics;
pub mod negotiation;
pub mod nodes;
pub mod pages;
pub mod proxy;
pub mod request_info;
pub mod request_query;
pub mod respond;
pub mod router;
mod search;
pub mod service;
mod shares;
pub mod shutdown;
pub mod version;
mod websocket;

pub use body::{BodyError, RequestBody, ResponseBody};
pub use filters::Pipeline;
pub use request_info::{RequestInfo, RequestVerb};
pub use service::{ApiRequest, ApiService};
