//! Tests of objects: reads, validation, defaults, ownership, dependents, and deletion.
//!
//! The tests form one program, since each program contains the whole server. Each module covers one subject.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod access_excess;
mod access_metrics;
mod access_webhooks;
mod admission;
mod admission_table;
mod apply;
mod asked_of_updates;
mod authenticators;
mod bootstrap;
mod builtin_admission;
mod builtin_kinds;
mod certificates;
mod client_certificates;
mod controller_accounts;
mod decoding;
mod events;
mod exempt_pods;
mod explain;
mod fairness;
mod flow_schemas;
mod foreign_values;
mod garbage_collection;
mod image_policy;
mod issuers;
mod kinds;
mod large_roles;
mod legacy_tokens;
mod limited_resources;
mod long_lists;
mod managed_fields;
mod many_entries;
mod many_limits;
mod many_quotas;
mod namespaces;
mod newer_fields;
mod newer_kinds;
mod nodes;
mod odd_quotas;
mod old_data;
mod optional_admission;
mod own_calls;
mod pod_certificates;
mod pod_security;
mod pods;
mod protobuf;
mod quotas;
mod read_for_users;
mod releases;
mod retired_versions;
mod rights;
mod rotation;
mod services;
mod signed_clients;
mod signed_tokens;
mod subresources;
mod tolerations;
mod trust_bundles;
mod validation;
mod wire;

/// A sample without the label that names its server.
fn without_server(line: &str) -> String {
    match line.split_once(",apiserver_id_hash=\"") {
        Some((start, rest)) => format!("{start}{}", rest.split_once('"').map_or("", |(_, end)| end)),
        None => line.to_owned(),
    }
}
