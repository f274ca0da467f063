//! Audit: which requests are written down, how much of each, and where.
//!
//! A [`Policy`] says it of every request, a request's [`AuditRecord`] collects what its events say, and an [`Auditor`] hands the events to
//! backends, each with a queue of its own. A backend that is slow, dead or full holds up nobody who did not ask for it, and never ends
//! the server: what is lost is counted, under upstream's names. HTTP, files and connections are for those who implement the traits here.

mod auditor;
mod event;
mod policy;
mod queue;
mod record;
mod request;
mod worker;

pub use auditor::{AuditCounts, AuditMode, Auditor, Backend};
pub use event::{AuditEvent, AuditStatus, Body, Occurrence};
pub use policy::{Audited, Level, Policy, Stage};
pub use record::AuditRecord;
pub use request::AuditRequest;
pub use worker::{AuditWorker, Batching, Sink, Throttle, Truncation};
