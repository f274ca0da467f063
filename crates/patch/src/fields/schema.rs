//! The view of a schema that the arithmetic of fields needs, and compiled schemas as it looks at them.
//!
//! It is a trait, so that tests and kinds without a schema have their own.

use keelson_meta::json::Value;
use keelson_schema::{ListType, MapType, SchemaRef, Type};

/// A schema; as cheap to copy as a reference.
pub trait FieldSchema<'a>: Copy {
    /// How values are owned.
    fn form(self) -> Granularity;
    /// What the schema says of the member with this name, of an object or a map.
    fn member(self, name: &str) -> Member<Self>;
    /// The same, of members that are asked for one after another. Where they stand in declared order, a schema that keeps
    /// in `near`, which begins at 0, how far it got has nothing to search.
    fn member_near(self, name: &str, _near: &mut usize) -> Member<Self> {
        self.member(name)
    }
    /// The schema of the items of a list.
    fn items(self) -> Option<Self>;
    /// The names of the key fields of a keyed list.
    fn keys(self) -> impl Iterator<Item = &'a str>;
    /// The value that a key field of the items of this list has when it is absent.
    fn key_default(self, key: &str) -> Option<Value>;
    /// Returns true if null is a value here.
    fn takes_null(self) -> bool {
        true
    }
    /// Returns true if the schema may have been another one when an owner was noted.
    fn may_change(self) -> bool {
        false
    }
}

/// How values are owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// As one: a value without parts.
    Scalar(Scalar),
    /// As one: any value, whatever is in it.
    Any,
    /// As one: a list.
    AtomicList,
    /// As one: an object or a map.
    AtomicMap,
    /// Member by member.
    Map,
    /// Item by item; items are told apart by their values.
    Set,
    /// Item by item and what is in them; items are told apart by key fields.
    KeyedList,
    /// By what the value is: objects member by member, all else as one.
    Deduced,
}

/// What a scalar may be.
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

/// What a schema says of a member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member<S> {
    /// A declared field.
    Field(S),
    /// An entry of a map.
    Entry(S),
    /// No more than that it may be there.
    Unknown,
    /// That it may not be there.
    Undeclared,
}

impl<'a> FieldSchema<'a> for SchemaRef<'a> {
    #[inline]
    fn form(self) -> Granularity {
        match self.of() {
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
        match (self.of(), SchemaRef::items(self)) {
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
        !self.is_structural() || self.nullable() || self.of() == Type::Any
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

/// What stands in a field of a built-in kind whenever it was left out, since it is never left out itself: upstream publishes it as a
/// default, so that an item without a key has that key.
fn always_written(field: SchemaRef<'_>) -> Option<Value> {
    if field.is_structural() || field.pointer() || field.omitted_when_zero() {
        return None;
    }
    match field.of() {
        Type::String => Some(Value::from("")),
        Type::Int32 | Type::Int64 | Type::Number => Some(Value::from(0)),
        _ => None,
    }
}
