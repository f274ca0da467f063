//! Tests of the server for operators: settings, restarts, copies of its store, metrics, and the failure of its parts.
//!
//! Most tests run the real binary.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod abac;
mod audit;
mod audit_webhook;
mod console;
mod coordinated_election;
mod copy;
mod diagnosis;
mod envtest;
mod first_steps;
mod forks;
mod hot_loops;
mod kubeadm;
mod language_packages;
mod log_lines;
mod memory;
mod output;
mod pages;
mod restarts;
mod runtime_config;
mod serving_flags;
mod settings;
mod startup;
mod store_metrics;
mod supervision;
mod test_servers;
mod traces;
mod upstream_flags;
mod users;
mod verify;
mod versions_command;
