//! The schema as field ownership needs it. Compiled schemas implement it.
//!
//! The schema is a trait, so that tests and kinds without a schema can have their own implementation.

use keelson_meta::json::Value;
use keelson_schema::{ListType, MapType, SchemaRef, Type};

/// A schema. It must be as cheap to copy as a reference.
pub trait FieldSchema<'a>: Copy {
    /// The granularity of ownership of the values.
    fn form(self) -> Granularity;
    /// The schema of the member with this name, of an object or a map.
    fn member(self, name: &str) -> Member<Self>;
    /// As `member`, for successive lookups. `near` must be 0 at first. A schema may keep its position there, so that
    /// names in declared order need no search.
    fn member_near(self, name: &str, _near: &mut usize) -> Member<Self> {
        self.member(name)
    }
    /// The schema of the items of a list.
    fn items(self) -> Option<Self>;
    /// The names of the key fields of a keyed list.
    fn keys(self) -> impl Iterator<Item = &'a str>;
    /// The default of a key field of the items of this list.
    fn key_default(self, key: &str) -> Option<Value>;
    /// Returns true if null is a valid value.
    fn takes_null(self) -> bool {
        true
    }
    /// Returns true if the schema may have changed since an owner was recorded, as for custom resources.
    fn may_change(self) -> bool {
        false
    }
}

/// The granularity of ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// A scalar.
    Scalar(Scalar),
    /// Any value, owned as a whole.
    Any,
    /// A list, owned as a whole.
    AtomicList,
    /// An object or a map, owned as a whole.
    AtomicMap,
    /// An object or map whose members are owned separately.
    Map,
    /// A list whose items are owned separately. Items are identified by their values.
    Set,
    /// A list whose items, and the fields in them, are owned separately. Items are identified by key fields.
    KeyedList,
    /// A value without a schema. Its JSON type decides: the members of an object are owned separately, any other value
    /// as a whole.
    Deduced,
}

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Text.
    String,
    /// A number.
    Numeric,
    /// True or false.
    Boolean,
    /// Any of these.
    Untyped,
}

/// The schema of a member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member<S> {
    /// A declared field.
    Field(S),
    /// An entry of a map.
    Entry(S),
    /// Allowed, without a schema.
    Unknown,
    /// Not allowed.
    Undeclared,
}

impl<'a> FieldSchema<'a> for SchemaRef<'a> {
    #[inline]
    fn form(self) -> Granularity {
        match self.value_type() {
            Type::Any if self.preserves_unknown_fields() => Granularity::Deduced,
            Type::Any | Type::Either => Granularity::Any,
            Type::Object | Type::Map => match self.map_type() {
                MapType::Atomic => Granularity::AtomicMap,
                MapType::Unset | MapType::Granular => Granularity::Map,
            },
            Type::Array => match self.list_type() {
                ListType::Unset | ListType::Atomic => Granularity::AtomicList,
                ListType::Set => Granularity::Set,
                ListType::Map => Granularity::KeyedList,
            },
            Type::String | Type::Bytes => Granularity::Scalar(Scalar::String),
            Type::Int32 | Type::Int64 | Type::Number => Granularity::Scalar(Scalar::Numeric),
            Type::Boolean => Granularity::Scalar(Scalar::Boolean),
            Type::IntOrString | Type::Quantity | Type::Time | Type::MicroTime => Granularity::Scalar(Scalar::Untyped),
        }
    }

    #[inline]
    fn member(self, name: &str) -> Member<Self> {
        self.member_near(name, &mut 0)
    }

    #[inline]
    fn member_near(self, name: &str, near: &mut usize) -> Member<Self> {
        if let Some(field) = self.field_near(name, near) {
            return Member::Field(field);
        }
        match (self.value_type(), SchemaRef::items(self)) {
            (Type::Map, Some(values)) => Member::Entry(values),
            _ if self.preserves_unknown_fields() => Member::Unknown,
            _ => Member::Undeclared,
        }
    }

    #[inline]
    fn items(self) -> Option<Self> {
        SchemaRef::items(self)
    }

    fn keys(self) -> impl Iterator<Item = &'a str> {
        self.list_keys()
    }

    fn takes_null(self) -> bool {
        !self.is_structural() || self.nullable() || self.value_type() == Type::Any
    }

    fn may_change(self) -> bool {
        self.is_structural()
    }

    fn key_default(self, key: &str) -> Option<Value> {
        let field = SchemaRef::items(self)?.field(key)?;
        match field.default_json() {
            Some(default) => serde_json::from_str(default).ok(),
            None => always_written(field),
        }
    }
}

/// The value of a built-in kind's field if it is absent but never omitted from the encoding. Upstream publishes this
/// value as a default, so an item without the key has this value as its key.
fn always_written(field: SchemaRef<'_>) -> Option<Value> {
    if field.is_structural() || field.pointer() || field.omitted_when_zero() {
        return None;
    }
    match field.value_type() {
        Type::String => Some(Value::from("")),
        Type::Int32 | Type::Int64 | Type::Number => Some(Value::from(0)),
        _ => None,
    }
}
