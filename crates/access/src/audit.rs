//! Audit: the requests that are recorded, the level of detail, and the destinations.
//!
//! A [`Policy`] decides about each request, an [`AuditRecord`] collects the content of its events, and an [`Auditor`]
//! passes them to backends with a queue each. A slow, dead or full backend delays no request unless configured to, and
//! never stops the server. Lost events are counted in upstream's metrics. HTTP, files and connections are in the
//! implementations of the traits of this module.

mod auditor;
mod event;
mod policy;
mod queue;
mod record;
mod request;
mod sink;
mod worker;

pub use auditor::{AuditCounts, AuditMode, Auditor, Backend};
pub use event::{AuditEvent, AuditStatus, Body, Occurrence};
pub use policy::{Audited, Level, Policy, Stage};
pub use record::AuditRecord;
pub use request::AuditRequest;
pub use sink::{Sink, Truncation};
pub use worker::{AuditWorker, Batching, Throttle};
