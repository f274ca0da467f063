//! CustomResourceDefinitions in `v1beta1`, the version in which kube-apiserver stores them.
//!
//! In `v1beta1` the parts that all versions of a resource share are fields of the spec: schema, columns, subresources
//! and selectable fields. Absent fields get the defaults of `v1beta1`, since some of them differ from those of `v1`.

use keelson_meta::json::{Map, Value, json};

use crate::converting::conversion::ConversionError;
use crate::converting::retired::{BETA, RetiredVersions, row};
use crate::converting::tree::{each_in, fill, fill_unset, is_unset, object, object_or_new, take, take_object};

pub(crate) const RETIRED: &[RetiredVersions] =
    &[row("CustomResourceDefinition", "apiextensions.k8s.io", BETA).by(definition_from_v1beta1)];

/// The default port of a webhook's service.
const WEBHOOK_PORT: u16 = 443;

/// Converts from `v1beta1` to `v1`.
pub(crate) fn definition_from_v1beta1(definition: &mut Map) -> Result<(), ConversionError> {
    let Some(mut spec) = take_object(definition, "spec")? else { return Ok(()) };
    spec_from_v1beta1(&mut spec)?;
    let stored = stored_version(&spec);
    definition.insert("spec", spec);
    if let Some(stored) = stored {
        let status = object_or_new(definition, "status")?;
        if status.get("storedVersions").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            status.insert("storedVersions", json!([stored]));
        }
    }
    Ok(())
}

fn spec_from_v1beta1(spec: &mut Map) -> Result<(), ConversionError> {
    fill_unset(spec, "scope", "Namespaced");
    complete_names(object_or_new(spec, "names")?);
    let first = take(spec, "version").filter(|version| !is_unset(version));
    let is_empty = spec.get("versions").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if let Some(name) = first.filter(|_| is_empty) {
        spec.insert("versions", json!([{ "name": name, "served": true, "storage": true }]));
    }
    let mut shared = Map::new();
    for (field, of_version) in [
        ("validation", "schema"),
        ("subresources", "subresources"),
        ("additionalPrinterColumns", "additionalPrinterColumns"),
        ("selectableFields", "selectableFields"),
    ] {
        if let Some(value) = take(spec, field) {
            shared.insert(of_version, value);
        }
    }
    each_in(spec, "versions", |version| {
        for (field, value) in &shared {
            version.insert(field, value.clone());
        }
        each_in(version, "additionalPrinterColumns", |column| {
            if let Some(path) = take(column, "JSONPath") {
                column.insert("jsonPath", path);
            }
            Ok(())
        })
    })?;
    match object(spec, "conversion")? {
        Some(conversion) => nest_webhook(conversion)?,
        None => drop(spec.insert("conversion", json!({ "strategy": "None" }))),
    }
    let preserves = take(spec, "preserveUnknownFields");
    if preserves != Some(Value::Bool(false)) {
        spec.insert("preserveUnknownFields", true);
    }
    Ok(())
}

fn complete_names(names: &mut Map) {
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !kind.is_empty() {
        fill_unset(names, "singular", kind.to_lowercase());
        fill_unset(names, "listKind", format!("{kind}List"));
    }
}

/// Moves the webhook of a conversion into the field `webhook`.
fn nest_webhook(conversion: &mut Map) -> Result<(), ConversionError> {
    let client = take_object(conversion, "webhookClientConfig")?;
    let mut versions = take(conversion, "conversionReviewVersions").filter(|list| list != &json!([]));
    let is_webhook = conversion.get("strategy").and_then(Value::as_str) == Some("Webhook");
    if is_webhook && versions.is_none() {
        versions = Some(json!(["v1beta1"]));
    }
    if client.is_none() && versions.is_none() {
        return Ok(());
    }
    let mut webhook = Map::new();
    if let Some(mut client) = client {
        if let Some(service) = object(&mut client, "service")? {
            fill(service, "port", json!(WEBHOOK_PORT));
        }
        webhook.insert("clientConfig", client);
    }
    webhook.insert("conversionReviewVersions", versions.unwrap_or(Value::Null));
    conversion.insert("webhook", webhook);
    Ok(())
}

/// The first version with `storage: true`.
fn stored_version(spec: &Map) -> Option<String> {
    let versions = spec.get("versions")?.as_array()?;
    let stored = versions.iter().find(|version| version.get("storage") == Some(&Value::Bool(true)))?;
    stored.get("name")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
    fn check(before: Value, after: Value) {
        let mut object = json!({ "spec": before, "status": { "storedVersions": ["v1"] } });
        definition_from_v1beta1(object.as_object_mut().unwrap()).unwrap();
        assert_eq!(object, json!({ "spec": after, "status": { "storedVersions": ["v1"] } }));
    }

    fn named(mut spec: Value) -> Value {
        spec["names"] = json!({ "plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList" });
        spec
    }

    #[test]
    fn parts_that_all_versions_share_are_given_to_each() {
        let column = |path: &str| json!({ "name": "N", "type": "integer", path: ".spec.n" });
        let schema = json!({ "openAPIV3Schema": { "type": "object" } });
        check(
            named(json!({
                "group": "x.org", "version": "v1", "scope": "Cluster", "validation": schema, "subresources": { "status": {} },
                "additionalPrinterColumns": [column("JSONPath")], "selectableFields": [{ "jsonPath": ".spec.n" }],
                "versions": [{ "name": "v1", "served": true, "storage": true }, { "name": "v2", "served": true, "storage": false }],
                "conversion": { "strategy": "None" }, "preserveUnknownFields": false,
            })),
            named(json!({
                "group": "x.org", "scope": "Cluster",
                "versions": [
                    { "name": "v1", "served": true, "storage": true, "schema": schema, "subresources": { "status": {} },
                      "additionalPrinterColumns": [column("jsonPath")], "selectableFields": [{ "jsonPath": ".spec.n" }] },
                    { "name": "v2", "served": true, "storage": false, "schema": schema, "subresources": { "status": {} },
                      "additionalPrinterColumns": [column("jsonPath")], "selectableFields": [{ "jsonPath": ".spec.n" }] },
                ],
                "conversion": { "strategy": "None" },
            })),
        );
    }

    #[test]
    fn parts_of_versions_stay_and_a_webhook_is_nested() {
        let version = |column: Value| json!({ "name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [column] });
        let client = json!({ "service": { "namespace": "a", "name": "b" }, "caBundle": "QQ==" });
        let with_port = json!({ "service": { "namespace": "a", "name": "b", "port": 443 }, "caBundle": "QQ==" });
        check(
            named(json!({
                "versions": [version(json!({ "JSONPath": ".a" }))], "scope": "Namespaced", "preserveUnknownFields": false,
                "conversion": { "strategy": "Webhook", "webhookClientConfig": client },
            })),
            named(json!({
                "versions": [version(json!({ "jsonPath": ".a" }))], "scope": "Namespaced",
                "conversion": { "strategy": "Webhook",
                    "webhook": { "clientConfig": with_port, "conversionReviewVersions": ["v1beta1"] } },
            })),
        );
    }

    #[test]
    fn missing_fields_get_the_defaults_of_v1beta1() {
        let mut definition = json!({ "spec": { "version": "v1", "names": { "kind": "Foo" } } });
        definition_from_v1beta1(definition.as_object_mut().unwrap()).unwrap();
        let expected = json!({
            "spec": {
                "names": { "kind": "Foo", "singular": "foo", "listKind": "FooList" }, "scope": "Namespaced",
                "versions": [{ "name": "v1", "served": true, "storage": true }],
                "conversion": { "strategy": "None" }, "preserveUnknownFields": true,
            },
            "status": { "storedVersions": ["v1"] },
        });
        assert_eq!(definition, expected);
    }
}
