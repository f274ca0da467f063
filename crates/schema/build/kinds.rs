//! Collects all built-in kinds of a release and their JSON schemas from `k8s-openapi`.
//!
//! The kinds are collected once, when the crate is built. The program contains only the compiled tables. Each release
//! has a file with its kinds, since a build of `k8s-openapi` has the types of one release.

#[path = "kinds/v1_36.rs"]
mod v1_36;
#[path = "kinds/v1_37.rs"]
mod v1_37;

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

/// One kind.
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// The name of its definition.
    pub definition: String,
    /// True if the kind also has a list kind.
    pub listed: bool,
}

/// All kinds and all definitions that they use.
pub struct CollectedKinds {
    pub kinds: Vec<Kind>,
    pub definitions: BTreeMap<String, Value>,
}

struct Collector {
    kinds: Vec<Kind>,
    generator: SchemaGenerator,
}

impl Collector {
    fn add<T: JsonSchema>(&mut self, group: &'static str, version: &'static str, kind: &'static str, listed: bool) {
        self.refer::<T>();
        self.kinds.push(Kind { group, version, kind, definition: T::schema_name().into_owned(), listed });
    }

    /// Adds the definition of a type that is no kind.
    fn refer<T: JsonSchema>(&mut self) {
        self.generator.subschema_for::<T>();
    }
}

/// Collects the schema of every kind of a release.
pub fn collect(release: &str) -> CollectedKinds {
    let mut all = Collector { kinds: Vec::new(), generator: SchemaSettings::default().into_generator() };
    match release {
        "1.36" => v1_36::collect(&mut all),
        "1.37" => v1_37::collect(&mut all),
        _ => panic!("no file has the kinds of {release}"),
    }
    let definitions = all.generator.definitions().iter().map(|(name, schema)| (name.clone(), schema.clone())).collect();
    CollectedKinds { kinds: all.kinds, definitions }
}
