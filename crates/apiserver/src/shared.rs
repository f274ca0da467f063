//! The definitions that every document of OpenAPI refers to, such as `ObjectMeta` and `Status`: they are those of the built-in schemas.
//!
//! They are read here alone; what a server serves comes from the types of the program.

use std::sync::Arc;

use keelson_http::version::GIT_VERSION;
use keelson_openapi::SharedDefinitions;
use keelson_schema::Schemas;

/// What all documents share. It speaks of no kinds but those that are served.
pub(crate) fn definitions() -> Arc<SharedDefinitions> {
    SharedDefinitions::new(Schemas::builtin(), &[], GIT_VERSION)
}
