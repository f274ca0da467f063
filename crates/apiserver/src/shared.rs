//! The definitions shared by all OpenAPI documents, such as `ObjectMeta` and `Status`: those of the built-in schemas.
//!
//! Only this module reads the built-in schemas. All other definitions come from the program's types.

use std::sync::Arc;

use keelson_http::version::GIT_VERSION;
use keelson_openapi::SharedDefinitions;
use keelson_schema::Schemas;

/// The shared definitions, without kinds that are not served.
pub(crate) fn definitions() -> Arc<SharedDefinitions> {
    SharedDefinitions::new(Schemas::builtin(), &[], GIT_VERSION)
}
