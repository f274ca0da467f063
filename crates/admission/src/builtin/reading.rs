//! Helpers for several plugins: the kind and operation of a write, and lists of an object.
//!
//! No function here refuses a write.

use keelson_meta::json::Value;
use keelson_registry::{AdmissionAttributes, Operation};

/// Returns true for a write of a core resource with this plural, or of one of its subresources.
pub(super) fn is_about(attributes: &AdmissionAttributes<'_>, plural: &str) -> bool {
    let resource = &attributes.target.resource;
    resource.group.is_empty() && &*resource.plural == plural
}

/// Returns true for a create of a core resource with this plural.
pub(super) fn is_new(attributes: &AdmissionAttributes<'_>, plural: &str) -> bool {
    attributes.operation == Operation::Create && attributes.subresource().is_empty() && is_about(attributes, plural)
}

/// The items of a list; empty if the value is not a list.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns true for a create or update of a core resource with this plural, but not of its subresources.
pub(super) fn is_written(attributes: &AdmissionAttributes<'_>, plural: &str) -> bool {
    let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
    is_write && attributes.subresource().is_empty() && is_about(attributes, plural)
}
