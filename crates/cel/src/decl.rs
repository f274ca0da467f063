//! Declarations of the data that expressions see: types with sizes, and objects with fields.
//!
//! Sizes bound what an expression may cost before there is any data. A declaration also says how a value of the tree is to
//! be read: that a text is a time, for instance, or that the order of a list does not matter.

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
    /// What it is.
    pub kind: DeclKind,
    /// Its type.
    pub ty: Type,
    /// How many elements, entries, characters or bytes it has at most; 0 where that does not count.
    pub max_elements: u64,
    /// How many bytes it takes at least in JSON.
    pub min_size: u64,
}

/// What is declared.
#[derive(Debug)]
pub enum DeclKind {
    /// Data as it is, of whatever kind.
    Dyn,
    /// An integer, or a number that is one.
    Int,
    /// A number, integers among them.
    Double,
    /// A text or a truth value, as it is.
    Plain,
    /// Bytes, in base64.
    Bytes,
    /// A duration, in a text.
    Duration,
    /// A time, in a text.
    Timestamp,
    /// A quantity of a resource, in a text.
    Quantity,
    /// A list.
    List(Arc<Decl>, ListKind),
    /// A map with texts for keys.
    Map(Arc<Decl>),
    /// An object.
    Object(Arc<ObjectType>),
}

/// When two lists are the same.
#[derive(Debug, PartialEq, Eq)]
pub enum ListKind {
    /// When they have the same elements in the same order.
    Atomic,
    /// When they have the same elements.
    Set,
    /// When they have the same elements, which are known by these fields.
    Map(Vec<String>),
}

/// An object with declared fields.
#[derive(Debug)]
pub struct ObjectType {
    /// The type's name.
    pub name: String,
    /// The fields under their names in expressions.
    pub fields: BTreeMap<String, Field>,
}

impl ObjectType {
    /// The field of this name in expressions. A reserved word names its field plainly after a dot (`self.namespace`), as well as escaped.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.get(name).or_else(|| if is_reserved(name) { self.fields.get(&escape(name)?) } else { None })
    }
}

/// A declared field.
#[derive(Debug)]
pub struct Field {
    /// Its name in the data.
    pub property: String,
    /// What it is.
    pub decl: Arc<Decl>,
}

impl Decl {
    fn scalar(kind: DeclKind, ty: Type, min_size: u64) -> Arc<Self> {
        Arc::new(Self { kind, ty, max_elements: 0, min_size })
    }

    /// Data of any kind.
    pub fn any() -> Arc<Self> {
        Self::scalar(DeclKind::Dyn, Type::Dyn, 1)
    }

    /// A truth value.
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

    /// A time of so many characters at most.
    pub fn timestamp(max_elements: u64, min_size: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Timestamp, ty: Type::Timestamp, max_elements, min_size })
    }

    /// A duration of so many characters at most.
    pub fn duration(max_elements: u64, min_size: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Duration, ty: Type::Duration, max_elements, min_size })
    }

    /// A text of so many bytes at most.
    pub fn string(max_elements: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Plain, ty: Type::String, max_elements, min_size: MIN_TEXT })
    }

    /// Bytes, so many of them at most.
    pub fn bytes(max_elements: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Bytes, ty: Type::Bytes, max_elements, min_size: MIN_TEXT })
    }

    /// An integer or a text of so many characters at most.
    pub fn int_or_string(max_elements: u64) -> Arc<Self> {
        Arc::new(Self { kind: DeclKind::Dyn, ty: Type::Dyn, max_elements, min_size: 1 })
    }

    /// A list of so many elements at most.
    pub fn list(items: Arc<Self>, max_elements: u64, kind: ListKind) -> Arc<Self> {
        let ty = Type::list(items.ty.clone());
        Arc::new(Self { kind: DeclKind::List(items, kind), ty, max_elements, min_size: MIN_CONTAINER })
    }

    /// A map of so many entries at most.
    pub fn map(values: Arc<Self>, max_elements: u64) -> Arc<Self> {
        let ty = Type::map(Type::String, values.ty.clone());
        Arc::new(Self { kind: DeclKind::Map(values), ty, max_elements, min_size: MIN_CONTAINER })
    }

    /// An object of this name with these fields, by their names in the data.
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

    /// An object of this name with fields that are called in expressions as they are in the data.
    pub fn fields(name: &str, fields: impl IntoIterator<Item = (String, Arc<Self>)>) -> Arc<Self> {
        let fields = fields.into_iter().map(|(name, decl)| (name.clone(), Field { property: name, decl }));
        let object = Arc::new(ObjectType { name: name.to_owned(), fields: fields.collect() });
        let ty = Type::Object(object.clone());
        Arc::new(Self { kind: DeclKind::Object(object), ty, max_elements: 0, min_size: MIN_CONTAINER })
    }

    /// A quantity of a resource.
    pub fn quantity() -> Arc<Self> {
        Self::scalar(DeclKind::Quantity, Type::opaque("kubernetes.Quantity"), MIN_TEXT)
    }

    /// A value of a type of which no more is known.
    pub fn of(ty: Type) -> Arc<Self> {
        Self::scalar(DeclKind::Dyn, ty, 1)
    }

    /// The declaration of the elements or values, if it has such.
    pub fn element(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::List(items, _) => Some(items),
            DeclKind::Map(values) => Some(values),
            _ => None,
        }
    }

    /// The field of that name in expressions, if it has one.
    pub fn field(&self, name: &str) -> Option<&Field> {
        if let DeclKind::Object(object) = &self.kind { object.field(name) } else { None }
    }
}

/// The bytes of an empty text.
const MIN_TEXT: u64 = 2;
/// The bytes of an empty list or object.
const MIN_CONTAINER: u64 = 2;
