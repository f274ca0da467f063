//! Joins JSON schemas and facts into the compiled form.
//!
//! Schemas declare and describe the fields. Facts add the order of fields, the Go types, the fields that are omitted
//! when empty, and the merge strategies of lists.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::builder::{Builder, Compiled, FieldSpec, NodeId, NodeSpec};
use crate::facts::{Facts, FieldFacts, Notes, TypeFacts};
use crate::kinds::CollectedKinds;
use crate::layout::{OMIT_ZERO, POINTER, POINTER_ITEMS, REQUIRED, Type, ZERO_DEFAULT};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

/// Alpha fields of `k8s-openapi` that the sources of the facts do not have, because they are newer. Objects cannot have
/// them until the facts are read from newer sources.
const WITHOUT_FACTS: [(&str, &str); 5] = [
    ("DeviceCounterConsumption", "compatibilityGroups"),
    ("DeviceRequest", "derivedAttributes"),
    ("DeviceSubRequest", "derivedAttributes"),
    ("ExactDeviceRequest", "derivedAttributes"),
    ("NodeSystemInfo", "runningInUserNamespace"),
];

/// The type that only these fields have.
const TYPE_WITHOUT_FACTS: &str = ".DeviceDerivedAttribute";

/// Returns the compiled form of all collected kinds and definitions.
pub fn compile(collected: &CollectedKinds, facts: &Facts) -> Compiled {
    let mut compiler = Compiler { definitions: &collected.definitions, facts, builder: Builder::default() };
    for name in collected.definitions.keys().filter(|name| !name.ends_with(TYPE_WITHOUT_FACTS)) {
        compiler.definition(name);
    }
    for kind in &collected.kinds {
        let node = compiler.definition(&kind.definition);
        compiler.builder.kind(kind.group, kind.version, kind.kind, node);
        if kind.listed {
            let list = compiler.list(&kind.definition, kind.kind, node);
            compiler.builder.kind(kind.group, kind.version, &format!("{}List", kind.kind), list);
        }
    }
    compiler.builder.finish()
}

struct Compiler<'a> {
    definitions: &'a BTreeMap<String, Value>,
    facts: &'a Facts,
    builder: Builder,
}

impl Compiler<'_> {
    fn definition(&mut self, name: &str) -> NodeId {
        let (id, new) = self.builder.reserve(name);
        if new {
            let schema = self.definitions.get(name).unwrap_or_else(|| panic!("{name} is referred to but not defined"));
            let spec = self.definition_spec(name, &schema.clone());
            self.builder.define(id, spec);
        }
        id
    }

    fn definition_spec(&mut self, name: &str, schema: &Value) -> NodeSpec {
        let go_type = go_type_of(name);
        let description = text(schema, "description");
        let spec = match special(name) {
            Some(Type::Either) => self.either(schema),
            Some(of) => NodeSpec { of, ..NodeSpec::default() },
            None => self.object(name, schema),
        };
        NodeSpec { name: name.to_owned(), go_type, description, ..spec }
    }

    /// Compiles a schema with `oneOf`: the definition of an object, or a value of another type.
    fn either(&mut self, schema: &Value) -> NodeSpec {
        let choices = schema["oneOf"].as_array().expect("an either lists its choices");
        let [object, other] = choices.as_slice() else { panic!("an either has two choices: {schema}") };
        let go_type = if other["type"] == "array" { "[]string" } else { "bool" };
        let child = Some(self.node(object, "", &Notes::default()));
        let other = Some(self.node(other, go_type, &Notes::default()));
        NodeSpec { of: Type::Either, child, other, ..NodeSpec::default() }
    }

    fn object(&mut self, name: &str, schema: &Value) -> NodeSpec {
        let empty = TypeFacts::default();
        let mut properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let short = name.rsplit('.').next().unwrap_or(name);
        properties.retain(|property, _| !WITHOUT_FACTS.contains(&(short, property.as_str())));
        let facts = self.facts.definition(name).unwrap_or(&empty);
        for property in properties.keys() {
            assert!(facts.fields.iter().any(|f| f.name == *property), "facts/ has no entry for {name} {property}");
        }
        let root = properties.contains_key("apiVersion") && properties.contains_key("kind");
        let fields = facts
            .fields
            .iter()
            .map(|field| {
                let property = properties.get(&field.name);
                let property =
                    property.unwrap_or_else(|| panic!("facts/ has a field that {name} lacks: {}", field.name));
                // k8s-openapi requires the metadata of kinds because its Rust types cannot omit it. The API does not
                // require it.
                let required = is_required(schema, &field.name) && !(root && field.name == "metadata");
                self.field(field, property, field.notes.required.unwrap_or(required))
            })
            .collect();
        NodeSpec {
            of: Type::Object,
            fields,
            map_type: facts.notes.map_type,
            union: facts.notes.union.clone(),
            ..NodeSpec::default()
        }
    }

    fn field(&mut self, facts: &FieldFacts, schema: &Value, required: bool) -> FieldSpec {
        let (go_type, pointer) = match facts.go_type.strip_prefix('*') {
            Some(rest) => (rest, true),
            None => (facts.go_type.as_str(), false),
        };
        let node = self.node(schema, go_type, &facts.notes);
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let referred = schema.get("$ref").is_some();
        FieldSpec {
            name: facts.name.clone(),
            node,
            flags: flag(required, REQUIRED)
                | flag(facts.omit_zero, OMIT_ZERO)
                | flag(pointer, POINTER)
                | flag(facts.notes.zero_default, ZERO_DEFAULT),
            description: text(schema, "description"),
            default: facts.notes.default.clone(),
            patch: facts.notes.patch,
            merge_key: facts.notes.merge_key.clone(),
            embedded_in: facts.notes.embedded_in.clone(),
            map_type: if referred { facts.notes.map_type } else { Default::default() },
        }
    }

    fn node(&mut self, schema: &Value, go_type: &str, notes: &Notes) -> NodeId {
        if let Some(reference) = schema["$ref"].as_str() {
            return self.definition(reference.rsplit('/').next().unwrap_or(reference));
        }
        let spec = match schema["type"].as_str() {
            Some("array") => self.parts(Type::Array, &schema["items"], go_type, notes),
            Some("object") => match schema.get("additionalProperties") {
                Some(values) => self.parts(Type::Map, values, go_type, notes),
                None => NodeSpec::leaf(Type::Object, go_type),
            },
            Some("string") if schema["format"] == "byte" => NodeSpec::leaf(Type::Bytes, go_type),
            Some("string") => {
                let allowed = self.facts.values_of(go_type).to_vec();
                NodeSpec { allowed, ..NodeSpec::leaf(Type::String, go_type) }
            }
            Some("integer") if schema["format"] == "int64" => NodeSpec::leaf(Type::Int64, go_type),
            Some("integer") => NodeSpec::leaf(Type::Int32, go_type),
            Some("number") => NodeSpec::leaf(Type::Number, go_type),
            Some("boolean") => NodeSpec::leaf(Type::Boolean, go_type),
            _ => panic!("a schema of no known form: {schema}"),
        };
        self.builder.add(spec)
    }

    fn parts(&mut self, of: Type, child: &Value, go_type: &str, notes: &Notes) -> NodeSpec {
        let element = element_of(go_type);
        let (bare, flags) = match element.strip_prefix('*') {
            Some(rest) => (rest, POINTER_ITEMS),
            None => (element, 0),
        };
        NodeSpec {
            child: Some(self.node(child, bare, &Notes::default())),
            list_type: notes.list_type,
            list_keys: notes.list_keys.clone(),
            map_type: notes.map_type,
            flags,
            ..NodeSpec::leaf(of, go_type)
        }
    }

    /// Adds the list kind of a kind. For all list kinds, `k8s-openapi` has only one generic type without a schema.
    fn list(&mut self, definition: &str, kind: &str, item: NodeId) -> NodeId {
        let name = format!("{definition}List");
        let (id, _) = self.builder.reserve(&name);
        let string = self.builder.add(NodeSpec::leaf(Type::String, "string"));
        let metadata = self.definition(&format!("{META}ListMeta"));
        let item_type = go_type_of(definition);
        let items = NodeSpec { child: Some(item), ..NodeSpec::leaf(Type::Array, &format!("[]{item_type}")) };
        let items = self.builder.add(items);
        let field = |name: &str, node, flags, description: &str| FieldSpec {
            name: name.to_owned(),
            node,
            flags,
            description: description.to_owned(),
            default: String::new(),
            patch: 0,
            merge_key: String::new(),
            embedded_in: String::new(),
            map_type: Default::default(),
        };
        let fields = vec![
            field("kind", string, OMIT_ZERO, &self.description_of(definition, "kind")),
            field("apiVersion", string, OMIT_ZERO, &self.description_of(definition, "apiVersion")),
            field("metadata", metadata, 0, LIST_METADATA),
            // If the list is absent, it is written as an empty list, never as null.
            field("items", items, REQUIRED | POINTER, &format!("List of {}.", plural_words(kind))),
        ];
        let description = format!("{kind}List is a list of objects of kind {kind}.");
        let go_type = go_type_of(&name);
        self.builder
            .define(id, NodeSpec { of: Type::Object, name, go_type, description, fields, ..NodeSpec::default() });
        id
    }

    fn description_of(&self, definition: &str, field: &str) -> String {
        text(&self.definitions[definition]["properties"][field], "description")
    }
}

const LIST_METADATA: &str = "Standard list metadata: the resourceVersion of the list, and the token of the next chunk.";

/// The plural of a kind in words: `pod templates` of `PodTemplate`.
fn plural_words(kind: &str) -> String {
    let letters: Vec<char> = kind.chars().collect();
    let mut words = String::new();
    for (place, letter) in letters.iter().enumerate() {
        let begins_word = place > 0
            && letter.is_uppercase()
            && (letters[place - 1].is_lowercase() || letters.get(place + 1).is_some_and(|next| next.is_lowercase()));
        if begins_word {
            words.push(' ');
        }
        words.push(*letter);
    }
    // Abbreviations such as `CSI` stay as they are.
    let lower =
        |word: &str| if word.chars().skip(1).any(char::is_lowercase) { word.to_lowercase() } else { word.to_owned() };
    let mut plural = words.split(' ').map(lower).collect::<Vec<_>>().join(" ");
    if plural.ends_with("points") {
        return plural;
    }
    match plural.pop() {
        Some('y') => plural.push_str("ies"),
        Some(last @ ('s' | 'x')) => plural.extend([last, 'e', 's']),
        Some(last) => plural.extend([last, 's']),
        None => {}
    }
    plural
}

/// The type of a definition whose published schema does not state its JSON form.
fn special(name: &str) -> Option<Type> {
    if let Some(name) = name.strip_prefix(META) {
        return match name {
            "Time" => Some(Type::Time),
            "MicroTime" => Some(Type::MicroTime),
            "FieldsV1" => Some(Type::Any),
            _ => None,
        };
    }
    if let Some(name) = name.strip_prefix(EXTENSIONS) {
        return match name {
            "JSON" => Some(Type::Any),
            "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => Some(Type::Either),
            _ => None,
        };
    }
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => Some(Type::Quantity),
        "io.k8s.apimachinery.pkg.runtime.RawExtension" => Some(Type::Any),
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => Some(Type::IntOrString),
        _ => None,
    }
}

/// The Go type of a definition: `v1.Pod` for `io.k8s.api.core.v1.Pod`.
fn go_type_of(definition: &str) -> String {
    let mut parts = definition.rsplitn(3, '.');
    let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{package}.{name}")
}

/// The element of `[]T` or `map[K]T`. If a named type hides the element, it counts as a string.
fn element_of(go_type: &str) -> &str {
    let element = go_type.strip_prefix("[]").or_else(|| go_type.strip_prefix("map[")?.split_once(']').map(|(_, v)| v));
    element.unwrap_or("string")
}

fn is_required(schema: &Value, field: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|name| name == field))
}

fn text(schema: &Value, key: &str) -> String {
    schema[key].as_str().unwrap_or_default().to_owned()
}
