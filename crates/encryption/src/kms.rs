//! Key services (KMS): the messages of their API, calls over a Unix socket, and the envelopes of both versions.
//!
//! A service encrypts data keys. Values are encrypted here, with a data key that is stored beside each value in encrypted form.

mod cache;
mod envelope;
mod first;
mod proto;
mod service;
mod state;

pub(crate) use first::FirstKms;
pub(crate) use state::{Intervals, Kms};
