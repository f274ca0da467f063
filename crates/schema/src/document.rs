//! The source document of a compiled schema, for publication in OpenAPI.
//!
//! Documents may be large and are rarely requested, so they are parsed from the stored definition on demand and not
//! kept in memory.

use std::fmt::Debug;

use keelson_meta::json::Value;

/// A schema that can be read again.
pub trait SchemaDocument: Debug + Send + Sync {
    /// The schema in its source form (`openAPIV3Schema`), if there is one.
    ///
    /// Cost: that of parsing what it is a part of.
    fn read(&self) -> Option<Value>;
}
