//! Tests of the gateway in front of keelson servers: reads from its mirrors, rights of callers, and sources that fail.

mod lab;
mod outages;
mod reads;
mod rights;
