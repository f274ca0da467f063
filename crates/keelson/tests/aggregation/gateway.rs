//! Tests of the gateway in front of keelson servers.
//!
//! They cover reads from its mirrors, rights of callers, sources that fail, and several sources.

mod fleet;
mod lab;
mod outages;
mod reads;
mod rights;
