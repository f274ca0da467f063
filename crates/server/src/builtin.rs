//! The built-in resources and schemas, for what is composed before there is a surface or beside it.
//!
//! Settings name resources, a copy of a store has no server, and the documents of all group versions share the definitions of
//! the built-in kinds. These get the catalogue and the schemas from here, as arguments; what answers requests takes everything
//! from the surface (`builtin/surface.rs` makes the first one).

use keelson_resources::Catalogue;
use keelson_schema::Schemas;

/// The built-in resources: those that settings may name.
pub fn catalogue() -> &'static Catalogue {
    keelson_builtin::catalogue()
}

/// The schemas of the built-in kinds.
pub(crate) fn schemas() -> &'static Schemas {
    Schemas::builtin()
}
