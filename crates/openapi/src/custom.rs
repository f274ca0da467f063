//! The definitions of a custom kind and of its list kind.
//!
//! The definitions have the form of those of built-in kinds: the fields that every object has, whatever the schema
//! states for them, with references to the shared definitions of metadata. Texts are those of kube-apiserver, which
//! `kubectl explain` shows.

use std::sync::Arc;

use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Map, Value, json};
use keelson_schema::{SchemaDocument, Schemas};

use crate::definitions::META;
use crate::description::ResourceDescription;
use crate::published;
use crate::schema::{Dialect, kind};

/// A custom kind in one version.
#[derive(Clone, Debug)]
pub struct CustomKind {
    /// The kind of its lists.
    pub list_kind: String,
    /// The selectable fields of this version, such as `spec.colour`.
    pub selectable_fields: Vec<String>,
    /// The schema of the kind. A kind without one is published as an object with any fields.
    pub schema: Option<Arc<dyn SchemaDocument>>,
}

const OBJECT_METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const LIST_ITEMS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const EMBEDDED_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The shared definitions that these refer to.
pub(crate) const SHARED: [&str; 2] = ["ObjectMeta", "ListMeta"];

/// The name of a custom kind's definition: the reversed group, the version and the kind. A user may choose the group so
/// that a built-in definition has this name. As in kube-apiserver, the custom kind then gets a numeric suffix.
pub(crate) fn definition_name(kind: &GroupVersionKind, schemas: &Schemas) -> String {
    let group: Vec<&str> = kind.group.rsplit('.').collect();
    let name = format!("{}.{}.{}", group.join("."), kind.version, kind.kind);
    if schemas.definition(&name).is_none() {
        return name;
    }
    let numbered = (2_u32..).map(|number| format!("{name}_v{number}"));
    let mut free = numbered.filter(|candidate| schemas.definition(candidate).is_none());
    free.next().expect("there are more numbers than built-in definitions")
}

/// The kind of a custom kind's lists.
pub(crate) fn list_kind(resource: &ResourceDescription, custom: &CustomKind) -> GroupVersionKind {
    GroupVersionKind { kind: custom.list_kind.clone(), ..resource.kind.clone() }
}

/// The names of the definitions of a resource's kind and list kind.
pub(crate) fn definition_names(resource: &ResourceDescription, custom: &CustomKind, schemas: &Schemas) -> [String; 2] {
    [&resource.kind, &list_kind(resource, custom)].map(|kind| definition_name(kind, schemas))
}

/// The definitions of a resource's kind and list kind, by name.
///
/// Cost: parsing and copying its schema.
pub(crate) fn definitions(
    resource: &ResourceDescription,
    custom: &CustomKind,
    dialect: Dialect,
    schemas: &Schemas,
) -> [(String, Value); 2] {
    let lists = list_kind(resource, custom);
    let of_object = named(object(custom, dialect, schemas), &resource.kind, custom);
    let of_list = named(list(resource, &lists, dialect, schemas), &lists, custom);
    let [object_name, list_name] = definition_names(resource, custom, schemas);
    [(object_name, of_object), (list_name, of_list)]
}

fn object(custom: &CustomKind, dialect: Dialect, schemas: &Schemas) -> Map {
    let document = custom.schema.as_ref().and_then(|schema| schema.read());
    let known =
        document.as_ref().and_then(Value::as_object).filter(|document| !published::takes_any(document, dialect));
    // No field is named here, since kubectl would treat the named fields as the only ones.
    let Some(document) = known else { return map(json!({ "type": "object" })) };
    let mut definition = published::schema(document, dialect);
    own_fields(&mut definition, OBJECT_METADATA, "ObjectMeta", dialect, schemas);
    definition
}

fn list(resource: &ResourceDescription, lists: &GroupVersionKind, dialect: Dialect, schemas: &Schemas) -> Map {
    let items = json!({
        "description": format!("List of {}. More info: {LIST_ITEMS}", resource.plural),
        "type": "array",
        "items": dialect.reference(&definition_name(&resource.kind, schemas)),
    });
    let mut definition = map(json!({
        "description": format!("{} is a list of {}", lists.kind, resource.kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": { "items": items },
    }));
    own_fields(&mut definition, LIST_METADATA, "ListMeta", dialect, schemas);
    definition
}

/// Sets the fields that every object has.
fn own_fields(definition: &mut Map, about_metadata: &str, metadata: &str, dialect: Dialect, schemas: &Schemas) {
    let status = schemas.definition(&format!("{META}Status"));
    let text = |name| {
        let description = status.and_then(|status| status.field(name)).map_or("", |field| field.description());
        json!({ "description": description, "type": "string" })
    };
    let metadata = metadata_field(about_metadata, metadata, dialect);
    let fields = [("apiVersion", text("apiVersion")), ("kind", text("kind")), ("metadata", metadata)];
    published::add_properties(definition, fields);
}

/// Sets the fields of an embedded object.
pub(crate) fn embed(definition: &mut Map, dialect: Dialect) {
    let text = |description| json!({ "description": description, "type": "string" });
    let metadata = metadata_field(OBJECT_METADATA, "ObjectMeta", dialect);
    let fields = [("apiVersion", text(EMBEDDED_VERSION)), ("kind", text(EMBEDDED_KIND)), ("metadata", metadata)];
    published::add_properties(definition, fields);
    let mut required = match definition.remove("required") {
        Some(Value::Array(stated)) => stated,
        _ => Vec::new(),
    };
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known.as_str() == Some(name)) {
            required.push(name.into());
        }
    }
    definition.insert("required", required);
}

fn metadata_field(description: &str, definition: &str, dialect: Dialect) -> Value {
    let beside = map(json!({ "description": description }));
    dialect.referring(&format!("{META}{definition}"), beside)
}

/// The definition with its kind and selectable fields.
fn named(mut definition: Map, of: &GroupVersionKind, custom: &CustomKind) -> Value {
    definition.insert("x-kubernetes-group-version-kind", Value::Array(vec![kind(of)]));
    if !custom.selectable_fields.is_empty() {
        let fields = custom.selectable_fields.iter().map(|path| json!({ "fieldPath": path }));
        definition.insert("x-kubernetes-selectable-fields", Value::Array(fields.collect()));
    }
    Value::Object(definition)
}

fn map(value: Value) -> Map {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
