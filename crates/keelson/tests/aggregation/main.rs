//! Aggregated API servers, over the wire: what they are told of those who pass requests on to them, and what is passed on.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod front_proxy;
