//! Schemas in the syntax of both OpenAPI versions.
//!
//! Version 2 has no defaults and no alternatives, and in it an int-or-string is a string. In version 3 a `$ref` can't
//! have other members beside it, so a reference with a description is wrapped in `allOf`.

use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Map, Value, json};
use keelson_schema::{ListType, MapType, SchemaRef, Type};

use crate::definitions::Kinds;

/// The version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    /// A reference to a definition.
    pub(crate) fn reference(self, name: &str) -> Value {
        let place = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({ "$ref": format!("{place}{name}") })
    }

    /// The schema of a body: a reference, or any object without a definition.
    pub(crate) fn body(self, name: Option<&str>) -> Value {
        name.map_or_else(|| json!({ "type": "object" }), |name| self.reference(name))
    }

    /// A definition in full.
    pub(crate) fn definition(self, schema: SchemaRef<'_>, kinds: &Kinds) -> Value {
        let mut out = Map::new();
        set_text(&mut out, "description", schema.definition_description());
        self.set_type(&mut out, schema);
        set_map_type(&mut out, schema.map_type());
        if schema.preserves_unknown_fields() {
            set(&mut out, "x-kubernetes-preserve-unknown-fields", true);
        }
        set_union(&mut out, schema);
        let kinds = kinds.kinds(schema.definition_name().unwrap_or_default());
        if !kinds.is_empty() {
            set(&mut out, "x-kubernetes-group-version-kind", kinds.iter().map(kind).collect::<Vec<_>>());
        }
        Value::Object(out)
    }

    /// The schema of a field, with the properties of the field itself.
    fn field(self, field: SchemaRef<'_>) -> Value {
        let mut beside = Map::new();
        let named = field.definition_name();
        // A description equal to that of the definition is left out, since the definition has it.
        if named.is_none() || field.description() != field.definition_description() {
            set_text(&mut beside, "description", field.description());
        }
        if self == Self::V3
            && let Some(default) = default_of(field)
        {
            set(&mut beside, "default", default);
        }
        let strategy = field.patch_strategy();
        let strategies =
            [(strategy.merge, "merge"), (strategy.replace, "replace"), (strategy.retain_keys, "retainKeys")];
        let strategies: Vec<&str> = strategies.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
        set_text(&mut beside, "x-kubernetes-patch-strategy", &strategies.join(","));
        set_text(&mut beside, "x-kubernetes-patch-merge-key", field.merge_key().unwrap_or_default());
        if let Some(name) = named {
            let own = field.map_type();
            set_map_type(&mut beside, if own == field.without_field().map_type() { MapType::Unset } else { own });
            return self.referring(name, beside);
        }
        self.set_type(&mut beside, field);
        set_map_type(&mut beside, field.map_type());
        Value::Object(beside)
    }

    /// The schema of list items or map values.
    fn element(self, parent: SchemaRef<'_>, element: SchemaRef<'_>) -> Value {
        let mut beside = Map::new();
        if self == Self::V3
            && !parent.pointer_items()
            && let Some(zero) = zero_of(element)
        {
            set(&mut beside, "default", zero);
        }
        if let Some(name) = element.definition_name() {
            return self.referring(name, beside);
        }
        self.set_type(&mut beside, element);
        Value::Object(beside)
    }

    /// A reference with other members beside it.
    pub(crate) fn referring(self, name: &str, mut beside: Map) -> Value {
        let reference = self.reference(name);
        if beside.is_empty() {
            return reference;
        }
        match (self, reference) {
            (Self::V2, Value::Object(mut reference)) => {
                reference.append(&mut beside);
                Value::Object(reference)
            }
            (_, reference) => {
                beside.insert("allOf", Value::Array(vec![reference]));
                Value::Object(beside)
            }
        }
    }

    /// Sets the type of a value, without descriptions.
    fn set_type(self, out: &mut Map, schema: SchemaRef<'_>) {
        match schema.value_type() {
            Type::Any => {
                // The schemas in custom resource definitions allow any value. Any other value without declared fields
                // is an object.
                if !schema.definition_name().is_some_and(|name| name.ends_with("apiextensions.v1.JSON")) {
                    set(out, "type", "object");
                }
            }
            Type::Either => {}
            Type::Object => self.set_object(out, schema),
            Type::Map => {
                set(out, "type", "object");
                if let Some(values) = schema.items() {
                    set(out, "additionalProperties", self.element(schema, values));
                }
            }
            Type::Array => self.set_array(out, schema),
            Type::String => set(out, "type", "string"),
            Type::Int32 => set_format(out, "integer", "int32"),
            Type::Int64 => set_format(out, "integer", "int64"),
            Type::Number => set_format(out, "number", "double"),
            Type::Boolean => set(out, "type", "boolean"),
            Type::Bytes => set_format(out, "string", "byte"),
            Type::Time | Type::MicroTime => set_format(out, "string", "date-time"),
            Type::IntOrString => {
                set(out, "format", "int-or-string");
                self.set_choice(out, ["integer", "string"]);
            }
            Type::Quantity => self.set_choice(out, ["string", "number"]),
        }
        if self == Self::V3 && schema.nullable() {
            set(out, "nullable", true);
        }
        let allowed: Vec<&str> = schema.allowed_values().collect();
        if !allowed.is_empty() {
            set(out, "enum", allowed);
        }
    }

    fn set_object(self, out: &mut Map, schema: SchemaRef<'_>) {
        set(out, "type", "object");
        let required: Vec<&str> = schema.fields().filter(|f| f.required()).map(SchemaRef::field_name).collect();
        if !required.is_empty() {
            set(out, "required", required);
        }
        let properties: Map = schema.fields().map(|field| (field.field_name().to_owned(), self.field(field))).collect();
        if !properties.is_empty() {
            set(out, "properties", properties);
        }
    }

    fn set_array(self, out: &mut Map, schema: SchemaRef<'_>) {
        set(out, "type", "array");
        if let Some(items) = schema.items() {
            set(out, "items", self.element(schema, items));
        }
        let list_type = match schema.list_type() {
            ListType::Unset => "",
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        };
        set_text(out, "x-kubernetes-list-type", list_type);
        let keys: Vec<&str> = schema.list_keys().collect();
        if !keys.is_empty() {
            set(out, "x-kubernetes-list-map-keys", keys);
        }
    }

    /// A scalar of either type. Version 2 has only a string.
    fn set_choice(self, out: &mut Map, types: [&str; 2]) {
        match self {
            Self::V2 => set(out, "type", "string"),
            Self::V3 => set(out, "oneOf", json!([{ "type": types[0] }, { "type": types[1] }])),
        }
    }
}

/// A kind in the form of extensions.
pub(crate) fn kind(kind: &GroupVersionKind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

/// The default of a field: a declared default, or the zero value that Kubernetes writes.
fn default_of(field: SchemaRef<'_>) -> Option<Value> {
    if let Some(default) = field.default_json() {
        return serde_json::from_str(default).ok();
    }
    if field.has_zero_default() {
        return zero_of(field);
    }
    // No default: an optional scalar is absent instead of zero. Only a struct without a pointer is always present.
    if field.pointer() || (field.omitted_when_zero() && field.value_type() != Type::Object) {
        return None;
    }
    zero_of(field)
}

fn zero_of(schema: SchemaRef<'_>) -> Option<Value> {
    match schema.value_type() {
        Type::Object => Some(json!({})),
        Type::String => Some(json!("")),
        Type::Int32 | Type::Int64 | Type::Number => Some(json!(0)),
        Type::Boolean => Some(json!(false)),
        Type::Any
        | Type::Map
        | Type::Array
        | Type::IntOrString
        | Type::Quantity
        | Type::Time
        | Type::MicroTime
        | Type::Bytes
        | Type::Either => None,
    }
}

fn set_union(out: &mut Map, schema: SchemaRef<'_>) {
    let mut union = schema.union();
    let Some(discriminator) = union.next() else { return };
    let mut fields = Map::new();
    while let (Some(field), Some(value)) = (union.next(), union.next()) {
        set(&mut fields, field, value);
    }
    let mut described = Map::new();
    set_text(&mut described, "discriminator", discriminator);
    set(&mut described, "fields-to-discriminateBy", fields);
    set(out, "x-kubernetes-unions", Value::Array(vec![Value::Object(described)]));
}

fn set_map_type(out: &mut Map, map_type: MapType) {
    match map_type {
        MapType::Unset => {}
        MapType::Atomic => set(out, "x-kubernetes-map-type", "atomic"),
        MapType::Granular => set(out, "x-kubernetes-map-type", "granular"),
    }
}

fn set_format(out: &mut Map, of: &str, format: &str) {
    set(out, "type", of);
    set(out, "format", format);
}

/// Sets a text, unless it is empty.
fn set_text(out: &mut Map, key: &str, text: &str) {
    if !text.is_empty() {
        set(out, key, text);
    }
}

fn set(out: &mut Map, key: &str, value: impl Into<Value>) {
    out.insert(key, value.into());
}

#[cfg(test)]
mod tests {
    use keelson_schema::Schemas;

    use super::*;
    use crate::description::VersionDescription;

    fn definition(dialect: Dialect, name: &str) -> Value {
        let kinds = Kinds::new(&VersionDescription::all(keelson_builtin::catalogue()), Schemas::builtin());
        dialect.definition(Schemas::builtin().definition(name).expect("a built-in definition"), &kinds)
    }

    /// A field's schema without its description.
    #[track_caller]
    fn check(dialect: Dialect, name: &str, field: &str, expected: &Value) {
        let mut actual = definition(dialect, name)["properties"][field].clone();
        let description = actual.as_object_mut().and_then(|fields| fields.remove("description"));
        assert!(description.is_some_and(|text| text.is_string()), "{name}.{field} has no description");
        assert_eq!(actual, *expected, "{name}.{field}");
    }

    #[test]
    fn lists_have_their_list_type_and_merge_keys() {
        check(
            Dialect::V3,
            "io.k8s.api.core.v1.PodSpec",
            "volumes",
            &json!({
                "x-kubernetes-patch-strategy": "merge,retainKeys",
                "x-kubernetes-patch-merge-key": "name",
                "type": "array",
                "items": {
                    "default": {},
                    "allOf": [{ "$ref": "#/components/schemas/io.k8s.api.core.v1.Volume" }]
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            }),
        );
        check(
            Dialect::V2,
            "io.k8s.api.core.v1.PodSpec",
            "volumes",
            &json!({
                "x-kubernetes-patch-strategy": "merge,retainKeys",
                "x-kubernetes-patch-merge-key": "name",
                "type": "array",
                "items": { "$ref": "#/definitions/io.k8s.api.core.v1.Volume" },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            }),
        );
    }

    #[test]
    fn a_reference_with_a_description_is_wrapped_in_version_3() {
        let of = |place: &str| json!({ "$ref": format!("#/{place}/io.k8s.api.core.v1.PodSpec") });
        let wrapped = json!({ "default": {}, "allOf": [of("components/schemas")] });
        check(Dialect::V3, "io.k8s.api.core.v1.Pod", "spec", &wrapped);
        check(Dialect::V2, "io.k8s.api.core.v1.Pod", "spec", &of("definitions"));
    }

    #[test]
    fn defaults_are_declared_ones_or_the_zero_values_that_are_always_written() {
        let port = "io.k8s.api.core.v1.ContainerPort";
        let values = ["SCTP", "TCP", "UDP"];
        check(Dialect::V3, port, "protocol", &json!({ "default": "TCP", "type": "string", "enum": values }));
        check(Dialect::V3, port, "containerPort", &json!({ "default": 0, "type": "integer", "format": "int32" }));
        check(Dialect::V3, port, "hostIP", &json!({ "type": "string" }));
        check(Dialect::V2, port, "protocol", &json!({ "type": "string", "enum": values }));
    }

    #[test]
    fn maps_and_bytes() {
        check(
            Dialect::V3,
            "io.k8s.api.core.v1.Secret",
            "data",
            &json!({ "type": "object", "additionalProperties": { "type": "string", "format": "byte" } }),
        );
        check(
            Dialect::V3,
            "io.k8s.api.core.v1.ServiceSpec",
            "selector",
            &json!({
                "type": "object",
                "additionalProperties": { "default": "", "type": "string" },
                "x-kubernetes-map-type": "atomic",
            }),
        );
    }

    #[test]
    fn scalars_of_two_types() {
        let int_or_string = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
        let of = |dialect| {
            let mut definition = definition(dialect, int_or_string);
            definition.as_object_mut().expect("an object").remove("description");
            definition
        };
        let choices = json!([{ "type": "integer" }, { "type": "string" }]);
        assert_eq!(of(Dialect::V3), json!({ "format": "int-or-string", "oneOf": choices }));
        assert_eq!(of(Dialect::V2), json!({ "format": "int-or-string", "type": "string" }));
        let time = definition(Dialect::V3, "io.k8s.apimachinery.pkg.apis.meta.v1.Time");
        assert_eq!((&time["type"], &time["format"]), (&json!("string"), &json!("date-time")));
    }

    #[test]
    fn definitions_have_required_fields_unions_and_group_version_kinds() {
        let deployment = definition(Dialect::V3, "io.k8s.api.apps.v1.Deployment");
        assert_eq!(
            deployment["x-kubernetes-group-version-kind"],
            json!([{ "group": "apps", "version": "v1", "kind": "Deployment" }])
        );
        assert_eq!(deployment["required"], json!(["spec"]), "since 1.37");
        let spec = definition(Dialect::V3, "io.k8s.api.apps.v1.DeploymentSpec");
        assert_eq!(spec["required"], json!(["selector", "template"]));
        assert!(spec["description"].as_str().is_some_and(|text| text.starts_with("DeploymentSpec is")));
        let profile = definition(Dialect::V2, "io.k8s.api.core.v1.SeccompProfile");
        assert_eq!(
            profile["x-kubernetes-unions"],
            json!([{ "discriminator": "type",
                     "fields-to-discriminateBy": { "localhostProfile": "LocalhostProfile" } }])
        );
    }

    #[test]
    fn a_field_can_override_the_map_type_of_its_definition() {
        let field = &definition(Dialect::V3, "io.k8s.api.core.v1.PersistentVolumeSpec")["properties"]["claimRef"];
        assert_eq!(field["x-kubernetes-map-type"], "granular");
        let reference = definition(Dialect::V3, "io.k8s.api.core.v1.ObjectReference");
        assert_eq!(reference["x-kubernetes-map-type"], "atomic");
        let other = &definition(Dialect::V3, "io.k8s.api.core.v1.Event")["properties"]["involvedObject"];
        assert!(other.get("x-kubernetes-map-type").is_none());
    }

    #[test]
    fn every_reference_leads_to_a_definition() {
        let kinds = Kinds::new(&VersionDescription::all(keelson_builtin::catalogue()), Schemas::builtin());
        for dialect in [Dialect::V2, Dialect::V3] {
            for schema in Schemas::builtin().definitions() {
                let text = dialect.definition(schema, &kinds).to_string();
                for reference in text.split("\"$ref\":\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                    let name = reference.rsplit('/').next().unwrap_or_default();
                    assert!(Schemas::builtin().definition(name).is_some(), "{reference} in {schema:?}");
                }
            }
        }
    }
}
