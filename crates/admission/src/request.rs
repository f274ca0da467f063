//! The field `request` of admission reviews, and the variable `request` of CEL expressions.
//!
//! Members and their order are upstream's.

use keelson_access::User;
use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::options::{DeleteOptions, FieldValidation, PropagationPolicy};
use keelson_registry::{AdmissionAttributes, Operation, WriteOptions};

use crate::matching::{Endpoint, namespace_of};

/// The members of a request, except its uid and objects, in the order of upstream's reviews. `endpoint` has the kind
/// and resource that the webhook or policy gets.
pub(crate) fn members(attributes: &AdmissionAttributes<'_>, endpoint: &Endpoint) -> Map {
    let target = attributes.target;
    let below = attributes.subresource();
    let mut members = Map::default();
    members.insert("kind", kind(&endpoint.kind));
    members.insert("resource", resource(&endpoint.group, &endpoint.version, &endpoint.resource));
    if !below.is_empty() {
        members.insert("subResource", json!(below));
    }
    members.insert("requestKind", kind(&target.taken_kind()));
    let own = &target.resource;
    members.insert("requestResource", resource(&own.group, &target.version.name, &own.plural));
    if !below.is_empty() {
        members.insert("requestSubResource", json!(below));
    }
    if !attributes.name.is_empty() {
        members.insert("name", json!(attributes.name));
    }
    if let Some(namespace) = namespace_of(attributes) {
        members.insert("namespace", json!(namespace));
    }
    members.insert("operation", json!(attributes.operation.as_str()));
    members.insert("userInfo", user_info(attributes.caller.user()));
    members
}

/// The members after the objects.
pub(crate) fn last_members(attributes: &AdmissionAttributes<'_>) -> Map {
    let mut members = Map::default();
    members.insert("dryRun", json!(attributes.caller.is_dry_run()));
    members.insert("options", options(attributes));
    members
}

/// All members of the CEL variable.
pub(crate) fn for_expressions(attributes: &AdmissionAttributes<'_>, endpoint: &Endpoint) -> Value {
    let mut all = members(attributes, endpoint);
    let mut last = last_members(attributes);
    all.append(&mut last);
    Value::Object(all)
}

fn kind(kind: &GroupVersionKind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

fn resource(group: &str, version: &str, resource: &str) -> Value {
    json!({ "group": group, "version": version, "resource": resource })
}

fn user_info(user: &User) -> Value {
    let mut info = Map::default();
    info.insert("username", json!(user.name));
    if let Some(uid) = &user.uid {
        info.insert("uid", json!(uid));
    }
    if !user.groups.is_empty() {
        info.insert("groups", json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra", json!(user.extra));
    }
    Value::Object(info)
}

/// The options of a request as an object. A patch has the options of a create or an update.
fn options(attributes: &AdmissionAttributes<'_>) -> Value {
    let mut options = Map::default();
    let kind = match attributes.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    options.insert("kind", json!(kind));
    options.insert("apiVersion", json!("meta.k8s.io/v1"));
    let (manager, validation) = match attributes.options {
        WriteOptions::None => (None, FieldValidation::default()),
        WriteOptions::Create(stated) => (stated.field_manager.as_deref(), stated.field_validation),
        WriteOptions::Update(stated) => (stated.field_manager.as_deref(), stated.field_validation),
        WriteOptions::Patch(stated) => (stated.field_manager.as_deref(), stated.field_validation),
        WriteOptions::Delete(stated) => {
            deletion(stated, &mut options);
            (None, FieldValidation::default())
        }
    };
    if attributes.caller.is_dry_run() {
        options.insert("dryRun", json!(["All"]));
    }
    if let Some(manager) = manager {
        options.insert("fieldManager", json!(manager));
    }
    match validation {
        FieldValidation::Ignore => drop(options.insert("fieldValidation", json!("Ignore"))),
        FieldValidation::Strict => drop(options.insert("fieldValidation", json!("Strict"))),
        FieldValidation::Warn => {}
    }
    Value::Object(options)
}

fn deletion(stated: &DeleteOptions, options: &mut Map) {
    if let Some(seconds) = stated.grace_period_seconds {
        options.insert("gracePeriodSeconds", json!(seconds));
    }
    let mut preconditions = Map::default();
    if let Some(uid) = &stated.preconditions.uid {
        preconditions.insert("uid", json!(uid));
    }
    if let Some(version) = &stated.preconditions.resource_version {
        preconditions.insert("resourceVersion", json!(version));
    }
    if !preconditions.is_empty() {
        options.insert("preconditions", Value::Object(preconditions));
    }
    if let Some(orphan) = stated.orphan_dependents {
        options.insert("orphanDependents", json!(orphan));
    }
    if let Some(policy) = &stated.propagation_policy {
        let policy = match policy {
            PropagationPolicy::Orphan => "Orphan",
            PropagationPolicy::Background => "Background",
            PropagationPolicy::Foreground => "Foreground",
        };
        options.insert("propagationPolicy", json!(policy));
    }
}
