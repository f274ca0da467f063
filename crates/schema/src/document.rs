//! The source of a compiled schema, which OpenAPI publishes.
//!
//! Documents may be large and are rarely requested. So they are not kept in memory, but parsed from the stored
//! definition on demand.

use std::fmt::Debug;

use keelson_meta::json::Value;

/// Returns the source of a schema.
pub trait SchemaDocument: Debug + Send + Sync {
    /// Reads the schema in its source form (`openAPIV3Schema`), if there is one.
    ///
    /// Cost: parsing the stored definition that contains it.
    fn read(&self) -> Option<Value>;
}
