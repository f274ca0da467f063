//! The versions of a CustomResourceDefinition with their schemas, as Go prints them.
//!
//! A message about a version contains the whole version, printed like Go's structs.

use keelson_meta::json::{Value, json};

use crate::validating::go_form::Form;
use crate::validating::go_form::PrintedValue::{Flag, List, Map, Maybe, Number, Other, Plain, Text};

/// The versions of a definition.
pub(super) static VERSION: Form = Form(&[
    ("Name", "name", Text),
    ("Served", "served", Flag),
    ("Storage", "storage", Flag),
    ("Deprecated", "deprecated", Flag),
    ("DeprecationWarning", "deprecationWarning", Plain),
    ("Schema", "schema", Maybe(&VALIDATION)),
    ("Subresources", "subresources", Maybe(&SUBRESOURCES)),
    ("AdditionalPrinterColumns", "additionalPrinterColumns", List(&COLUMN)),
    ("SelectableFields", "selectableFields", List(&SELECTABLE)),
]);

static VALIDATION: Form = Form(&[("OpenAPIV3Schema", "openAPIV3Schema", Maybe(&SCHEMA))]);
static SUBRESOURCES: Form = Form(&[("Status", "status", Maybe(&NOTHING)), ("Scale", "scale", Maybe(&SCALE))]);
static NOTHING: Form = Form(&[]);
static SCALE: Form = Form(&[
    ("SpecReplicasPath", "specReplicasPath", Text),
    ("StatusReplicasPath", "statusReplicasPath", Text),
    ("LabelSelectorPath", "labelSelectorPath", Plain),
]);
static COLUMN: Form = Form(&[
    ("Name", "name", Text),
    ("Type", "type", Text),
    ("Format", "format", Text),
    ("Description", "description", Text),
    ("Priority", "priority", Number),
    ("JSONPath", "jsonPath", Text),
]);
static SELECTABLE: Form = Form(&[("JSONPath", "jsonPath", Text)]);

/// A schema.
pub(super) static SCHEMA: Form = Form(&[
    ("ID", "id", Text),
    ("Schema", "$schema", Text),
    ("Ref", "$ref", Plain),
    ("Description", "description", Text),
    ("Type", "type", Text),
    ("Nullable", "nullable", Flag),
    ("Format", "format", Text),
    ("Title", "title", Text),
    ("Default", "default", Plain),
    ("Maximum", "maximum", Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", Flag),
    ("Minimum", "minimum", Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", Flag),
    ("MaxLength", "maxLength", Plain),
    ("MinLength", "minLength", Plain),
    ("Pattern", "pattern", Text),
    ("MaxItems", "maxItems", Plain),
    ("MinItems", "minItems", Plain),
    ("UniqueItems", "uniqueItems", Flag),
    ("MultipleOf", "multipleOf", Plain),
    ("Enum", "enum", Plain),
    ("MaxProperties", "maxProperties", Plain),
    ("MinProperties", "minProperties", Plain),
    ("Required", "required", Plain),
    ("Items", "items", Other(one_or_many)),
    ("AllOf", "allOf", List(&SCHEMA)),
    ("OneOf", "oneOf", List(&SCHEMA)),
    ("AnyOf", "anyOf", List(&SCHEMA)),
    ("Not", "not", Maybe(&SCHEMA)),
    ("Properties", "properties", Map(&SCHEMA)),
    ("AdditionalProperties", "additionalProperties", Other(schema_or_flag)),
    ("PatternProperties", "patternProperties", Map(&SCHEMA)),
    ("Dependencies", "dependencies", Plain),
    ("AdditionalItems", "additionalItems", Other(schema_or_flag)),
    ("Definitions", "definitions", Map(&SCHEMA)),
    ("ExternalDocs", "externalDocs", Maybe(&DOCS)),
    ("Example", "example", Plain),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Plain),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Plain),
    ("XListType", "x-kubernetes-list-type", Plain),
    ("XMapType", "x-kubernetes-map-type", Plain),
    ("XValidations", "x-kubernetes-validations", List(&RULE)),
]);
static DOCS: Form = Form(&[("Description", "description", Text), ("URL", "url", Text)]);
/// A rule of a schema.
pub(super) static RULE: Form = Form(&[
    ("Rule", "rule", Text),
    ("Message", "message", Text),
    ("MessageExpression", "messageExpression", Text),
    ("Reason", "reason", Plain),
    ("FieldPath", "fieldPath", Text),
    ("OptionalOldSelf", "optionalOldSelf", Plain),
]);
static ONE: Form = Form(&[("Schema", "one", Maybe(&SCHEMA)), ("JSONSchemas", "many", List(&SCHEMA))]);
static FLAGGED: Form = Form(&[("Allows", "allows", Flag), ("Schema", "schema", Maybe(&SCHEMA))]);

fn one_or_many(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Array(_) => ONE.print(&json!({ "many": value })),
        _ => ONE.print(&json!({ "one": value })),
    }
}

fn schema_or_flag(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(allows) => FLAGGED.print(&json!({ "allows": allows })),
        _ => FLAGGED.print(&json!({ "allows": true, "schema": value })),
    }
}
