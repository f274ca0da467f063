//! Warnings about CustomResourceDefinitions: unknown formats, which are not validated.
//!
//! An update does not repeat warnings about formats that were there before.

use std::collections::BTreeSet;

use keelson_meta::Object;
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;

use super::validation::schema::unknown_formats;
use crate::validating::ValidatedObject;

pub(crate) fn warnings(_kind: &str, written: ValidatedObject<'_>, warnings: &mut Vec<String>) {
    definition(written.old, written.object, warnings);
}

fn definition(old: Option<&Object>, object: &Object, warnings: &mut Vec<String>) {
    let formats = |object: &Object| -> BTreeSet<String> {
        let versions = object.get(&["spec", "versions"]).and_then(Value::as_array).into_iter().flatten();
        let schemas = versions.filter_map(|version| version.get("schema")?.get("openAPIV3Schema"));
        schemas.flat_map(|schema| unknown_formats(schema).into_iter().map(str::to_owned)).collect()
    };
    let known = old.map(formats).unwrap_or_default();
    let new = formats(object);
    warnings.extend(new.difference(&known).map(|format| format!("unrecognized format {}", quote(format))));
}
