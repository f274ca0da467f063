//! Built-in resources and schemas are read only where a server is composed.
//!
//! Request handling must use the surface, which includes other resources: code that reads the catalogue instead would
//! serve only built-in ones. Tests and examples are exempt.

use super::{Finding, production};

/// The functions that return built-in resources and schemas.
const WAYS: [&str; 8] = [
    "keelson_builtin::catalogue()",
    "keelson_builtin::catalogue_of(",
    "keelson_builtin::contributions(",
    "keelson_builtin::surface()",
    "Schemas::builtin()",
    "Schemas::of_release(",
    "Schema::builtin(",
    "Schema::of_release(",
];

/// Files that may call them, with the reason.
const ALLOWED: [(&str, &str); 9] = [
    ("crates/schema/src/schemas.rs", "is where the built-in schemas are"),
    ("crates/schema/src/structural/tables.rs", "gives the metadata of custom resources the schema of all metadata"),
    ("crates/builtin/", "is the built-in kinds"),
    ("crates/registry/src/surface/contribution.rs", "gives the scale of a custom resource the schema of all scales"),
    ("crates/apiserver/src/shared.rs", "the definitions that all documents refer to"),
    ("crates/gateway/src/contribution.rs", "knows a source's resources by its discovery documents, before a surface"),
    ("crates/gateway/src/site.rs", "the definitions that all documents refer to"),
    ("crates/server/src/builtin.rs", "passes them to parts that start before there is a surface"),
    ("crates/fuzz/", "for tests"),
];

pub(super) fn check(place: &str, text: &str) -> Vec<Finding> {
    if ALLOWED.iter().any(|(file, _)| place.starts_with(file)) {
        return Vec::new();
    }
    let found = production(place, text).filter_map(|(number, line)| {
        let way = WAYS.iter().find(|way| line.contains(**way))?;
        let text = format!("{way} outside of composition: take it from the surface, or as an argument");
        Some(Finding::fault(format_args!("{place}:{number}"), text))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn the_catalogue_is_read_in_composition_alone() {
        let text = "fn run() {\n    let all = keelson_builtin::catalogue();\n}\n";
        let found = check("crates/http/src/pages.rs", text);
        assert_eq!((found.len(), found[0].place.as_str()), (1, "crates/http/src/pages.rs:2"));
        assert_eq!(check("crates/server/src/copy.rs", "let all = Schemas::builtin();").len(), 1);
        assert!(check("crates/http/src/pages.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")).is_empty());
        assert!(check("crates/http/src/pages.rs", "// as keelson_builtin::catalogue() has it").is_empty());
        for place in ["crates/server/src/builtin.rs", "crates/http/tests/edge/main.rs", "crates/openapi/examples/a.rs"]
        {
            assert!(check(place, text).is_empty(), "{place}");
        }
    }
}
