//! A position in a schema during the walk of a value. It also represents values without a schema.
//!
//! Values without a schema are walked by their JSON types, so the same code walks both.

use keelson_meta::json::Value;

use super::schema::{FieldSchema, Granularity, Member};

/// The schema at a position. Absent if the value and everything below it have no schema.
#[derive(Clone, Copy)]
pub(super) enum View<S> {
    Known(S),
    /// No schema: the JSON type determines ownership.
    Deduced,
}

/// The walk of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// Not walked: the value is owned as a whole.
    Leaf,
    Members,
    Items,
}

impl<'a, S: FieldSchema<'a>> View<S> {
    pub(super) fn form(self) -> Granularity {
        match self {
            Self::Known(schema) => schema.form(),
            Self::Deduced => Granularity::Deduced,
        }
    }

    pub(super) fn takes_null(self) -> bool {
        match self {
            Self::Known(schema) => schema.takes_null(),
            Self::Deduced => true,
        }
    }

    /// Returns how to walk a value. Null is accepted in place of any object.
    pub(super) fn walk(self, value: &Value) -> Walk {
        match (self.form(), value) {
            (Granularity::Scalar(_) | Granularity::Any | Granularity::AtomicList | Granularity::AtomicMap, _) => {
                Walk::Leaf
            }
            (Granularity::Map, _) | (Granularity::Deduced, Value::Object(_) | Value::Null) => Walk::Members,
            (Granularity::Set | Granularity::KeyedList, _) => Walk::Items,
            (Granularity::Deduced, Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Walk::Leaf
            }
        }
    }

    /// Returns the view of a member, and true if it is a declared field. `near` is as for [`FieldSchema::member_near`].
    pub(super) fn member_near(self, name: &str, near: &mut usize) -> (Self, bool) {
        match self {
            Self::Deduced => (Self::Deduced, false),
            Self::Known(schema) => match schema.member_near(name, near) {
                Member::Field(field) => (Self::Known(field), true),
                Member::Entry(entry) => (Self::Known(entry), false),
                Member::Unknown | Member::Undeclared => (Self::Deduced, false),
            },
        }
    }

    pub(super) fn items(self) -> Self {
        match self {
            Self::Deduced => Self::Deduced,
            Self::Known(schema) => schema.items().map_or(Self::Deduced, Self::Known),
        }
    }
}
