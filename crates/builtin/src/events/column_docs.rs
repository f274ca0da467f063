//! The descriptions of the columns in the tables of `events`.
//!
//! The descriptions are the API documentation of the fields that the columns show. The cells are in `columns.rs`.

pub(crate) const REASON: &str = "\
    This should be a short, machine understandable string that gives the reason for the transition into the object's \
    current status.";
pub(crate) const SUBOBJECT: &str = "\
    If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go \
    field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a \
    container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the \
    name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" \
    (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a \
    part of an object.";
pub(crate) const FIRST_SEEN: &str =
    "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)";
