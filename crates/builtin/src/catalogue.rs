//! The catalogue of the built-in resources, and their printers.
//!
//! They are read where a server is composed. Requests read the surface, which has the resources of others too.

use std::sync::{Arc, OnceLock};

use keelson_resources::Catalogue;
use keelson_tables::printer::Printer;

use crate::groups::{GROUPS, group};

/// The built-in resources. The first call makes the tables in some microseconds.
pub fn catalogue() -> &'static Catalogue {
    static BUILTIN: OnceLock<Catalogue> = OnceLock::new();
    BUILTIN
        .get_or_init(|| Catalogue::new(GROUPS.into_iter().map(|group| Arc::new(group.declaration.group())).collect()))
}

/// The printer of a kind; one that shows name and age where the kind has none of its own.
///
/// A printer understands its kind in all served versions.
pub fn printer(group_name: &str, kind: &str) -> Printer {
    group(group_name).and_then(|group| (group.columns)(kind)).unwrap_or_else(Printer::generic)
}
