//! The environment of an expression: the variables, functions, types and messages that it can use.
//!
//! `environments` has the environment of each place in Kubernetes where expressions are used.

use crate::decl::Decl;
use crate::overloads::Functions;
use crate::parser::Macros;
use crate::types::Type;
use std::sync::Arc;

/// The names available to an expression.
#[derive(Debug, Clone)]
pub struct Environment {
    variables: Vec<Variable>,
    functions: Arc<Functions>,
    macros: Macros,
    objects: Vec<Type>,
}

/// A variable.
#[derive(Debug, Clone)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The declaration of the value, if there is one.
    pub decl: Option<Arc<Decl>>,
}

/// A message that an expression can create.
#[derive(Debug)]
pub struct Message {
    /// The type of the created message.
    pub result: Type,
    fields: MessageFields,
}

#[derive(Debug)]
enum MessageFields {
    Declared(&'static [(&'static str, Type)]),
    Any,
}

impl Message {
    /// The type of a field.
    pub fn field(&self, name: &str) -> Option<Type> {
        match self.fields {
            MessageFields::Declared(fields) => {
                fields.iter().find(|(field, _)| *field == name).map(|(_, ty)| ty.clone())
            }
            MessageFields::Any => Some(Type::Dyn),
        }
    }
}

impl Environment {
    /// Creates an environment with the functions that are available everywhere in Kubernetes, and no variables.
    pub fn kubernetes() -> Self {
        static FUNCTIONS: std::sync::LazyLock<Arc<Functions>> =
            std::sync::LazyLock::new(|| Arc::new(Functions::kubernetes()));
        Self { variables: Vec::new(), functions: FUNCTIONS.clone(), macros: Macros::default(), objects: Vec::new() }
    }

    /// Adds a variable of a type.
    #[must_use]
    pub fn with(mut self, name: &str, ty: Type) -> Self {
        self.variables.push(Variable { name: name.to_owned(), ty, decl: None });
        self
    }

    /// Adds a variable with a declaration of its fields and sizes.
    #[must_use]
    pub fn with_declared(mut self, name: &str, decl: &Arc<Decl>) -> Self {
        self.variables.push(Variable { name: name.to_owned(), ty: decl.ty.clone(), decl: Some(decl.clone()) });
        self
    }

    /// Adds a variable with a declaration, whose value may be absent.
    #[must_use]
    pub fn with_optional(mut self, name: &str, decl: &Arc<Decl>) -> Self {
        let ty = Type::optional(decl.ty.clone());
        self.variables.push(Variable { name: name.to_owned(), ty, decl: Some(decl.clone()) });
        self
    }

    /// Adds `cel.bind`.
    #[must_use]
    pub fn with_bindings(mut self) -> Self {
        self.macros.bind = true;
        self
    }

    /// Adds the functions and messages of patches: `Object` with any fields, and `JSONPatch`.
    #[must_use]
    pub fn with_patches(mut self) -> Self {
        let mut functions = (*self.functions).clone();
        functions.add_json_patch();
        self.functions = Arc::new(functions);
        self.objects.push(Type::opaque("Object"));
        self.objects.push(Type::opaque("JSONPatch"));
        self
    }

    /// The variables.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The variable of this name and its index.
    pub fn variable(&self, name: &str) -> Option<(usize, &Variable)> {
        self.variables.iter().enumerate().find(|(_, variable)| variable.name == name)
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    pub(crate) fn macros(&self) -> Macros {
        self.macros
    }

    /// The type with this name.
    pub(crate) fn named_type(&self, name: &str) -> Option<Type> {
        Some(match name {
            "bool" => Type::Bool,
            "bytes" => Type::Bytes,
            "double" => Type::Double,
            "int" => Type::Int,
            "list" => Type::list(Type::Dyn),
            "map" => Type::map(Type::Dyn, Type::Dyn),
            "null_type" => Type::Null,
            "string" => Type::String,
            "type" => Type::opaque("type"),
            "uint" => Type::Uint,
            // Only the checker knows these two names. As upstream, planning the program then finds no such type.
            "duration" | "google.protobuf.Duration" => Type::Duration,
            "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
            crate::types::OPTIONAL => Type::optional(Type::Dyn),
            "kubernetes.URL"
            | "net.IP"
            | "net.CIDR"
            | "kubernetes.Quantity"
            | "kubernetes.Semver"
            | "kubernetes.NamedFormat" => Type::opaque(name),
            _ => return self.objects.iter().find(|object| object.to_string() == name).cloned(),
        })
    }

    /// The message type with this name.
    pub(crate) fn message(&self, name: &str) -> Option<Message> {
        const SECONDS: &[(&str, Type)] = &[("seconds", Type::Int), ("nanos", Type::Int)];
        const PATCH: &[(&str, Type)] =
            &[("op", Type::String), ("path", Type::String), ("from", Type::String), ("value", Type::Dyn)];
        let wrapper = |of: Type, fields: &'static [(&'static str, Type)]| (Type::Wrapper(of.into()), fields);
        let (result, fields): (Type, &'static [(&'static str, Type)]) = match name {
            "google.protobuf.Duration" => (Type::Duration, SECONDS),
            "google.protobuf.Timestamp" => (Type::Timestamp, SECONDS),
            "google.protobuf.BoolValue" => wrapper(Type::Bool, &[("value", Type::Bool)]),
            "google.protobuf.BytesValue" => wrapper(Type::Bytes, &[("value", Type::Bytes)]),
            "google.protobuf.DoubleValue" | "google.protobuf.FloatValue" => {
                wrapper(Type::Double, &[("value", Type::Double)])
            }
            "google.protobuf.Int32Value" | "google.protobuf.Int64Value" => wrapper(Type::Int, &[("value", Type::Int)]),
            "google.protobuf.StringValue" => wrapper(Type::String, &[("value", Type::String)]),
            "google.protobuf.UInt32Value" | "google.protobuf.UInt64Value" => {
                wrapper(Type::Uint, &[("value", Type::Uint)])
            }
            "google.protobuf.Struct" => (Type::map(Type::String, Type::Dyn), &[]),
            "google.protobuf.ListValue" => (Type::list(Type::Dyn), &[]),
            "google.protobuf.Value" => (Type::Dyn, &[]),
            _ => {
                let is_part = |object: &&Type| name == object.to_string() || name.starts_with(&format!("{object}."));
                let object = self.objects.iter().find(is_part)?;
                if object.to_string() == "JSONPatch" {
                    return Some(Message { result: object.clone(), fields: MessageFields::Declared(PATCH) });
                }
                // Parts of an object are not distinguished: for each of them an object with any fields is accepted.
                return Some(Message { result: Type::opaque("Object"), fields: MessageFields::Any });
            }
        };
        Some(Message { result, fields: MessageFields::Declared(fields) })
    }
}
