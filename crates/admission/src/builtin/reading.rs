//! Helpers of several plugins: the subject of a write, and the lists of an object.
//!
//! Nothing is checked here.

use keelson_meta::json::Value;
use keelson_registry::{AdmissionAttributes, Operation};

/// Returns true for a write of objects of this plural of the core group, or of a subresource.
pub(super) fn is_about(attributes: &AdmissionAttributes<'_>, plural: &str) -> bool {
    let resource = &attributes.target.resource;
    resource.group.is_empty() && &*resource.plural == plural
}

/// Returns true for a create of an object of this plural of the core group.
pub(super) fn is_new(attributes: &AdmissionAttributes<'_>, plural: &str) -> bool {
    attributes.operation == Operation::Create && attributes.subresource().is_empty() && is_about(attributes, plural)
}

/// The items of a list; none where there is no list.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns true for a create or update of an object of this plural of the core group, without subresources.
pub(super) fn is_written(attributes: &AdmissionAttributes<'_>, plural: &str) -> bool {
    let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
    is_write && attributes.subresource().is_empty() && is_about(attributes, plural)
}
