//! The documents that describe what this server serves: discovery and OpenAPI of the built-in resources.
//!
//! This is where the documents meet the catalogue and the schemas. The crates that make them know only descriptions, so that
//! other resources can be described beside the built-in ones.

use std::sync::Arc;

use keelson_discovery::Documents;
use keelson_http::pages::ServedDocuments;
use keelson_http::version::GIT_VERSION;
use keelson_openapi::{Descriptions, Fragment, Shared, VersionDescription};
use keelson_resources::{Catalogue, Resource};
use keelson_schema::Schemas;

/// The documents of a catalogue's resources; `stored_as` tells which of them are stored in another version than usual.
pub(crate) fn documents<'v>(
    catalogue: &Catalogue,
    stored_as: impl Fn(&Resource) -> Option<&'v str>,
) -> Arc<ServedDocuments> {
    let versions = VersionDescription::all(catalogue);
    let shared = Shared::new(Schemas::builtin(), &versions, GIT_VERSION);
    let fragments: Vec<_> = versions.into_iter().map(Fragment::new).collect();
    let openapi = Descriptions::assemble(&shared, &fragments);
    Arc::new(ServedDocuments { discovery: Documents::build_storing(catalogue, stored_as), openapi })
}
