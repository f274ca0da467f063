//! The built-in resources and schemas, for components that do not use the surface.
//!
//! Settings contain resource names, a copy of a store runs without a server, and the documents of all group versions
//! share the definitions of the built-in kinds. These components get the catalogue and the schemas as arguments.
//! Request handlers use only the surface (`builtin/surface.rs` makes the first one).

use keelson_meta::Release;
use keelson_resources::Catalogue;
use keelson_schema::Schemas;

/// The built-in resources of the default release, which settings may name.
pub fn catalogue() -> &'static Catalogue {
    keelson_builtin::catalogue()
}

/// The built-in resources of a release, which settings may name.
pub fn catalogue_of(release: Release) -> &'static Catalogue {
    keelson_builtin::catalogue_of(release)
}

/// The built-in resources of all releases that the program has.
pub(crate) fn all_resources() -> &'static Catalogue {
    keelson_builtin::catalogue_of(Release::NEWEST)
}

/// The schemas of the built-in kinds of a release.
pub(crate) fn schemas(release: Release) -> &'static Schemas {
    Schemas::of_release(release)
}
