//! Detects schemas of stored definitions that are not structural. Older servers accepted them.
//!
//! The controller of definitions reports them in a condition. Messages are kube-apiserver's.

use keelson_meta::Object;
use keelson_schema::{MAX_DEPTH, NonStructural};

use super::schema::is_too_deep;
use super::structure;
use super::versions::schema_of;
use crate::validating::at::At;
use crate::validating::type_rules::Run;

/// The reason why the schemas of a definition are not structural; `None` for structural schemas.
///
/// Cost: one check for each keyword of each schema.
pub fn non_structural(definition: &Object) -> Option<NonStructural> {
    let root = At::object(definition, None);
    let (spec, mut run) = (root.field("spec"), Run::new(definition, None));
    let versions = spec.field("versions");
    for version in versions.items() {
        let stated = schema_of(version.value);
        if stated.is_null() {
            continue;
        }
        let unsupported = match is_too_deep(stated, 0) {
            true => Some(format!("must not have more than {MAX_DEPTH} schemas inside of each other")),
            false => structure::unsupported(stated),
        };
        if let Some(why) = unsupported {
            let name = version.field("name").text();
            return Some(NonStructural::NoForm(format!("failed to check validation schema for version {name}: {why}")));
        }
        structure::validate(&version.field("schema").field("openAPIV3Schema"), &mut run);
    }
    (!run.faults.is_empty()).then_some(NonStructural::Violations(run.faults))
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::{Value, json};

    use super::*;

    #[test]
    fn reasons_for_non_structural_schemas_are_reported() {
        let check = |schemas: &[Value], expected: Option<&str>| {
            let versions = schemas
                .iter()
                .enumerate()
                .map(|(at, schema)| json!({ "name": format!("v{at}"), "schema": { "openAPIV3Schema": schema } }));
            let versions: Vec<Value> = versions.collect();
            let definition = Object::from_value(json!({ "spec": { "versions": versions } })).unwrap();
            let found = non_structural(&definition).map(|found| match found {
                NonStructural::NoForm(why) => why,
                NonStructural::Violations(faults) => faults.iter().map(|fault| format!("{fault};")).collect(),
            });
            assert_eq!(found.as_deref(), expected, "{schemas:?}");
        };
        let sound = json!({ "type": "object", "properties": { "spec": { "type": "object" } } });
        check(std::slice::from_ref(&sound), None);
        check(&[json!(null)], None);
        let bare = json!({ "properties": { "n": { "minimum": 1 } } });
        let place = "spec.versions[1].schema.openAPIV3Schema";
        let message = format!(
            "{place}.properties[n].type: Required value: must not be empty for specified object fields;\
             {place}.type: Required value: must not be empty at the root;"
        );
        check(&[sound.clone(), bare], Some(&message));
        let message = "failed to check validation schema for version v0: OpenAPIV3Schema '$ref' is not supported";
        check(&[json!({ "$ref": "#/x" }), sound], Some(message));
    }
}
