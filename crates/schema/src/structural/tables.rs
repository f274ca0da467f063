//! Compiles a structural schema to tables with the shape of its objects, in the same form as for built-in kinds.
//!
//! Fields are declared in alphabetical order, as kube-apiserver writes custom objects. A schema that has no type but
//! preserves unknown fields accepts any value. If it does not preserve them either, values are kept, but objects in
//! them lose all fields. Descriptions are not kept, since OpenAPI reads the document.

use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Map, Value};

use crate::builder::{Builder, FieldSpec, NodeId, NodeSpec};
use crate::layout::{
    FILLS_METADATA, ListType, MapType, NULLABLE, OMIT_ZERO, POINTER, PRESERVE_UNKNOWN, REQUIRED, STRUCTURAL, Type,
};
use crate::schemas::{SchemaRef, Schemas};

/// The definition of `ObjectMeta`.
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Options for reading a document.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// The schema belongs to an object with its own metadata.
    pub(super) whole: bool,
    /// Unknown fields are kept everywhere.
    pub(super) keeps_unknown: bool,
    /// The metadata of objects may have any fields.
    pub(super) any_metadata: bool,
}

pub(super) fn compile(kind: &GroupVersionKind, document: &Value, reading: Reading) -> Schemas {
    let mut tables = Tables { builder: Builder::default(), reading };
    let root = tables.node(document, if reading.whole { Role::Object } else { Role::Part });
    tables.builder.kind(&kind.group, &kind.version, &kind.kind, root);
    Schemas::from_compiled(tables.builder.finish())
}

/// The schema of `ObjectMeta`.
pub(super) fn metadata() -> Option<SchemaRef<'static>> {
    Schemas::builtin().definition(METADATA)
}

struct Tables {
    builder: Builder,
    reading: Reading,
}

/// The role of a schema within the schema around it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// An object with its own metadata.
    Object,
    /// A field, a map entry or an item.
    Part,
    /// An item of an array that preserves unknown fields. Unknown fields of the item are preserved too. Below a
    /// declared field, pruning begins again.
    PreservedItem,
}

impl Tables {
    fn node(&mut self, document: &Value, role: Role) -> NodeId {
        let empty = Map::new();
        let schema = document.as_object().unwrap_or(&empty);
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        let mut node = NodeSpec { flags: STRUCTURAL, ..NodeSpec::default() };
        if flag("nullable") {
            node.flags |= NULLABLE;
        }
        let keeps_unknown = self.reading.keeps_unknown || role == Role::PreservedItem;
        if flag("x-kubernetes-preserve-unknown-fields") || keeps_unknown {
            node.flags |= PRESERVE_UNKNOWN;
        }
        node.of = match text("type") {
            // Older definitions may omit the type of the root schema.
            _ if role == Role::Object => Type::Object,
            _ if flag("x-kubernetes-int-or-string") => Type::IntOrString,
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Int64,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Any,
        };
        node.map_type = match text("x-kubernetes-map-type") {
            "atomic" => MapType::Atomic,
            "granular" => MapType::Granular,
            _ => MapType::Unset,
        };
        match node.of {
            Type::Object => {
                self.object(schema, &mut node, role == Role::Object || flag("x-kubernetes-embedded-resource"));
            }
            Type::Array => self.list(schema, &mut node),
            _ => {}
        }
        self.builder.add(node)
    }

    fn object(&mut self, schema: &Map, node: &mut NodeSpec, whole: bool) {
        let declared = schema.get("properties").and_then(Value::as_object);
        match schema.get("additionalProperties") {
            // Properties that are forbidden are not pruned, so that validation refuses them.
            Some(values) if declared.is_none_or(Map::is_empty) => {
                node.of = Type::Map;
                node.child = Some(self.node(values, Role::Part));
                node.default_of_items = default_of(Some(values));
                return;
            }
            _ => {}
        }
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let declared = declared.into_iter().flatten();
        node.fields = declared
            .filter(|(name, _)| !(whole && matches!(*name, "apiVersion" | "kind" | "metadata")))
            .map(|(name, schema)| {
                let is_required = required.iter().any(|required| required.as_str() == Some(name));
                let default = default_of(Some(schema));
                field(name, self.node(schema, Role::Part), if is_required { REQUIRED } else { 0 }, default)
            })
            .collect();
        if whole {
            let text = self.builder.add(NodeSpec { flags: STRUCTURAL, ..NodeSpec::leaf(Type::String, "") });
            let (metadata, default) = self.metadata(schema);
            let stated = |name: &str| default_of(declared_in(schema, name));
            // The fields of the whole resource have no defaults.
            let own = [
                ("apiVersion", text, stated("apiVersion")),
                ("kind", text, stated("kind")),
                ("metadata", metadata, default),
            ];
            node.fields.extend(own.map(|(name, schema, default)| field(name, schema, 0, default)));
        }
        node.fields.sort_by(|left, right| left.name.cmp(&right.name));
    }

    /// The schema of an object's metadata, and its default.
    fn metadata(&mut self, schema: &Map) -> (NodeId, String) {
        let mut node = NodeSpec { flags: STRUCTURAL | PRESERVE_UNKNOWN, of: Type::Any, ..NodeSpec::default() };
        if self.reading.any_metadata {
            return (self.builder.add(node), String::new());
        }
        let declared = declared_in(schema, "metadata");
        let Some(fields) = declared.and_then(Value::as_object).filter(|_| declared.is_some_and(has_default)) else {
            return (NodeId::OBJECT_META, String::new());
        };
        self.object(fields, &mut node, false);
        (node.of, node.flags) = (Type::Object, node.flags | FILLS_METADATA);
        (self.builder.add(node), default_of(declared))
    }

    fn list(&mut self, schema: &Map, node: &mut NodeSpec) {
        let role = if node.flags & PRESERVE_UNKNOWN == 0 { Role::Part } else { Role::PreservedItem };
        node.child = Some(self.node(schema.get("items").unwrap_or(&Value::Null), role));
        node.default_of_items = default_of(schema.get("items"));
        node.list_type = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map,
            Some("atomic") => ListType::Atomic,
            _ => ListType::Unset,
        };
        let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
        node.list_keys = keys.filter_map(Value::as_str).map(str::to_owned).collect();
    }
}

/// The schema of a declared field.
fn declared_in<'s>(schema: &'s Map, name: &str) -> Option<&'s Value> {
    schema.get("properties")?.get(name)
}

/// The default of a schema as text, empty where there is none.
fn default_of(schema: Option<&Value>) -> String {
    schema.and_then(|schema| schema.get("default")).map(Value::to_string).unwrap_or_default()
}

/// Returns true if a schema, or one of its fields, has a default.
fn has_default(schema: &Value) -> bool {
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    schema.get("default").is_some() || fields.map(|(_, schema)| schema).any(has_default)
}

/// A field that stays absent if it is absent, and is otherwise kept unchanged.
fn field(name: &str, node: NodeId, flags: u32, default: String) -> FieldSpec {
    FieldSpec {
        name: name.to_owned(),
        node,
        flags: flags | OMIT_ZERO | POINTER,
        description: String::new(),
        default,
        patch: 0,
        merge_key: String::new(),
        embedded_in: String::new(),
        map_type: MapType::Unset,
    }
}
