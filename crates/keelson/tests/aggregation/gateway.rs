//! Tests of the gateway in front of keelson servers.
//!
//! They cover reads from its mirrors, rights of callers, sources that fail, and several sources.

mod fleet;
mod lab;
mod lies;
mod merged;
mod outages;
mod permitted;
mod property;
mod reads;
mod rights;
