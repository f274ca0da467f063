//! Tests of the gateway in front of keelson servers.
//!
//! The tests cover reads from the mirrors, rights of callers, failing sources, and several sources.

mod fleet;
mod lab;
mod lies;
mod merged;
mod outages;
mod permitted;
mod property;
mod reads;
mod rights;
mod verified;
