//! The contribution of a definition to the surface: a resource under the accepted names, with all properties of each
//! version.
//!
//! Versions that are not served exist for stored objects, hidden from clients.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_cache::Collection;
use keelson_meta::json::Value;
use keelson_meta::{Object, version_names};
use keelson_outbound::{ConversionWebhook, Outbound};
use keelson_registry::{DefinedBy, ResourceRegistration, ServedApis};
use keelson_resources::{
    Resource, ResourceStorage, ScalePaths, Scope, SelectableField, ServedVersion, Subresource, Text, Verb,
};
use keelson_schema::{ProgramCache, Pruning, Schema, SchemaDocument, StructuralError};
use keelson_tables::{CellType, CustomColumn, Printer};

use crate::definition::{Definition, Names, text};
use crate::extensions::KnownDefinition;
use crate::schema::{self, UnstoredSchema};

/// The error for creating an object of a terminating definition.
const TERMINATING: &str = "create not allowed while custom resource definition is terminating";

/// The resource of a definition. Versions that the program serves in the same group are hidden, since their paths
/// belong to built-in resources.
///
/// Cost: compiling its schemas. Expressions are compiled at the first validation.
pub(crate) fn contribution(
    known: &KnownDefinition,
    surface: &ServedApis,
    definitions: &Arc<Collection>,
    outbound: &Arc<Outbound>,
    programs: &Arc<ProgramCache>,
) -> ResourceRegistration {
    let KnownDefinition { entry, read: definition } = known;
    let object = &entry.object().decode(entry.revision);
    let stated = versions(object);
    let mut resource = resource(object, definition, stated);
    for version in &mut resource.versions {
        if surface.has_builtin_version(&definition.group, &version.name) {
            Arc::make_mut(version).hidden = true;
        }
    }
    let mut contribution = ResourceRegistration::new(resource).defined_by(DefinedBy {
        collection: definitions.clone(),
        name: definition.name.clone(),
        uid: definition.uid.clone(),
        state: definition.state(),
        terminating: TERMINATING,
    });
    let preserves = object.get(&["spec", "preserveUnknownFields"]).and_then(Value::as_bool).unwrap_or_default();
    let pruning = if preserves { Pruning::Nothing } else { Pruning::Undeclared };
    for (place, version) in stated.iter().enumerate() {
        let kind = contribution.resource().gvk(&text(version.get("name")));
        let source = schema::stated_in(entry, place);
        let schema = schema::of_version(&kind, version, pruning, &source, programs).map(|schema| (schema, source));
        contribution = with_version(contribution, definition, version, stated, schema.as_ref());
    }
    if definition.terminating {
        contribution = contribution.refusing_new(TERMINATING);
    }
    let conversion = object.get(&["spec", "conversion"]).unwrap_or(&Value::Null);
    match &ConversionWebhook::from_conversion(outbound, &definition.name, conversion) {
        Some(converter) => contribution.converted_by(converter),
        None => contribution,
    }
}

/// The contribution of a definition that is part of a program and not stored. It gets all requested names. Its
/// conversion settings are ignored: versions differ only in name, unless the program supplies a
/// [`Converter`](keelson_registry::Converter). Given `verbs` replace its own, in this order, and remove its
/// subresources.
///
/// Cost: compiling its schemas and expressions.
///
/// # Errors
/// A schema that can't be compiled, with the place.
pub fn of_program(object: &Object, verbs: Option<&'static [Verb]>) -> Result<ResourceRegistration, StructuralError> {
    let mut definition = Definition::read(object);
    definition.accepted = definition.requested.clone().completed();
    let stated = versions(object);
    let mut resource = resource(object, &definition, stated);
    if let Some(verbs) = verbs {
        let alone = |version: &mut Arc<ServedVersion>| {
            let version = Arc::make_mut(version);
            (version.verbs, version.subresources) = (Cow::Borrowed(verbs), Vec::new());
        };
        resource.versions.iter_mut().for_each(alone);
    }
    let mut contribution = ResourceRegistration::new(resource);
    for version in stated {
        let kind = contribution.resource().gvk(&text(version.get("name")));
        let schema = schema::compiled(&kind, version)?.map(|schema| (schema, UnstoredSchema::document(version)));
        contribution = with_version(contribution, &definition, version, stated, schema.as_ref());
    }
    Ok(contribution)
}

/// The contribution of a definition of another server, whose objects are mirrored in one version. It has names, scope,
/// columns and selectable fields, and no schema: the other server has validated its objects. `None` if the definition
/// lacks the version.
pub fn of_mirrored(object: &Object, version: &str) -> Option<ResourceRegistration> {
    let mut definition = Definition::read(object);
    definition.accepted = definition.requested.clone().completed();
    let stated = versions(object);
    let mirrored = stated.iter().find(|stated| text(stated.get("name")) == version)?;
    let mut resource = resource(object, &definition, stated);
    resource.versions.retain(|known| known.name == version);
    let prefix = resource.storage_prefix()?.clone();
    let group = resource.group.clone();
    resource.storage = ResourceStorage::Persisted { prefix, group, version: version.to_owned().into() };
    resource.versions.iter_mut().for_each(|version| Arc::make_mut(version).hidden = false);
    let printer = Printer::custom_until_unusable(columns(mirrored));
    Some(ResourceRegistration::new(resource).with_printer(version, &printer))
}

fn versions(object: &Object) -> &[Value] {
    object.get(&["spec", "versions"]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice)
}

/// The contribution with the properties of a version: columns, schema, deprecation.
fn with_version(
    contribution: ResourceRegistration,
    definition: &Definition,
    version: &Value,
    stated: &[Value],
    schema: Option<&(Schema, Arc<dyn SchemaDocument>)>,
) -> ResourceRegistration {
    let name = text(version.get("name"));
    let mut contribution = contribution.with_printer(&name, &Printer::custom_until_unusable(columns(version)));
    if let Some((schema, document)) = schema {
        contribution = contribution.with_schema(&name, schema).with_document(&name, document);
    }
    if is(version, "deprecated") {
        contribution = contribution.with_deprecation(&name, &deprecation(definition, version, stated));
    }
    contribution
}

fn resource(object: &Object, definition: &Definition, stated: &[Value]) -> Resource {
    let Names { plural, singular, short_names, kind, list_kind, categories } = definition.accepted.clone();
    let plural = if plural.is_empty() { definition.requested.plural.clone() } else { plural };
    let versions = stated.iter().map(version).collect();
    let custom = Resource::custom(&definition.group, &plural, &kind, versions);
    let namespaced = text(object.get(&["spec", "scope"])) == "Namespaced";
    let stored = stated.iter().find(|version| is(version, "storage")).map(|version| text(version.get("name")));
    let storage = match (custom.storage.clone(), stored) {
        (ResourceStorage::Persisted { prefix, group, .. }, Some(version)) => {
            ResourceStorage::Persisted { prefix, group, version: version.into() }
        }
        (storage, _) => storage,
    };
    Resource {
        singular: singular.into(),
        list_kind: list_kind.into(),
        short_names: short_names.into_iter().map(Text::Owned).collect(),
        categories: categories.into_iter().map(Text::Owned).collect(),
        scope: if namespaced { Scope::Namespaced } else { Scope::Cluster },
        storage,
        selectable_fields: selectable_fields(stated),
        ..custom
    }
}

fn version(stated: &Value) -> ServedVersion {
    let below = stated.get("subresources");
    let status = below.and_then(|below| below.get("status")).filter(|status| !status.is_null());
    let scale = below.and_then(|below| below.get("scale")).filter(|scale| !scale.is_null());
    // In the order of discovery.
    let subresources = status.map(|_| Subresource::status()).into_iter().chain(scale.map(|scale| {
        let path = |field: &str| path(&text(scale.get(field)));
        let selector = text(scale.get("labelSelectorPath"));
        Subresource::scale(ScalePaths {
            wanted: path("specReplicasPath"),
            actual: path("statusReplicasPath"),
            selector: (!selector.is_empty()).then(|| path("labelSelectorPath")),
        })
    }));
    ServedVersion { hidden: !is(stated, "served"), ..ServedVersion::custom(text(stated.get("name")), subresources) }
}

/// The selectable fields, each with the versions that declare it.
fn selectable_fields(stated: &[Value]) -> Vec<SelectableField> {
    let mut fields: Vec<SelectableField> = Vec::new();
    for version in stated {
        let name = text(version.get("name"));
        for declared in version.get("selectableFields").and_then(Value::as_array).into_iter().flatten() {
            let path: Text = path(&text(declared.get("jsonPath"))).join(".").into();
            let known = fields.iter_mut().find(|field| field.name == path);
            match known.and_then(|field| field.versions.as_mut()) {
                Some(versions) => versions.push(name.clone().into()),
                None => fields.push(SelectableField {
                    name: path.clone(),
                    paths: vec![path],
                    absent: "".into(),
                    versions: Some(vec![name.clone().into()]),
                }),
            }
        }
    }
    fields
}

fn columns(version: &Value) -> Vec<CustomColumn> {
    let declared = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
    let column = |column: &Value| CustomColumn {
        name: text(column.get("name")),
        kind: CellType::named(&text(column.get("type"))).unwrap_or(CellType::String),
        format: text(column.get("format")),
        description: text(column.get("description")),
        priority: column.get("priority").and_then(Value::as_i64).and_then(|it| it.try_into().ok()).unwrap_or(0),
        path: text(column.get("jsonPath")),
    };
    declared.map(column).collect()
}

/// The warning of a deprecated version: its own text, or the version to use.
fn deprecation(definition: &Definition, version: &Value, all: &[Value]) -> String {
    if let Some(stated) = version.get("deprecationWarning").and_then(Value::as_str) {
        return stated.to_owned();
    }
    let (group, kind, name) = (&definition.group, &definition.requested.kind, text(version.get("name")));
    let current = all.iter().filter(|other| is(other, "served") && !is(other, "deprecated"));
    let mut newer: Vec<String> = current.map(|other| text(other.get("name"))).collect();
    newer.retain(|other| version_names::compare(other, &name).is_lt());
    newer.sort_by(|left, right| version_names::compare(left, right));
    let gone = format!("{group}/{name} {kind} is deprecated");
    newer.first().map_or_else(|| gone.clone(), |newer| format!("{gone}; use {group}/{newer} {kind}"))
}

/// The steps of a path such as `.spec.replicas`.
fn path(text: &str) -> Vec<Text> {
    let steps = text.strip_prefix('.').unwrap_or(text).split('.').filter(|step| !step.is_empty());
    steps.map(|step| Text::Owned(step.to_owned())).collect()
}

fn is(version: &Value, flag: &str) -> bool {
    version.get(flag).and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn a_deprecated_version_names_its_replacement() {
        let definition = Definition::read(
            &Object::from_value(json!({ "spec": { "group": "none.example.com", "names": { "kind": "Multi" } } }))
                .unwrap(),
        );
        let all = json!([
            { "name": "v1alpha1", "served": true, "deprecated": true, "deprecationWarning": "go away" },
            { "name": "v1beta1", "served": true, "deprecated": true },
            { "name": "v1", "served": true },
            { "name": "v2", "served": true },
            { "name": "v3", "served": true, "deprecated": true },
            { "name": "v4", "served": false },
        ]);
        let all = all.as_array().unwrap();
        let check = |place: usize, expected: &str| assert_eq!(deprecation(&definition, &all[place], all), expected);
        check(0, "go away");
        check(1, "none.example.com/v1beta1 Multi is deprecated; use none.example.com/v2 Multi");
        check(4, "none.example.com/v3 Multi is deprecated");
    }

    #[test]
    fn a_field_is_selectable_in_the_versions_that_declare_it() {
        let stated = json!([
            { "name": "v1", "selectableFields": [{ "jsonPath": ".spec.a" }, { "jsonPath": ".spec.b" }] },
            { "name": "v2", "selectableFields": [{ "jsonPath": ".spec.a" }] },
        ]);
        let fields = selectable_fields(stated.as_array().unwrap());
        let told = fields.iter().map(|field| (&*field.name, field.versions.as_ref().unwrap().join(" ")));
        assert_eq!(told.collect::<Vec<_>>(), [("spec.a", "v1 v2".to_owned()), ("spec.b", "v1".to_owned())]);
    }
}
