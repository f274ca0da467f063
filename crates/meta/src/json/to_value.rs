//! Converts any serializable type to a tree.
//!
//! The tree equals the JSON text of the type: unit and `None` are null. A variant is its name, or an object with its
//! name and contents.

use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};
use serde_json::Error;

use super::{Map, Text, Value};

/// The tree of a serializable value.
///
/// # Errors
/// A map has keys that are not texts, an integer has more than 64 bits, or the type itself fails.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, Error> {
    value.serialize(Trees)
}

/// The serializer of trees.
struct Trees;

/// Collects the elements of an array.
struct Elements {
    elements: Vec<Value>,
    /// The name of the enclosing variant.
    variant: Option<&'static str>,
}

/// Collects the fields of an object.
struct Fields {
    fields: Map,
    /// The name of the field whose value is next.
    key: Text,
    /// The name of the enclosing variant.
    variant: Option<&'static str>,
}

impl Elements {
    fn new(count: Option<usize>, variant: Option<&'static str>) -> Self {
        Self { elements: Vec::with_capacity(count.unwrap_or_default()), variant }
    }
}

impl Fields {
    fn new(count: Option<usize>, variant: Option<&'static str>) -> Self {
        Self { fields: Map::with_capacity(count.unwrap_or_default()), key: Text::default(), variant }
    }
}

/// Wraps the contents of a variant in an object with the variant's name.
fn in_variant(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(name) => Value::from_iter([(name, value)]),
        None => value,
    }
}

/// Serializes types with a `From` conversion.
macro_rules! plain {
    ($($name:ident: $of:ty),+) => {
        $(fn $name(self, value: $of) -> Result<Value, Error> {
            Ok(value.into())
        })+
    };
}

impl Serializer for Trees {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = Elements;
    type SerializeTuple = Elements;
    type SerializeTupleStruct = Elements;
    type SerializeTupleVariant = Elements;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Fields;

    plain! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_f32: f32, serialize_f64: f64, serialize_str: &str
    }

    fn serialize_char(self, value: char) -> Result<Value, Error> {
        Ok(Value::String(Text::from_iter([value])))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Value, Error> {
        Ok(bytes.into())
    }

    fn serialize_none(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Error> {
        to_value(value)
    }

    fn serialize_unit(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, Error> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value, Error> {
        to_value(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        Ok(in_variant(Some(variant), to_value(value)?))
    }

    fn serialize_seq(self, count: Option<usize>) -> Result<Elements, Error> {
        Ok(Elements::new(count, None))
    }

    fn serialize_tuple(self, count: usize) -> Result<Elements, Error> {
        Ok(Elements::new(Some(count), None))
    }

    fn serialize_tuple_struct(self, _: &'static str, count: usize) -> Result<Elements, Error> {
        Ok(Elements::new(Some(count), None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        count: usize,
    ) -> Result<Elements, Error> {
        Ok(Elements::new(Some(count), Some(variant)))
    }

    fn serialize_map(self, count: Option<usize>) -> Result<Fields, Error> {
        Ok(Fields::new(count, None))
    }

    fn serialize_struct(self, _: &'static str, count: usize) -> Result<Fields, Error> {
        Ok(Fields::new(Some(count), None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        count: usize,
    ) -> Result<Fields, Error> {
        Ok(Fields::new(Some(count), Some(variant)))
    }
}

impl SerializeSeq for Elements {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.elements.push(to_value(value)?);
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(in_variant(self.variant, Value::Array(self.elements)))
    }
}

/// Serializes the other kinds of sequences.
macro_rules! as_sequence {
    ($($kind:ident: $add:ident),+) => {
        $(impl serde::ser::$kind for Elements {
            type Ok = Value;
            type Error = Error;

            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                SerializeSeq::serialize_element(self, value)
            }

            fn end(self) -> Result<Value, Error> {
                SerializeSeq::end(self)
            }
        })+
    };
}

as_sequence! {
    SerializeTuple: serialize_element, SerializeTupleStruct: serialize_field, SerializeTupleVariant: serialize_field
}

impl SerializeMap for Fields {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = match to_value(key)? {
            Value::String(key) => key,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return Err(Error::custom("key must be a string"));
            }
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.fields.insert(std::mem::take(&mut self.key), to_value(value)?);
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(in_variant(self.variant, Value::Object(self.fields)))
    }
}

impl SerializeStruct for Fields {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.fields.insert(Text::const_new(name), to_value(value)?);
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        SerializeMap::end(self)
    }
}

impl serde::ser::SerializeStructVariant for Fields {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        SerializeStruct::serialize_field(self, name, value)
    }

    fn end(self) -> Result<Value, Error> {
        SerializeMap::end(self)
    }
}
