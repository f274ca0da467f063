//! The built-in resources and schemas, for components that do not use the surface.
//!
//! Settings contain resource names, a copy of a store runs without a server, and the documents of all group versions
//! share the definitions of the built-in kinds. These components get the catalogue and the schemas as arguments.
//! Request handlers use only the surface (`builtin/surface.rs` makes the first one).

use keelson_resources::Catalogue;
use keelson_schema::Schemas;

/// The built-in resources, which settings may name.
pub fn catalogue() -> &'static Catalogue {
    keelson_builtin::catalogue()
}

/// The schemas of the built-in kinds.
pub(crate) fn schemas() -> &'static Schemas {
    Schemas::builtin()
}
