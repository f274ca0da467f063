//! Strategic merge patch: a partial object laid over the target by rules that the schema gives each field.
//!
//! Objects are merged and null removes, as in a JSON merge patch; lists that the schema says so of are merged item by item.
//! Members whose names begin with `$` are directives. Knows the schema only through [`MergeSchema`]. The behaviour is that
//! of upstream's `k8s.io/apimachinery/pkg/util/strategicpatch`, down to the places where items end up; where upstream's
//! result depends on the order in which Go walks a map, the order of the patch counts here.

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

/// The directive that an object or an item of a list holds.
const DIRECTIVE: &str = "$patch";
/// Lists the members of an object that are kept.
const RETAIN_KEYS: &str = "$retainKeys";
/// Beginning of the name of a list of what is deleted from a list of scalars; after a `/` comes the list's name.
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
/// Beginning of the name of a list that gives the order of a list; after a `/` comes the list's name.
const ELEMENT_ORDER: &str = "$setElementOrder";

/// What a patch needs to know about a value; as cheap to copy as a reference.
pub trait MergeSchema<'a>: Copy {
    /// What the value may be.
    fn go_kind(self) -> GoKind;
    /// The Go name of the type, for messages, such as `PodSpec`.
    fn type_name(self) -> &'a str;
    /// The field of a struct; `None` if there is no such field or the value is no struct.
    fn field(self, name: &str) -> Option<Self>;
    /// The items of a list.
    fn items(self) -> Option<Self>;
    /// What a patch does with the field through which the schema was reached.
    fn strategy(self) -> Strategy<'a>;
}

/// The Go kinds that a patch tells apart.
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

/// What a patch does with a field that both the target and the patch have. The strategy `retainKeys` has no form of its
/// own: the patch says itself what is retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy<'a> {
    /// Objects are merged, lists are replaced.
    Unset,
    /// The value is replaced.
    Replace,
    /// Objects are merged, and so are lists of scalars.
    Merge,
    /// Lists of objects are merged; the items that have the same value of this key belong together.
    MergeByKey(&'a str),
}

/// Lays the patch over the target. Cost: proportional to the patch, the merged lists and the objects that members are
/// removed from.
///
/// # Errors
/// The first directive or list that cannot be followed.
pub fn apply<'a>(mut target: Map, patch: &Map, schema: impl MergeSchema<'a>) -> Result<Map, StrategicError> {
    object::merge(&mut target, patch, schema)?;
    Ok(target)
}

/// Lays the patch over an API object.
///
/// # Errors
/// As [`apply`]; [`StrategicError::NotAnObject`] if the patch is none. `null` is an empty patch.
pub fn apply_to_object<'a>(target: Object, patch: &Value, schema: impl MergeSchema<'a>) -> Result<Object, PatchError> {
    match patch {
        Value::Object(patch) => Ok(Object(apply(target.0, patch, schema)?)),
        Value::Null => Ok(target),
        other => Err(StrategicError::not_an_object(other).into()),
    }
}
