//! Strategic merge patch: a partial object that is merged into the target. The schema states the rule for each field.
//!
//! As in a JSON merge patch, objects are merged and null removes a member. Lists are merged item by item if the schema
//! says so. Members whose names begin with `$` are directives. The schema is known only through [`MergeSchema`].
//!
//! The behaviour is that of upstream's `k8s.io/apimachinery/pkg/util/strategicpatch`, including the positions of items.
//! If upstream's result depends on the random order of Go's maps, the order of the patch is used.

mod element_order;
mod error;
mod list;
mod object;
mod order;
mod schema;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};

pub use error::StrategicError;

use crate::error::PatchError;

/// The directive of an object or a list item.
const DIRECTIVE: &str = "$patch";
/// Lists the members of an object to keep.
const RETAIN_KEYS: &str = "$retainKeys";
/// The prefix of a list of scalars to delete. `/` and the name of the target list follow.
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
/// The prefix of the order of a list. `/` and the name of the list follow.
const ELEMENT_ORDER: &str = "$setElementOrder";

/// The schema of a value as a patch needs it. It must be as cheap to copy as a reference.
pub trait MergeSchema<'a>: Copy {
    /// The Go kind of the value.
    fn go_kind(self) -> GoKind;
    /// The Go name of the type, for messages, such as `PodSpec`.
    fn type_name(self) -> &'a str;
    /// The field of a struct. `None` for an unknown field or another kind.
    fn field(self, name: &str) -> Option<Self>;
    /// The items of a list.
    fn items(self) -> Option<Self>;
    /// The strategy of the field through which the schema was reached.
    fn strategy(self) -> Strategy<'a>;
}

/// The Go kinds that patches distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoKind {
    /// Declared fields.
    Struct,
    /// Any keys.
    Map,
    /// Items.
    List,
    /// A value without parts.
    Scalar,
}

impl GoKind {
    /// The name of the Go kind.
    fn kind(self) -> &'static str {
        match self {
            Self::Struct => "struct",
            Self::Map => "map",
            Self::List => "slice",
            Self::Scalar => "string",
        }
    }
}

/// The rule for a field that is present in both the target and the patch. There is no variant for `retainKeys`, since
/// the patch itself lists the keys to retain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy<'a> {
    /// Objects are merged, lists are replaced.
    Unset,
    /// The value is replaced.
    Replace,
    /// Objects are merged, and so are lists of scalars.
    Merge,
    /// Lists of objects are merged by this key.
    MergeByKey(&'a str),
}

/// Merges the patch into the target. Cost: proportional to the patch, the merged lists, and the objects that lose
/// members.
///
/// # Errors
/// The first invalid directive or list.
pub fn apply<'a>(mut target: Map, patch: &Map, schema: impl MergeSchema<'a>) -> Result<Map, StrategicError> {
    object::merge(&mut target, patch, schema)?;
    Ok(target)
}

/// Merges the patch into an API object. `null` is an empty patch.
///
/// # Errors
/// As [`apply`], and [`StrategicError::NotAnObject`] if the patch is not an object.
pub fn apply_to_object<'a>(target: Object, patch: &Value, schema: impl MergeSchema<'a>) -> Result<Object, PatchError> {
    match patch {
        Value::Object(patch) => Ok(Object(apply(target.0, patch, schema)?)),
        Value::Null => Ok(target),
        other => Err(StrategicError::not_an_object(other).into()),
    }
}
