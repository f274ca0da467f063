//! Readings that several plugins make: what a write is about, and the lists of an object.
//!
//! Nothing is judged here.

use keelson_meta::json::Value;
use keelson_registry::{AdmissionAttributes, Operation};

/// Whether objects of this plural of the core group are written, or something below them.
pub(super) fn is_about(attributes: &AdmissionAttributes<'_>, plural: &str) -> bool {
    let resource = &attributes.target.resource;
    resource.group.is_empty() && &*resource.plural == plural
}

/// Whether an object of this plural of the core group is made.
pub(super) fn is_new(attributes: &AdmissionAttributes<'_>, plural: &str) -> bool {
    attributes.operation == Operation::Create && attributes.subresource().is_empty() && is_about(attributes, plural)
}

/// The items of a list; none where there is no list.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether an object of this plural of the core group is made or changed, and nothing below it.
pub(super) fn is_written(attributes: &AdmissionAttributes<'_>, plural: &str) -> bool {
    let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
    is_write && attributes.subresource().is_empty() && is_about(attributes, plural)
}
