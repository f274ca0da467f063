//! A server in front of an existing cluster: mirrors the cluster's objects, and answers lists, watches and queries from
//! memory with each caller's own rights.
//!
//! The cluster is the source of the mirror. Each mirrored resource has one list and one watch at the source, which feed
//! a cache of its own through the `Store` contract ([`upstream_store`]). So a registry answers reads of the resource as
//! in any server, at the source's own revisions. The source authenticates callers and decides about their rights. All
//! other requests are passed through with the credentials of their callers.
//!
//! Invariants:
//! - A revision in a response is the source's revision. A client may list here and watch at the source, and back.
//! - A request is answered from the mirror only after the source has allowed it for its caller.
//! - The gateway's own credentials are used for lists, watches, discovery and reviews only. A caller's request gets them
//!   only together with the caller's name, if the operator lets the gateway impersonate users of client certificates.
//! - A source that is away or slow delays a read for a limited time. The response then says how old it is.

mod budget;
mod contribution;
mod copy;
mod credentials;
mod discovery;
mod fleet;
mod initial;
mod lines;
mod mirror;
mod mirrors;
mod objects;
mod progress;
mod reads;
mod server;
mod settings;
mod site;
mod source;
mod tail;
mod upstream_store;

pub use server::{RunningGateway, StartError};
pub use settings::{GatewaySettings, SourceSettings};
