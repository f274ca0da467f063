//! Priority and fairness of requests (KEP-1040): flow schemas, priority levels, seats and fair queues.
//!
//! The crate is pure. Times are durations since a start that the caller chooses, and the caller also supplies the
//! hashes of flows. The crate knows only the attributes of requests. `http` puts requests into the queues, and
//! `controllers` reads the objects.

mod classify;
mod concurrency;
mod config;
mod dealer;
pub mod defaults;
mod demand;
mod queues;
mod retry;

pub use classify::{Attributes, Classifier, ResourceAttributes};
pub use concurrency::{LevelDemand, LevelSeats, allocate, nominal_seats};
pub use config::{
    CATCH_ALL, Distinguisher, EXEMPT, FlowSchema, LevelKind, PageRule, PriorityLevel, Queuing, ResourceRule, Rule,
    Subject,
};
pub use dealer::deal;
pub use demand::{Demand, DemandPeriod};
pub use queues::{Arrival, Coming, Dispatch, Limits, Place, QueueState, Queues, Refusal, Seat, Totals, Turn};
pub use retry::RetryAfter;
