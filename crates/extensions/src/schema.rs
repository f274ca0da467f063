//! The compiled schema of one version of a definition, for pruning, defaults, validation, merging and ownership.
//!
//! Schemas are validated when the definition is written. For publication they are parsed again from the definition's
//! bytes.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::GroupVersionKind;
use keelson_meta::json::Value;
use keelson_schema::{ProgramCache, Pruning, Schema, SchemaDocument, StructuralError};
use keelson_supervision::warn_repeated;

/// The schema of a version of a stored definition, whose expressions are compiled at the first validation. `None` if it
/// is unusable, and then objects are accepted unchanged.
pub(crate) fn of_version(
    kind: &GroupVersionKind,
    version: &Value,
    pruning: Pruning,
    source: &Arc<dyn SchemaDocument>,
    programs: &Arc<ProgramCache>,
) -> Option<Schema> {
    match Schema::structural_on_demand(kind, stated(version)?, pruning, source.clone(), programs) {
        Ok(schema) => Some(schema),
        Err(error) => {
            // Only an older server can have stored it.
            warn_repeated!(format_args!("{kind:?}"); group = kind.group, version = kind.version, kind = kind.kind, %error, "a schema is unusable; objects are accepted unchanged");
            None
        }
    }
}

/// The schema of a version. `None` without one.
///
/// # Errors
/// A schema that can't be compiled.
pub(crate) fn compiled(kind: &GroupVersionKind, version: &Value) -> Result<Option<Schema>, StructuralError> {
    stated(version).map(|document| Schema::structural(kind, document)).transpose()
}

fn stated(version: &Value) -> Option<&Value> {
    version.get("schema")?.get("openAPIV3Schema")
}

/// The source of a version's schema.
pub(crate) fn stated_in(definition: &Arc<Entry>, version: usize) -> Arc<dyn SchemaDocument> {
    Arc::new(StatedSchema { definition: definition.clone(), version })
}

/// The schema of a version in the bytes of its definition.
#[derive(Debug)]
struct StatedSchema {
    definition: Arc<Entry>,
    /// The index of the version in the definition.
    version: usize,
}

impl SchemaDocument for StatedSchema {
    fn read(&self) -> Option<Value> {
        let mut definition = self.definition.object().decode(self.definition.revision);
        let versions = definition.0.get_mut("spec")?.get_mut("versions")?;
        Some(versions.get_mut(self.version)?.get_mut("schema")?.get_mut("openAPIV3Schema")?.take())
    }
}

/// The schema of a version of a definition that is not stored.
#[derive(Debug)]
pub(crate) struct UnstoredSchema(Option<Value>);

impl UnstoredSchema {
    pub(crate) fn document(version: &Value) -> Arc<dyn SchemaDocument> {
        Arc::new(Self(stated(version).cloned()))
    }
}

impl SchemaDocument for UnstoredSchema {
    fn read(&self) -> Option<Value> {
        self.0.clone()
    }
}
