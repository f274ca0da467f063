//! The schema of one version of a definition, compiled: by it objects are pruned, filled in, judged, merged and owned.
//!
//! What a schema may say was checked when the definition was written. Its words are read again in the bytes of the definition when
//! somebody wants them published.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::GroupVersionKind;
use keelson_meta::json::Value;
use keelson_schema::{KeptPrograms, Pruning, Schema, SchemaDocument, StructuralError};
use keelson_supervision::warn_repeated;

/// The schema of a version of a stored definition, whose expressions are compiled when an object is first judged by them; `None` where it
/// says nothing that can be used, and then objects are taken as they are.
pub(crate) fn of_version(
    kind: &GroupVersionKind,
    version: &Value,
    pruning: Pruning,
    source: &Arc<dyn SchemaDocument>,
    programs: &Arc<KeptPrograms>,
) -> Option<Schema> {
    match Schema::structural_on_demand(kind, stated(version)?, pruning, source.clone(), programs) {
        Ok(schema) => Some(schema),
        Err(error) => {
            // Only an older server can have stored it.
            warn_repeated!(format_args!("{kind:?}"); group = kind.group, version = kind.version, kind = kind.kind, %error, "a schema can't be used, so that objects are taken as they are");
            None
        }
    }
}

/// The schema of a version; `None` where it states none.
///
/// # Errors
/// When it can't be compiled.
pub(crate) fn compiled(kind: &GroupVersionKind, version: &Value) -> Result<Option<Schema>, StructuralError> {
    stated(version).map(|document| Schema::structural(kind, document)).transpose()
}

fn stated(version: &Value) -> Option<&Value> {
    version.get("schema")?.get("openAPIV3Schema")
}

/// Where the schema of a version lies.
pub(crate) fn stated_in(definition: &Arc<Entry>, version: usize) -> Arc<dyn SchemaDocument> {
    Arc::new(StatedSchema { definition: definition.clone(), version })
}

/// The schema of a version in the bytes of its definition.
#[derive(Debug)]
struct StatedSchema {
    definition: Arc<Entry>,
    /// The place of the version among those of the definition.
    version: usize,
}

impl SchemaDocument for StatedSchema {
    fn read(&self) -> Option<Value> {
        let mut definition = self.definition.object.decode(self.definition.revision);
        let versions = definition.0.get_mut("spec")?.get_mut("versions")?;
        Some(versions.get_mut(self.version)?.get_mut("schema")?.get_mut("openAPIV3Schema")?.take())
    }
}

/// The schema of a version whose definition is stored nowhere.
#[derive(Debug)]
pub(crate) struct KeptSchema(Option<Value>);

impl KeptSchema {
    pub(crate) fn of(version: &Value) -> Arc<dyn SchemaDocument> {
        Arc::new(Self(stated(version).cloned()))
    }
}

impl SchemaDocument for KeptSchema {
    fn read(&self) -> Option<Value> {
        self.0.clone()
    }
}
