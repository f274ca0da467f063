//! The document that a schema was compiled from, in the words of who wrote it, for those who publish it.
//!
//! It is seldom asked for and may be large, so that it is read where it lies and not kept beside what was compiled of it.

use std::fmt::Debug;

use keelson_meta::json::Value;

/// A schema that can be read again.
pub trait SchemaDocument: Debug + Send + Sync {
    /// The schema as it is stated (`openAPIV3Schema`); `None` if there is none.
    ///
    /// Cost: that of parsing what it is a part of.
    fn read(&self) -> Option<Value>;
}
