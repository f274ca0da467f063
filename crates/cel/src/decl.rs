//! Declarations of the data that expressions read: types with sizes, and objects with fields.
//!
//! Sizes limit the cost of an expression before there is data. A declaration also determines how a value is read, for
//! example a string as a time, or a list as a set.

mod escape;
mod schema;

use escape::is_reserved;
pub use escape::{escape, is_identifier};
pub use schema::from_schema;

use crate::types::Type;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The declaration of a value.
#[derive(Debug)]
pub struct Decl {
    /// The kind of value.
    pub kind: DeclKind,
    /// Its type.
    pub ty: Type,
    /// The maximum number of elements, entries, characters or bytes. 0 for types without a size.
    pub max_elements: u64,
    /// The minimum size of the value in JSON, in bytes.
    pub min_size: u64,
}

/// The kinds of values.
#[derive(Debug)]
pub enum DeclKind {
    /// Data of any type. It is not converted.
    Dyn,
    /// An integer, or a float without a fraction.
    Int,
    /// A number.
    Double,
    /// A string or a boolean. It is not converted.
    Plain,
    /// Bytes, in base64.
    Bytes,
    /// A duration as a string.
    Duration,
    /// A time as a string.
    Timestamp,
    /// A resource quantity as a string.
    Quantity,
    /// A list.
    List(Arc<Decl>, ListKind),
    /// A map with string keys.
    Map(Arc<Decl>),
    /// An object.
    Object(Arc<ObjectType>),
}

/// The rule by which two lists are equal.
#[derive(Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Equal elements in the same order.
    Atomic,
    /// A set: equal elements in any order.
    Set,
    /// A map: equal elements in any order. These fields are the keys of an element.
    Map(Vec<String>),
}

/// An object with declared fields.
#[derive(Debug)]
pub struct ObjectType {
    /// The type's name.
    pub name: String,
    /// The fields by their names in expressions.
    pub fields: BTreeMap<String, Field>,
}

impl ObjectType {
    /// The field with this name in expressions. A field whose name is a reserved word can be selected under its name
    /// (`self.namespace`) and under its escaped name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.get(name).or_else(|| if is_reserved(name) { self.fields.get(&escape(name)?) } else { None })
    }
}

/// A declared field.
#[derive(Debug)]
pub struct Field {
    /// Its name in the data.
    pub property: String,
    /// Its declaration.
    pub decl: Arc<Decl>,
}

impl Decl {
    fn scalar(kind: DeclKind, ty: Type, min_size: u64) -> Arc<Self> {
        Arc::new(Self { kind, ty, max_elements: 0, min_size })
    }

    /// Data of any type.
    pub fn any() -> Arc<Self> {
        Self::scalar(DeclKind::Dyn, Type::Dyn, 1)
    }

    /// A boolean.
    pub fn bool() -> Arc<Self> {
        Self::scalar(DeclKind::Plain, Type::Bool, 4)
    }

    /// An integer.
    pub fn int() -> Arc<Self> {
        Self::scalar(DeclKind::Int, Type::Int, 1)
    }

    /// A number.
    pub fn double() -> Arc<Self> {
        Self::scalar(DeclKind::Double, Type::Double, 1)
    }

    /// A time of at most `max_elements` characters.
    pub fn timestamp(max_elements: u64, min_size: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Timestamp, ty: Type::Timestamp, max_elements, min_size })
    }

    /// A duration of at most `max_elements` characters.
    pub fn duration(max_elements: u64, min_size: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Duration, ty: Type::Duration, max_elements, min_size })
    }

    /// A string of at most `max_elements` bytes.
    pub fn string(max_elements: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Plain, ty: Type::String, max_elements, min_size: MIN_TEXT })
    }

    /// At most `max_elements` bytes.
    pub fn bytes(max_elements: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Bytes, ty: Type::Bytes, max_elements, min_size: MIN_TEXT })
    }

    /// An integer or a string of at most `max_elements` characters.
    pub fn int_or_string(max_elements: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Dyn, ty: Type::Dyn, max_elements, min_size: 1 })
    }

    /// A list of at most `max_elements` elements.
    pub fn list(items: Arc<Self>, max_elements: u64, kind: ListKind) -> Arc<Self> {
        let ty = Type::list(items.ty.clone());
        Arc::new(Self { kind: DeclKind::List(items, kind), ty, max_elements, min_size: MIN_CONTAINER })
    }

    /// A map of at most `max_elements` entries.
    pub fn map(values: Arc<Self>, max_elements: u64) -> Arc<Self> {
        let ty = Type::map(Type::String, values.ty.clone());
        Arc::new(Self { kind: DeclKind::Map(values), ty, max_elements, min_size: MIN_CONTAINER })
    }

    /// An object with these fields, by their names in the data.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (String, Arc<Self>)>) -> Arc<Self> {
        Self::object_of(name, fields, MIN_CONTAINER)
    }

    fn object_of(name: &str, fields: impl IntoIterator<Item = (String, Arc<Self>)>, min_size: u64) -> Arc<Self> {
        let fields =
            fields.into_iter().filter_map(|(property, decl)| Some((escape(&property)?, Field { property, decl })));
        let object = Arc::new(ObjectType { name: name.to_owned(), fields: fields.collect() });
        let ty = Type::Object(object.clone());
        Arc::new(Self { kind: DeclKind::Object(object), ty, max_elements: 0, min_size })
    }

    /// An object whose fields have the same names in expressions as in the data.
    pub fn fields(name: &str, fields: impl IntoIterator<Item = (String, Arc<Self>)>) -> Arc<Self> {
        let fields = fields.into_iter().map(|(name, decl)| (name.clone(), Field { property: name, decl }));
        let object = Arc::new(ObjectType { name: name.to_owned(), fields: fields.collect() });
        let ty = Type::Object(object.clone());
        Arc::new(Self { kind: DeclKind::Object(object), ty, max_elements: 0, min_size: MIN_CONTAINER })
    }

    /// A resource quantity.
    pub fn quantity() -> Arc<Self> {
        Self::scalar(DeclKind::Quantity, Type::opaque("kubernetes.Quantity"), MIN_TEXT)
    }

    /// A value of this type, with no further declaration.
    pub fn new(ty: Type) -> Arc<Self> {
        Self::scalar(DeclKind::Dyn, ty, 1)
    }

    /// The declaration of the elements or values, for a list or map.
    pub fn element(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::List(items, _) => Some(items),
            DeclKind::Map(values) => Some(values),
            _ => None,
        }
    }

    /// The field of this name in expressions.
    pub fn field(&self, name: &str) -> Option<&Field> {
        if let DeclKind::Object(object) = &self.kind { object.field(name) } else { None }
    }
}

/// The size of an empty string in bytes.
const MIN_TEXT: u64 = 2;
/// The size of an empty list or object in bytes.
const MIN_CONTAINER: u64 = 2;
