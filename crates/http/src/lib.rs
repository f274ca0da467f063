//! The edge: the only place that knows incoming HTTP.
//!
//! A request comes in over the [`listener`], passes the [`filters`] in one order, and is sent by the [`router`] to the
//! verb handlers (an [`ApiService`]) or to one of the [`pages`]. Handlers decode, call and encode; rules live below.
//! Errors become responses in [`respond`] alone.

mod audited;
pub mod body;
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
pub mod service;
mod shares;
pub mod version;
mod websocket;

pub use body::{BodyError, RequestBody, ResponseBody};
pub use filters::Pipeline;
pub use request_info::{RequestInfo, RequestVerb};
pub use service::{ApiRequest, ApiService};
