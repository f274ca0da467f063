//! Types of expressions, and assignability between them.
//!
//! A type that is not known yet is a variable. A [`Unifier`] holds its binding.

use crate::decl::ObjectType;
use std::fmt;
use std::sync::Arc;

/// A type.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // They are the names of CEL's types.
pub enum Type {
    /// Any type. It is known only at run time.
    Dyn,
    /// The type of an expression with a reported fault. It causes no further reports.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// The type of types.
    Type(Arc<Type>),
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// A type with a name, such as `optional_type`, and parameters.
    Opaque(Arc<str>, Arc<[Type]>),
    /// Null or a scalar, like the wrapper types of protocol buffers.
    Wrapper(Arc<Type>),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    /// A type parameter in a function's declaration.
    Param(char),
    /// A type variable.
    Var(u32),
}

/// The name of the type of optional values.
pub const OPTIONAL: &str = "optional_type";

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Type(a), Self::Type(b)) | (Self::List(a), Self::List(b)) | (Self::Wrapper(a), Self::Wrapper(b)) => {
                a == b
            }
            (Self::Map(a), Self::Map(b)) => a == b,
            (Self::Opaque(a, x), Self::Opaque(b, y)) => a == b && x == y,
            (Self::Object(a), Self::Object(b)) => a.name == b.name,
            (Self::Param(a), Self::Param(b)) => a == b,
            (Self::Var(a), Self::Var(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Type {
    /// The type of a list.
    pub fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    /// The type of a map.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// A named type.
    pub fn opaque(name: &str) -> Self {
        Self::Opaque(name.into(), Arc::new([]))
    }

    /// The type of an optional value.
    pub fn optional(value: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::new([value]))
    }

    /// The value type of an optional type.
    pub fn as_optional(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, params) if &**name == OPTIONAL => params.first(),
            _ => None,
        }
    }

    /// Returns true for `dyn` and the type of faults.
    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Returns true if all values of the type have the same size.
    pub fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            _ => self.as_optional().is_some_and(Self::is_scalar),
        }
    }

    /// The runtime name, without parameters.
    pub fn runtime_name(&self) -> String {
        match self {
            Self::Null => "null_type".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::List(_) => "list".to_owned(),
            Self::Map(_) => "map".to_owned(),
            Self::Type(_) => "type".to_owned(),
            Self::Opaque(name, _) => (**name).to_owned(),
            Self::Wrapper(inner) => inner.runtime_name(),
            _ => self.to_string(),
        }
    }

    fn params(&self) -> &[Self] {
        match self {
            Self::List(of) | Self::Type(of) => std::slice::from_ref(of),
            Self::Opaque(_, params) => params,
            _ => &[],
        }
    }

    /// Returns true if kind, name and parameters are equal.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Map(a), Self::Map(b)) => a.0.is_equivalent(&b.0) && a.1.is_equivalent(&b.1),
            (Self::List(a), Self::List(b)) => a.is_equivalent(b),
            (Self::Type(_), Self::Type(_)) => true,
            _ => self == other,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dyn => "dyn",
            Self::Error => "!error!",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::Type(of) => return write!(f, "type({of})"),
            Self::List(element) => return write!(f, "list({element})"),
            Self::Map(of) => return write!(f, "map({}, {})", of.0, of.1),
            Self::Wrapper(of) => return write!(f, "wrapper({of})"),
            Self::Opaque(name, params) if params.is_empty() => name,
            Self::Opaque(name, params) => {
                let params: Vec<String> = params.iter().map(Self::to_string).collect();
                return write!(f, "{name}({})", params.join(", "));
            }
            Self::Object(object) => &object.name,
            Self::Param(name) => return write!(f, "{name}"),
            Self::Var(number) => return write!(f, "_var{number}"),
        })
    }
}

/// The maximum number of parts of a type. Without it, types could grow without limit: a loop that uses its variable
/// twice doubles the type.
const MAX_PARTS: usize = 1_000;
/// The maximum number of comparisons of types for one expression. Expressions written by hand need far fewer.
const MAX_COMPARED: u32 = 2_000_000;

/// The bindings of type variables.
#[derive(Default)]
pub struct Unifier {
    compared: u32,
    found: Vec<Option<Type>>,
    /// Earlier bindings, to which a failed attempt returns.
    trail: Vec<(usize, Option<Type>)>,
}

impl Unifier {
    /// A new type variable.
    pub fn fresh(&mut self) -> Type {
        self.found.push(None);
        Type::Var(u32::try_from(self.found.len() - 1).unwrap_or(u32::MAX))
    }

    fn get(&self, number: u32) -> Option<&Type> {
        self.found.get(number as usize)?.as_ref()
    }

    fn set(&mut self, number: u32, to: Type) {
        if let Some(place) = self.found.get_mut(number as usize) {
            let before = place.replace(to);
            self.trail.push((number as usize, before));
        }
    }

    /// Returns true if each type is assignable to the type at the same place in the other list. Keeps the bindings only
    /// in this case.
    pub fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mark = self.trail.len();
        if from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.is_assignable(from, to)) {
            self.trail.clear();
            return true;
        }
        for (number, before) in self.trail.drain(mark..).rev() {
            self.found[number] = before;
        }
        false
    }

    /// As [`Self::assign_all`], for one type.
    pub fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    fn is_assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.compared += 1;
        if self.compared > MAX_COMPARED {
            return false;
        }
        if let Type::Var(number) = to {
            let had = self.get(*number).is_some();
            if self.substitutes(from, to, *number) {
                return true;
            }
            if had {
                return false;
            }
        }
        if let Type::Var(number) = from {
            return self.substitutes(to, from, *number);
        }
        match (from, to) {
            (a, b) if a.is_dyn_or_error() || b.is_dyn_or_error() => true,
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Wrapper(inner), other) | (other, Type::Wrapper(inner)) => {
                if let Type::Wrapper(other) = other {
                    inner == other
                } else {
                    **inner == *other
                }
            }
            (Type::Type(_), Type::Type(_)) => true,
            (Type::Map(a), Type::Map(b)) => {
                let (a, b) = (a.clone(), b.clone());
                self.is_assignable(&a.0, &b.0) && self.is_assignable(&a.1, &b.1)
            }
            (Type::List(_), Type::List(_)) | (Type::Opaque(..), Type::Opaque(..)) => {
                let is_same = match (from, to) {
                    (Type::Opaque(a, x), Type::Opaque(b, y)) => a == b && x.len() == y.len(),
                    _ => true,
                };
                is_same && from.params().iter().zip(to.params()).all(|(a, b)| self.is_assignable(a, b))
            }
            (a, b) => a == b,
        }
    }

    /// Returns true if a type variable, or its binding, can take the place of a type.
    fn substitutes(&mut self, other: &Type, variable: &Type, number: u32) -> bool {
        if other == variable {
            return true;
        }
        if let Some(known) = self.get(number).cloned() {
            if *other == known {
                return true;
            }
            if !self.is_assignable(other, &known) {
                return false;
            }
            let general = most_general(other, &known);
            if !self.is_within(number, &general) {
                self.set(number, general);
            }
            return true;
        }
        if self.is_within(number, other) {
            return false;
        }
        self.set(number, other.clone());
        true
    }

    /// Returns true if a type variable occurs in another type.
    fn is_within(&self, number: u32, within: &Type) -> bool {
        match within {
            Type::Var(other) if *other == number => true,
            Type::Var(other) => self.get(*other).is_some_and(|known| self.is_within(number, known)),
            Type::Map(of) => self.is_within(number, &of.0) || self.is_within(number, &of.1),
            other => other.params().iter().any(|param| self.is_within(number, param)),
        }
    }

    /// Replaces the variables in a type by their bindings. Unbound variables become `dyn` if `unknown_is_dyn` is set.
    ///
    /// Parts above the limit become `dyn` too.
    pub fn resolve(&self, of: &Type, unknown_is_dyn: bool) -> Type {
        self.resolve_parts(of, unknown_is_dyn, &mut { MAX_PARTS })
    }

    fn resolve_parts(&self, of: &Type, unknown_is_dyn: bool, left: &mut usize) -> Type {
        let Some(rest) = left.checked_sub(1) else { return Type::Dyn };
        *left = rest;
        let mut inner = |of: &Type| self.resolve_parts(of, unknown_is_dyn, left);
        match of {
            Type::Var(number) => match self.get(*number) {
                Some(known) => inner(known),
                None if unknown_is_dyn => Type::Dyn,
                None => of.clone(),
            },
            Type::List(element) => Type::list(inner(element)),
            Type::Map(of) => {
                let key = inner(&of.0);
                Type::map(key, inner(&of.1))
            }
            Type::Type(of) => Type::Type(Arc::new(inner(of))),
            Type::Opaque(name, params) if !params.is_empty() => {
                Type::Opaque(name.clone(), params.iter().map(inner).collect())
            }
            other => other.clone(),
        }
    }
}

fn is_nullable(of: &Type) -> bool {
    matches!(of, Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Wrapper(_) | Type::Duration | Type::Timestamp)
}

/// The more general of two compatible types.
pub fn most_general(left: &Type, right: &Type) -> Type {
    if is_less_specific(left, right) { left.clone() } else { right.clone() }
}

fn is_less_specific(left: &Type, right: &Type) -> bool {
    match (left, right) {
        (Type::Dyn | Type::Var(_), _) => true,
        (_, Type::Dyn | Type::Var(_)) => false,
        (Type::Map(a), Type::Map(b)) => is_less_specific(&a.0, &b.0) && is_less_specific(&a.1, &b.1),
        (Type::List(a), Type::List(b)) => is_less_specific(a, b),
        (Type::Opaque(a, x), Type::Opaque(b, y)) => {
            a == b && x.len() == y.len() && x.iter().zip(y.iter()).all(|(x, y)| is_less_specific(x, y))
        }
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a == b,
    }
}
